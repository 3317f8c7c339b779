//go:build vmtest

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/krun"
	"github.com/msb-project/msb/internal/vm/vmtest/emuhost"
)

// TestI2_VMKrun runs msb on libkrun for real: here where KVM runs ordinary kernels, else with itself
// inside an emulated host.
func TestI2_VMKrun(t *testing.T) {
	if vm.ProbeKVM() == nil {
		testKrun(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// QEMU's emulation of nested guests stalls under seconds of a busy NIC: the tour and big transfers run
	// where KVM does.
	const inside = "^TestI2_VMKrun$/^(output_and_exit_code|without_network_nothing_is_reached)$"
	// The host gets another address, for a guest that has a way to the host's sockets.
	out, code := emuhost.RunFresh(t, map[string]string{"/msb.test": self, "/policy.toml": "../../policy.toml",
		"/bin/printf": "/bin/busybox"}, // the policy's secret comes from it
		5*time.Minute, "/bin/sh", "-c", "/bin/busybox ip addr add "+hostAddress+"/32 dev lo && "+
			"exec /msb.test -test.v -test.timeout=4m '-test.run="+inside+"'")
	t.Log(out)
	for range strings.Count(out, startedAgain) {
		emuhost.Retried(t, "a sandbox in the emulated host")
	}
	if code != 0 {
		t.Fatalf("exit code %d in the emulated host", code)
	}
}

// startedAgain begins what onKrun says of a sandbox that it starts once more.
const startedAgain = "starting it again: "

// hostAddress is one that TestI2_VMKrun gives to the emulated host, beside 127.0.0.1 (RFC 2544's range).
const hostAddress = "198.19.7.7"

// onKrun runs msb with the backend that it chooses itself. QEMU's emulation of nested guests stalls one
// inner boot in about ten, its virtual CPU spinning before the first console line, or delivers an interrupt
// twice, which a kernel answers with a panic: such a sandbox is ended, which must leave nothing either, and
// started again. Where nothing is emulated a panic counts.
func onKrun(t *testing.T, args ...string) result {
	t.Helper()
	const stalled = 90 * time.Second
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		r := &running{Cmd: command(t, nil, append([]string{"run", "-q", "--trust"}, args...)...), ended: make(chan struct{})}
		r.Stdout, r.Stderr = &r.out, &r.err
		r.start(t)
		timer := time.AfterFunc(stalled, func() { _ = r.Process.Signal(syscall.SIGTERM) })
		from := startedFrom(r.ended)
		got := r.wait(t)
		nothingLeft(t, stateDirectory())
		failed := strings.Contains(got.err, "did not become ready") ||
			os.Getenv(emuhost.Env) != "" && strings.Contains(got.err, "kernel panicked")
		if names := <-from; !failed && !slices.Equal(names, []string{"/memfd:msb-vmm (deleted)"}) {
			t.Errorf("libkrun's process was executed from %q", names)
		}
		if timer.Stop() && !failed {
			return got
		}
		t.Logf(startedAgain+"%+v", got)
	}
	t.Fatal("it stalled again and again")
	return result{}
}

// startedFrom looks what VMMs of libkrun are executed from, until something has ended.
func startedFrom(ended <-chan struct{}) <-chan []string {
	result := make(chan []string, 1)
	go func() {
		var names []string
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-ended:
				tick.Stop()
				slices.Sort(names)
				result <- slices.Compact(names)
				return
			case <-tick.C:
			}
			lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is sound
			for _, line := range lines {
				if words, err := os.ReadFile(line); err == nil && strings.Contains(string(words), "\x00"+krun.Verb+"\x00") {
					if name, err := os.Readlink(filepath.Join(filepath.Dir(line), "exe")); err == nil {
						names = append(names, name)
					}
				}
			}
		}
	}()
	return result
}

func testKrun(t *testing.T) {
	got := msb(t, nil, "doctor", "--json")
	var d diagnosis
	if err := json.Unmarshal([]byte(got.out), &d); err != nil || !d.Usable || d.Backend != "krun" {
		t.Fatalf("msb doctor: %v, exit %d, %s%s; want krun", err, got.code, got.out, got.err)
	}
	t.Run("output and exit code", func(t *testing.T) {
		shared := filepath.Dir(write(t, "in", "of the host\n"))
		large := write(t, "large", strings.Repeat("x", 5<<20)+"end\n") // by the transfer disk, of which the kernel counts what it read
		const byDisk = `for d in /sys/block/vd*; do test "$(cat $d/size)" = 32768 && awk '{print ($3*512 > 5*1024*1024)}' $d/stat; done`
		onKrun(t, "-v", shared+":/work:rw", "--copy", large+":/large", "--", "sh", "-c", "echo hi; echo $MSB_BACKEND; cat /work/in; wc -c < /large; tail -c 4 /large; "+byDisk+"; echo of the guest > /work/out; exit 7").
			want(t, 7, "hi\nkrun\nof the host\n5242884\nend\n1\n")
		if b, err := os.ReadFile(filepath.Join(shared, "out")); err != nil || string(b) != "of the guest\n" {
			t.Errorf("%q, %v", b, err)
		}
	})
	t.Run("the tour", func(t *testing.T) {
		got := onKrun(t, "--policy", "../../policy.toml")
		t.Log("\n" + got.out)
		if got.code != 0 {
			t.Errorf("exit %d: %s", got.code, got.err)
		}
	})
	t.Run("without network nothing is reached", noWayOut)
	t.Run("big transfers", func(t *testing.T) { bigTransfers(t, onKrun, 4<<20) })
}

// noWayOut holds invariant 2: without a NIC libkrun turns guest sockets into the host's (TSI) unless told
// otherwise, and then the ports below would answer.
func noWayOut(t *testing.T) {
	var targets []string
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Errorf("the guest reached %s from %s", c.LocalAddr(), c.RemoteAddr())
				_ = c.Close()
			}
		}()
		host, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if host == "::" {
			host = hostAddress
		}
		targets = append(targets, host+" "+port)
	}
	script := fmt.Sprintf(`ls /sys/class/net | grep -v -x -e lo -e dummy0 && echo "has a network device"
		cat /sys/bus/virtio/devices/*/device | grep -i -e 0x0001 -e 0x0013 && echo "has a virtio NIC or a vsock device"
		for target in %s; do nc -w 3 $target </dev/null && echo "reached $target"; done
		grep -q tsi_hijack /proc/cmdline && echo "TSI is on"; true`, `"`+strings.Join(targets, `" "`)+`"`)
	onKrun(t, "--no-net", "--", "sh", "-c", script).want(t, 0, "")
}

// bigTransfers moves size bytes each way: in plain HTTP to a server of the operator's, through TLS that
// is only relayed and through TLS that is inspected.
func bigTransfers(t *testing.T, run func(*testing.T, ...string) result, size int) {
	t.Helper()
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	sum := sha256.Sum256(data)
	want := hex.EncodeToString(sum[:])
	mux := http.NewServeMux()
	mux.HandleFunc("GET /down", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) })
	mux.HandleFunc("POST /up", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%x %d %v\n", h.Sum(nil), n, err)
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	policy := write(t, "policy.toml", fmt.Sprintf(`version = 1
[[egress.allow]]
hosts = ["inspected.internal"]
protocol = "https"
methods = ["POST"]
[hosts]
"files.internal" = %q
"relayed.internal" = "builtin:echo"
"inspected.internal" = "builtin:echo"
`, srv.Listener.Addr()))
	got := run(t, "--policy", policy, "--", "sh", "-c", `cd /tmp && wget -q -O file http://files.internal/down && sha256sum < file
		msb-tour get -X POST -T file http://files.internal/up
		for h in relayed inspected; do msb-tour get -X POST -T file https://$h.internal/ | grep body_sha256; done; true`)
	if got.code != 0 || strings.Count(got.out, want) != 4 {
		t.Errorf("%d bytes down, up, up through TLS relayed and inspected: exit %d\n%s%s; want four times %s", size, got.code, got.out, got.err, want)
	}
}

func TestVMBigTransfers(t *testing.T) {
	bigTransfers(t, vmRun, 20<<20)
}
