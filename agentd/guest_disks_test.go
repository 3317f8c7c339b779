//go:build linux && !(vmtest && amd64)

package agentd

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/system"
	"github.com/msb-project/msb/agentd/internal/workload"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

// thisKernel is the real guest, on the kernel that the tests run on, whose clock is not the test's to set.
type thisKernel struct{ *guest }

// Configure implements machineOps.
func (k thisKernel) Configure(ctx context.Context, req *agentpb.HandshakeRequest) (env, warnings []string, err error) {
	req.ClockUnixNs = 0
	return k.guest.Configure(ctx, req)
}

// devices gives the test's own process the /dev of a microVM, without disks.
func devices(t *testing.T) {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no disks can be made here: ", err)
	}
	t.Cleanup(func() { _ = control.Close() })
	must(t, unix.Mount("tmpfs", "/dev", "tmpfs", 0, ""), unix.Mount("tmpfs", "/sys/block", "tmpfs", 0, ""))
	for name, number := range map[string]uint64{"null": unix.Mkdev(1, 3), "urandom": unix.Mkdev(1, 9), "fuse": unix.Mkdev(10, 229), "loop-control": unix.Mkdev(10, 237)} {
		must(t, unix.Mknod("/dev/"+name, unix.S_IFCHR|0o666, int(number)))
	}
}

// disk makes an ext4 file system of what is in tree, with the mode of its root, on a disk of that name.
func disk(t *testing.T, name, tree string) agentclient.Disk {
	t.Helper()
	image := filepath.Join(t.TempDir(), name)
	vmtest.Ext4(t, tree, image, 8)
	attach(t, name, image, 0)
	var st unix.Stat_t
	at := t.TempDir() // mke2fs keeps the owner and mode of everything but the root
	must(t, unix.Stat(tree, &st), unix.Mount("/dev/"+name, at, "ext4", 0, ""), os.Chown(at, int(st.Uid), int(st.Gid)), unix.Chmod(at, st.Mode&0o7777), unix.Unmount(at, 0))
	return agentclient.Disk{Serial: "serial-" + name}
}

// attach makes a file the disk of that name.
func attach(t *testing.T, name, image string, flags uint32) {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = control.Close() }()
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = file.Close() }()
	config := &unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | flags}}
	for { // other processes take loop devices too
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		must(t, err)
		node := "/dev/" + name
		must(t, unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(n)))))
		loop, err := os.OpenFile(node, os.O_RDWR, 0)
		must(t, err)
		if err = unix.IoctlLoopConfigure(int(loop.Fd()), config); err == nil {
			t.Cleanup(func() { _ = loop.Close() }) // with its last mount the device is free
			break
		}
		must(t, loop.Close(), os.Remove(node))
		if err != unix.EBUSY {
			t.Skip("no disks can be made here: ", err)
		}
	}
	must(t, os.MkdirAll("/sys/block/"+name, 0o755), os.WriteFile("/sys/block/"+name+"/serial", []byte("serial-"+name+"\n"), 0o644))
}

// boot opens a session with the real guest.
func boot(t *testing.T, opts agentclient.Options, change ...func(*server)) (*session, error) {
	t.Helper()
	s := newSessionOf(t, func(thread *workload.Thread) machineOps {
		return thisKernel{&guest{thread: thread, log: slog.New(slog.DiscardHandler)}}
	}, change...)
	return s, s.handshake(t, opts)
}

// sh runs a shell line in the guest.
func (s *session) sh(t *testing.T, line string) string {
	t.Helper()
	return strings.TrimSpace(s.run(t, script("exec 2>&1; "+line)).out)
}

// wantLines compares what shell lines of the guest write.
func (s *session) wantLines(t *testing.T, all map[string]string) {
	t.Helper()
	for line, want := range all {
		if got := s.sh(t, line); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", line, got, want)
		}
	}
}

// wantMounts compares file systems of the guest: kind, and options that it must have or, behind "!", must not have.
func (s *session) wantMounts(t *testing.T, all map[string]string) {
	t.Helper()
	found := map[string][]string{}
	text := s.sh(t, "cat /proc/mounts")
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		found[f[1]] = append([]string{f[2]}, strings.Split(f[3], ",")...)
	}
	for at, want := range all {
		for w := range strings.FieldsSeq(want) {
			option, not := strings.CutPrefix(w, "!")
			if slices.Contains(found[at], option) == not {
				t.Errorf("%s is %v, want %s", at, found[at], want)
			}
		}
		delete(found, at)
	}
	if len(found) > 0 {
		t.Errorf("other mounts of the guest: %v", found)
	}
}

// wantWarning compares what the guest could not do: words of the one warning, or none for "".
func (s *session) wantWarning(t *testing.T, words string) {
	t.Helper()
	w := s.Info().Warnings
	if words == "" && len(w) > 0 || words != "" && (len(w) != 1 || !strings.Contains(w[0], words)) {
		t.Errorf("warnings %q, want %q", w, words)
	}
}

// files makes files with their directories below root.
func files(t *testing.T, root string, all map[string]string) {
	t.Helper()
	for name, text := range all {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
}

// imageOf makes the tree of an image with busybox, a user and what a distribution has.
func imageOf(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	fillRoot(t, root)
	files(t, root, map[string]string{
		"etc/passwd": "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n", "etc/group": "root:x:0:\nnode:x:1000:\n",
		"etc/machine-id": "0123456789abcdef0123456789abcdef\n", "etc/apt/apt.conf.d/docker-clean": "rm",
		"var/log/kept": "of the image",
	})
	must(t, os.MkdirAll(filepath.Join(root, "home/node"), 0o755), os.Chown(filepath.Join(root, "home/node"), 1000, 1000))
	must(t, os.Symlink("/etc", filepath.Join(root, "tmp")), os.Symlink("/etc", filepath.Join(root, "dev")), os.WriteFile(filepath.Join(root, "run"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(root, "work"), 0o700), os.Chown(filepath.Join(root, "work"), 1000, 1000), unix.Chmod(filepath.Join(root, "work"), 0o2750))
	must(t, os.Chown(root, 1000, 1001), os.Chmod(root, 0o711))
	return root
}

// certificate is one as far as trust stores look at it.
func certificate(text string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)})
}

// card gives this process a network device that leads to another, as a microVM has one.
func card(t *testing.T, mac net.HardwareAddr) {
	t.Helper()
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "own0", HardwareAddr: mac}, PeerName: "far0"}))
	far, err := netlink.LinkByName("far0")
	must(t, err, netlink.LinkSetUp(far))
}

// TestMachinesAreMadeOfTheirDisks configures the guest on this kernel, with all that a handshake may ask for.
func TestMachinesAreMadeOfTheirDisks(t *testing.T) {
	inNamespaces(t, func() {
		devices(t)
		shared, volume, fixed := t.TempDir(), t.TempDir(), t.TempDir()
		files(t, shared, map[string]string{"pip/wheel": "shared"})
		files(t, volume, map[string]string{"old": "volume"})
		files(t, fixed, map[string]string{"old": "fixed"})
		image := imageOf(t)
		own, others := certificate("own"), certificate("others")
		files(t, image, map[string]string{"etc/ssl/certs/ca-certificates.crt": string(others)})
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
		card(t, mac)
		mode := uint32(0o1750)
		s, err := boot(t, agentclient.Options{
			Hostname: "box", Env: []string{"FROM_HOST=yes"}, CAPEM: own, TrustEnv: true, ForgetPEM: others, NewIdentity: true,
			Network: &agentclient.Network{
				MAC: mac, MTU: 1400, Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24"), netip.MustParsePrefix("fd09::2/64")},
				Gateways: []netip.Addr{netip.MustParseAddr("10.9.0.1")}, DNSServers: []netip.Addr{netip.MustParseAddr("10.9.0.53")},
			},
			Root: &agentclient.Root{
				Image: disk(t, "vda", image), UpperDisk: disk(t, "vdb", t.TempDir()),
				Tmpfs:     []agentclient.Tmpfs{{Path: "/scratch", Size: 1 << 20, Exec: true}, {Path: "/scratch/in", Mode: &mode}, {Path: "/work"}},
				MakeDirs:  []string{"/made/deep", "/scratch/made"},
				Volumes:   []agentclient.Volume{{Disk: disk(t, "vdc", volume), Path: "/data"}, {Disk: disk(t, "vdd", fixed), Path: "/scratch/fixed", ReadOnly: true}},
				Caches:    []agentclient.Cache{{Key: "pip", Path: "~/.cache/pip"}, {Key: "apt", Path: "/var/cache/apt"}},
				CacheDisk: disk(t, "vde", shared), CacheUser: "node", ReadOnly: true,
			},
		})
		must(t, err)
		s.wantWarning(t, "")
		cache := "overlay rw nosuid nodev redirect_dir=nofollow upperdir=/run/msb/upper/cache/"
		s.wantMounts(t, map[string]string{
			"/": "overlay ro upperdir=/run/msb/upper/data", "/proc": "proc nosuid nodev noexec", "/sys": "sysfs nosuid nodev noexec",
			"/sys/fs/cgroup": "cgroup2 nosuid nodev noexec", "/dev": "tmpfs nosuid !noexec size=1024k mode=755",
			"/dev/pts": "devpts nosuid noexec gid=5 mode=620 ptmxmode=666", "/dev/shm": "tmpfs nosuid nodev !noexec", "/dev/mqueue": "mqueue nosuid nodev noexec",
			"/scratch": "tmpfs rw nosuid nodev !noexec size=1024k", "/scratch/in": "tmpfs nosuid nodev noexec mode=1750", "/work": "tmpfs nosuid nodev noexec",
			"/data": "ext4 rw nosuid nodev noatime discard", "/scratch/fixed": "ext4 ro nosuid nodev noatime",
			"/home/node/.cache/pip": cache + "pip/data lowerdir=/run/msb/caches/pip", "/var/cache/apt": cache + "apt/data", "/etc/apt/apt.conf.d/docker-clean": "tmpfs",
		})
		s.wantLines(t, map[string]string{
			"ls -A / | tr '\n' ' '":                                                 "bin data dev etc home lost+found made proc run scratch sys tmp var work",
			"stat -c '%a %u %g' / /work /scratch/in /data":                          "711 1000 1001\n2750 1000 1000\n1750 0 0\n755 0 0",
			"stat -c '%F %a' /tmp /run /dev /dev/shm":                               "directory 1777\ndirectory 755\ndirectory 755\ndirectory 1777",
			"ls -A /tmp /run":                                                       "/run:\n\n/tmp:",
			"cd /dev; stat -c '%n %a %t %T' null zero full random urandom tty fuse": "null 666 1 3\nzero 666 1 5\nfull 666 1 7\nrandom 666 1 8\nurandom 666 1 9\ntty 666 5 0\nfuse 666 a e5",
			"ls -A /dev | tr '\n' ' '":                                              "fd full fuse mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero",
			"cd /dev; for f in fd stdin stdout stderr ptmx; do readlink $f; done":   "/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\npts/ptmx",
			"mkdir /more || touch /etc/x || touch /scratch/fixed/x || echo none":    "mkdir: can't create directory '/more': Read-only file system\ntouch: /etc/x: Read-only file system\ntouch: /scratch/fixed/x: Read-only file system\nnone",
			"echo new > /data/new && cat /data/new /data/old":                       "new\nvolume",
			"stat -c '%F %a' /made/deep /scratch/made":                              "directory 755\ndirectory 755",
			"cd /home/node; stat -c '%a %u %g' .cache .cache/pip":                   "755 1000 1000\n755 1000 1000",
			"cd /home/node/.cache/pip; echo x > wheel; echo y > more; cat *":        "y\nx",
			"cat /etc/apt/apt.conf.d/docker-clean | head -n 2 | sed s/true.*//":     "// In place of the image's file, which would empty the cache.\nAPT::Keep-Downloaded-Packages \"",
			"hostname; cat /etc/hostname; echo $HOSTNAME $FROM_HOST":                "box\nbox\nbox yes",
			"grep box /etc/hosts; head -n 1 /etc/resolv.conf":                       "10.9.0.2\tbox\nfd09::2\tbox\nnameserver 10.9.0.53",
			"cat $SSL_CERT_FILE":                                                    strings.TrimSpace(string(own)),
			"grep -c 0123456789abcdef /etc/machine-id":                              "0",
			"cat /sys/class/net/own0/mtu /sys/class/net/own0/operstate":             "1400\nup",
		})
		for place, want := range map[string]string{
			"image": "ext4,ro,", "upper": "ext4,rw,noatime,discard", "caches": "ext4,ro,nosuid,nodev,noatime", "volumes/0": "ext4,rw,nosuid,nodev,noatime,discard",
		} {
			if got := agentsMount(t, "/run/msb/"+place); !strings.HasPrefix(got, want) {
				t.Errorf("the agent has mounted %s as %q, want %s", place, got, want)
			}
		}
		st, err := s.Stats(t.Context())
		var root unix.Statfs_t
		must(t, err, unix.Statfs("/run/msb/root", &root))
		if st.RootTotalBytes != int64(root.Blocks)*root.Bsize || st.RootAvailableBytes > int64(root.Bfree)*root.Bsize || st.MemoryTotalBytes < 16<<20 {
			t.Errorf("%+v of a root of %d blocks, %d free", st, root.Blocks, root.Bfree)
		}
		// What the workload wrote is where it outlives the machine.
		for path, want := range map[string]string{"volumes/0/new": "new\n", "upper/cache/pip/data/wheel": "x\n", "caches/pip/wheel": "shared", "upper/data/etc/hostname": "box\n"} {
			if got, err := os.ReadFile(filepath.Join("/run/msb", path)); err != nil || string(got) != want {
				t.Errorf("%s is %q, %v, want %q", path, got, err, want)
			}
		}
	})
}

// TestMachinesInMemory have no disk but that of their image, and go on without what isn't needed.
func TestMachinesInMemory(t *testing.T) {
	inNamespaces(t, func() {
		devices(t)
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
		card(t, mac)
		s, err := boot(t, agentclient.Options{Restored: true, Root: &agentclient.Root{
			Image: disk(t, "vda", imageOf(t)), UpperMemoryBytes: 1 << 20,
			Caches: []agentclient.Cache{{Key: "pip", Path: "~/.cache/pip"}}, CacheUser: "nobody-of-the-image",
		}})
		must(t, err)
		s.wantWarning(t, "the caches are not there")
		s.wantLines(t, map[string]string{
			"stat -c '%a %u %g' /":                  "711 1000 1001",
			"test -e /etc/resolv.conf || echo none": "none",
			"test -e /etc/hostname || echo none":    "none",
			"cat /etc/machine-id":                   "0123456789abcdef0123456789abcdef",
			"ls -A /home/node":                      "",
			"rm /var/log/kept; ls -A /var/log":      "",
			"env | grep -c -e HOSTNAME -e _CERT_":   "0",
			"dd if=/dev/zero of=/big bs=64k 2>&1 | grep -c 'No space'; test $(stat -c %s /big) -lt 1048576 && echo bounded": "1\nbounded",
		})
		if own, err := net.InterfaceByName("own0"); err != nil || slices.Equal(own.HardwareAddr, mac) {
			t.Errorf("the copy of a saved machine has the device %v, %v", own, err)
		}
		if _, err := s.Freeze(t.Context(), time.Minute); err == nil {
			t.Error("a root in memory is frozen")
		}
	})
}

// TestFullDisksStart: who filled the disk must be able to remove something.
func TestFullDisksStart(t *testing.T) {
	inNamespaces(t, func() {
		devices(t)
		upper, at := disk(t, "vdb", t.TempDir()), t.TempDir()
		must(t, unix.Mount("/dev/vdb", at, "ext4", 0, ""))
		for _, dir := range strings.Fields("proc sys dev tmp run etc") { // as the machine before has left it
			must(t, os.MkdirAll(filepath.Join(at, "data", dir), 0o755))
		}
		must(t, os.MkdirAll(filepath.Join(at, "work/work"), 0o700))
		for _, piece := range []int{1 << 20, 1 << 10} { // the last may fit in where the first doesn't
			for n := 0; ; n++ {
				if err := os.WriteFile(filepath.Join(at, "data", fmt.Sprint("big", piece, "-", n)), make([]byte, piece), 0o644); errors.Is(err, unix.ENOSPC) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
		}
		must(t, unix.Unmount(at, 0))
		s, err := boot(t, agentclient.Options{Root: &agentclient.Root{Image: disk(t, "vda", imageOf(t)), UpperDisk: upper}})
		must(t, err)
		s.wantLines(t, map[string]string{"rm /big1048576-0 && echo x > /small && cat /small": "x"})
	})
}

// TestFreezesHoldTheDisk: of the root, until they are over.
func TestFreezesHoldTheDisk(t *testing.T) {
	inNamespaces(t, func() {
		devices(t)
		s, err := boot(t, agentclient.Options{Root: &agentclient.Root{Image: disk(t, "vda", imageOf(t)), UpperDisk: disk(t, "vdb", t.TempDir())}})
		must(t, err)
		frozen, err := s.Freeze(t.Context(), time.Minute)
		must(t, err)
		if err := system.FreezeUpper(); !errors.Is(err, unix.EBUSY) {
			t.Errorf("the disk is not frozen: %v", err)
		}
		must(t, frozen.Thaw())
		if err := system.ThawUpper(); !errors.Is(err, unix.EINVAL) {
			t.Errorf("the disk is frozen still: %v", err)
		}
		s.wantLines(t, map[string]string{"echo a-new-text > /x && cat /x": "a-new-text"})
		if got, _, err := s.Find(t.Context(), []string{"a-new-text"}); err != nil || !slices.Equal(got, []string{"/x"}) {
			t.Errorf("what was written since the image is found as %q, %v", got, err)
		}
	})
}

// TestVolumesOfKilledMachines: what their journals hold is missing for who may not write it back, and the guest says so.
func TestVolumesOfKilledMachines(t *testing.T) {
	inNamespaces(t, func() {
		devices(t)
		image, volume, at := filepath.Join(t.TempDir(), "volume"), t.TempDir(), t.TempDir()
		files(t, volume, map[string]string{"old": "of before\n"})
		vmtest.Ext4(t, volume, image, 8)
		if out, err := exec.Command("tune2fs", "-j", image).CombinedOutput(); err != nil {
			t.Fatalf("tune2fs (package e2fsprogs): %v\n%s", err, out)
		}
		attach(t, "vdb", image, 0)
		must(t, unix.Mount("/dev/vdb", at, "ext4", 0, ""))
		killed, err := os.ReadFile(image)
		must(t, err, unix.Unmount(at, 0), os.WriteFile(image+"-killed", killed, 0o600))
		attach(t, "vdc", image+"-killed", unix.LO_FLAGS_READ_ONLY)
		root := &agentclient.Root{Image: disk(t, "vda", imageOf(t)), Volumes: []agentclient.Volume{{Disk: agentclient.Disk{Device: "vdc"}, Path: "/data", ReadOnly: true}}}
		s, err := boot(t, agentclient.Options{Root: root})
		must(t, err)
		s.wantWarning(t, "the volume at /data was not closed in order")
		s.wantLines(t, map[string]string{"cat /data/old; touch /data/new": "of before\ntouch: /data/new: Read-only file system"})
	})
}
