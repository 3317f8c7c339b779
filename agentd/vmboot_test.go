//go:build vmtest && linux && amd64

package agentd_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/qemu"
)

func asUser(user string) func(*agentclient.ExecOptions) {
	return func(o *agentclient.ExecOptions) { o.User = user }
}

// caPEM is a certificate that nothing else trusts.
func caPEM(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestVMGuestIsAWholeMachine(t *testing.T) {
	ca := caPEM(t)
	m := bootVM(t, agentclient.Options{Hostname: "box", Env: []string{"FROM_HOST=yes"}, CAPEM: ca, TrustEnv: true})
	if info := m.client.Info(); info.Kernel == "" || len(info.Warnings) > 0 {
		t.Errorf("info %+v", info)
	}
	t.Run("names and environment", func(t *testing.T) {
		m.want(t, "hostname; cat /etc/hostname; echo $HOSTNAME $FROM_HOST $HOME", "box\nbox\nbox yes /root")
		m.want(t, "grep -c box /etc/hosts; test -e /etc/resolv.conf || echo none", "1\nnone")
	})
	t.Run("CA", func(t *testing.T) {
		m.want(t, `cat "$SSL_CERT_FILE"; test "$DENO_CERT" = "$SSL_CERT_FILE" && test "$NODE_EXTRA_CA_CERTS" = /etc/ssl/certs/ca-certificates.crt`,
			strings.TrimSpace(string(ca)))
	})
	t.Run("clock and randomness", func(t *testing.T) {
		got, _ := m.sh(t, "date +%s; dmesg | grep -c 'crng init done'")
		secs, err := strconv.ParseInt(strings.Fields(got + " ")[0], 10, 64)
		if off := time.Since(time.Unix(secs, 0)).Abs(); err != nil || off > 10*time.Second {
			t.Errorf("the guest's clock is off by %s (%q)", off, got)
		}
	})
	t.Run("root and devices", func(t *testing.T) {
		m.want(t, "echo x > /made-here && cat /made-here && awk '$2 == \"/\" {print $3}' /proc/mounts", "x\noverlay")
		// kvm is there where the CPU can run guests of its own, which an emulated one is not asked to.
		m.want(t, "ls /dev | grep -vx kvm | tr '\\n' ' '", "fd full fuse mqueue net null ptmx pts random shm stderr stdin stdout tty urandom zero")
		m.want(t, "echo data > /dev/shm/x && cat /dev/shm/x && stat -c %a /tmp /dev/shm", "data\n1777\n1777")
		m.want(t, "ls /run; ls /newroot 2>/dev/null || echo none", "none")
		m.want(t, "unshare -U id -u", "65534") // a chroot would refuse this
	})
	t.Run("users", func(t *testing.T) {
		m.want(t, "id; echo to-stdout > /dev/stdout; ping -c1 127.0.0.1 >/dev/null 2>&1 || true", "uid=1000(user) gid=1000(user)\nto-stdout", asUser("user"))
		m.want(t, "id -u; id -g", "5\n6", asUser("5:6"))
		m.want(t, "cat /proc/self/oom_score_adj", "0", asUser("nobody"))
	})
	t.Run("terminal", func(t *testing.T) {
		m.want(t, "tty; stty size; stat -c '%u %g' $(tty)", "/dev/pts/0\r\n30 100\r\n1000 5", func(o *agentclient.ExecOptions) {
			o.TTY, o.Size, o.User = true, agentclient.Size{Rows: 30, Cols: 100}, "user"
		})
	})
	t.Run("orphans are reaped", func(t *testing.T) {
		m.want(t, "for i in 1 2 3 4 5; do (true & ) ; done; sleep 0.3; ps | grep -c '\\[[t]rue\\]' || true", "0")
	})
	t.Run("agentd survives the guest's root", func(t *testing.T) {
		m.want(t, "kill -9 1; kill -9 -1; true", "")
		m.want(t, "echo alive", "alive")
	})
	t.Run("stats", func(t *testing.T) {
		st, err := m.client.Stats(t.Context())
		if err != nil || st.MemoryTotalBytes < 200<<20 || st.MemoryAvailableBytes <= 0 || st.CPUBusy <= 0 || st.Processes == 0 {
			t.Errorf("got %+v, %v", st, err)
		}
	})
	t.Run("clock jump", func(t *testing.T) {
		for _, when := range []time.Time{time.Unix(4102444800, 0), time.Unix(1000, 0), time.Now()} {
			if _, err := m.client.SetClock(t.Context(), when); err != nil {
				t.Errorf("set to %s: %v", when, err)
			}
			got, _ := m.sh(t, "date +%Y")
			if want := when.UTC().Format("2006"); strings.TrimSpace(got) != want {
				t.Errorf("year %q, want %s", got, want)
			}
		}
	})
}

func TestVMBombsStayInTheirExec(t *testing.T) {
	m := bootVM(t, agentclient.Options{})
	t.Run("memory", func(t *testing.T) {
		out, st := m.sh(t, "echo 1 > /proc/sys/vm/overcommit_memory; dd if=/dev/zero of=/dev/null bs=900M count=1")
		if !st.OOMKilled {
			t.Errorf("got %+v, %s", st, out)
		}
		// The limit of all execs was met before the machine's memory was: the agent has a part of its own.
		m.want(t, "dmesg | grep -c 'Memory cgroup out of memory'; dmesg | grep -c '] Out of memory' || true", "1\n0")
	})
	t.Run("disk", func(t *testing.T) {
		if out, st := m.sh(t, "dd if=/dev/zero of=/tmp/fill bs=1M count=1000"); st.Code == 0 || !strings.Contains(out, "No space left") {
			t.Errorf("got %+v, %s", st, out)
		}
		m.want(t, "rm /tmp/fill; echo alive", "alive")
	})
	t.Run("forks, ended by the timeout", func(t *testing.T) {
		ended := make(chan agentclient.ExitStatus, 1)
		go func() {
			_, st := m.sh(t, "b() { b | b & }; b; sleep 1000", func(o *agentclient.ExecOptions) { o.Timeout = 6 * time.Second })
			ended <- st
		}()
		for seen, i := uint64(0), 0; seen < 150; i++ { // the agent answers beside many processes that run; a busy machine makes 240 in the time
			st, err := m.client.Stats(t.Context())
			if err != nil || i > 1000 {
				t.Fatalf("%d processes at most: %+v, %v", seen, st, err)
			}
			seen = max(seen, uint64(st.Processes))
		}
		m.want(t, "echo beside", "beside")
		if st := <-ended; !st.TimedOut {
			t.Errorf("got %+v", st)
		}
		m.want(t, "echo alive", "alive")
	})
	t.Run("a daemon is killed with its exec", func(t *testing.T) {
		_, st := m.sh(t, "setsid sleep 4321 & sleep 1000", func(o *agentclient.ExecOptions) { o.Timeout = time.Second })
		if !st.TimedOut {
			t.Errorf("got %+v", st)
		}
		m.want(t, "ps | grep -c '[s]leep 4321' || true", "0")
	})
}

func TestVMUpperDiskKeepsWhatWasWritten(t *testing.T) {
	disk := upperDisk(t)
	opts := agentclient.Options{Root: &agentclient.Root{
		Image: agentclient.Disk{Serial: "image"}, UpperDisk: agentclient.Disk{Serial: "no-such", Device: "vdc"},
	}}
	first := bootVM(t, opts, disk)
	first.want(t, "echo kept > /root/x; rm /etc/profile; stat -c %a /", "755")
	if err := first.client.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(t.Context()); err != nil {
		t.Errorf("the machine ended with %v", err)
	}
	if !errors.Is(first.client.Err(), agentclient.ErrAgentDead) {
		t.Errorf("the session ended with %v", first.client.Err())
	}
	opts.Root.UpperDisk = agentclient.Disk{Serial: "upper"}
	second := bootVM(t, opts, disk)
	second.want(t, "cat /root/x; ls /etc/profile 2>/dev/null || echo gone", "kept\ngone")
}

func TestVMMissingDiskIsNamed(t *testing.T) {
	m := startVM(t, 256)
	_, err := agentclient.Dial(t.Context(), m.Agent(), agentclient.Options{Root: &agentclient.Root{Image: agentclient.Disk{Serial: "other"}}})
	if !errors.Is(err, agentclient.ErrRefused) || !strings.Contains(err.Error(), `serial "other"`) {
		t.Errorf("got %v", err)
	}
	if err := m.Wait(t.Context()); err != nil {
		t.Errorf("the machine ended with %v", err)
	}
}

func TestVMHostThatLeavesEndsTheMachine(t *testing.T) {
	m := bootVM(t, agentclient.Options{})
	if err := m.client.Close(); err != nil {
		t.Error(err)
	}
	if err := m.Wait(t.Context()); err != nil {
		t.Errorf("the machine ended with %v", err)
	}
}

func TestVMHostGarbageEndsTheMachine(t *testing.T) {
	m := startVM(t, 256)
	if _, err := m.Agent().Write(bytes.Repeat([]byte("garbage\n"), 100)); err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(t.Context()); err != nil {
		t.Errorf("the machine ended with %v", err)
	}
	if log := m.ConsoleTail(4096); !strings.Contains(log, "broke the agent's protocol") {
		t.Errorf("the console does not say why:\n%s", log)
	}
}

func TestVMGuestThatGoesIsNoticed(t *testing.T) {
	for name, script := range map[string]string{
		"reboot": "reboot -f",
		"panic":  "echo 2 > /proc/sys/vm/panic_on_oom; echo 1 > /proc/sys/vm/overcommit_memory; dd if=/dev/zero of=/dev/null bs=900M count=1",
	} {
		t.Run(name, func(t *testing.T) {
			m := bootVM(t, agentclient.Options{})
			st, err := m.client.Exec(t.Context(), agentclient.ExecOptions{Argv: []string{"/bin/sh", "-c", script}})
			if !errors.Is(err, agentclient.ErrAgentDead) {
				t.Errorf("got %+v, %v", st, err)
			}
			err = m.Wait(t.Context())
			panicked := errors.Is(err, vm.ErrGuestPanic) || errors.Is(err, vm.ErrGuestOutOfMemory)
			if panicked != (name == "panic") {
				t.Errorf("the machine ended with %v", err)
			}
		})
	}
}

func TestVMNetworkIsConfigured(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	host := os.NewFile(uintptr(fds[0]), "link")
	defer host.Close()
	mac := net.HardwareAddr{0x02, 0, 0, 0, 0, 5}
	m, err := qemu.New(qemu.Config{CacheDir: scratch}).Start(t.Context(), vm.Spec{
		CPUs: 1, MemoryMiB: 256, ConsoleLog: t.TempDir() + "/console.log",
		Disks: []vm.Disk{{Path: agentDisk(t), ReadOnly: true, ID: "agentd"}, {Path: imageDisk(t), ReadOnly: true, ID: "image"}},
		Net:   &vm.Net{FD: os.NewFile(uintptr(fds[1]), "guest"), MAC: mac},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Kill()
	client, err := agentclient.Dial(t.Context(), m.Agent(), agentclient.Options{
		Hostname: "box", Root: &agentclient.Root{Image: agentclient.Disk{Serial: "image"}},
		Network: &agentclient.Network{
			MAC: mac, MTU: 1400,
			Addresses:  []netip.Prefix{netip.MustParsePrefix("10.9.8.2/24"), netip.MustParsePrefix("fd00:9::2/64")},
			Gateways:   []netip.Addr{netip.MustParseAddr("10.9.8.1"), netip.MustParseAddr("fd00:9::1")},
			DNSServers: []netip.Addr{netip.MustParseAddr("10.9.8.1")},
			Hosts:      []agentclient.HostEntry{{Address: netip.MustParseAddr("198.18.0.1"), Names: []string{"registry.internal"}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	g := &machine{Machine: m, client: client}
	g.want(t, "ip -o -4 addr show eth0 | awk '{print $4}'; ip -o -6 addr show eth0 scope global | awk '{print $4}'", "10.9.8.2/24\nfd00:9::2/64")
	g.want(t, "cat /sys/class/net/eth0/mtu; ip route | awk '/default/ {print $1, $2, $3}'; ip -6 route | grep -c '^default via fd00:9::1'", "1400\ndefault via 10.9.8.1\n1")
	g.want(t, "grep nameserver /etc/resolv.conf; tail -n 3 /etc/hosts", "nameserver 10.9.8.1\n10.9.8.2\tbox\nfd00:9::2\tbox\n198.18.0.1\tregistry.internal")
}
