package shim

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim/nodesettings"
)

// kubeletPod is a kubelet's directory of a pod with the Secret "api", as its atomic writer leaves it.
func kubeletPod(t *testing.T) (kubelet, pod string) {
	t.Helper()
	kubelet = t.TempDir()
	pod = filepath.Join(kubelet, "pods", "u1")
	secret := filepath.Join(pod, "volumes/kubernetes.io~secret/api")
	for name, text := range map[string]string{
		"volumes/kubernetes.io~secret/api/..1/token":      "the-value-of-the-secret",
		"volumes/kubernetes.io~csi/vault/mount/key":       "another-value",
		"volumes/kubernetes.io~projected/all/ca.crt":      "a-third",
		"volumes/kubernetes.io~configmap/settings/colour": "blue",
	} {
		at := filepath.Join(pod, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"..data": "..1", "token": "..data/token", "out": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(secret, link)); err != nil {
			t.Fatal(err)
		}
	}
	return kubelet, pod
}

func secretPolicy(from string) string {
	return "version = 1\n[[egress.allow]]\nhosts = [\"api.example\"]\nports = [443]\n[secrets.KEY]\nfrom = \"file:" + from + "\"\nin = [\"header:Authorization\"]\nhosts = [\"api.example\"]\n"
}

// podConfig is a pod's configuration with a policy of its own.
func podConfig(t *testing.T, floor, kubelet, policy string, annotations map[string]string) (sandbox.Config, error) {
	t.Helper()
	dir := t.TempDir()
	s := nodesettings.New()
	s.Home, s.Kubelet, s.Floor = dir, kubelet, filepath.Join(dir, "floor.toml")
	if err := errors.Join(os.WriteFile(s.Floor, []byte(floor), 0o600), s.Read("shim.toml", "")); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{annotationPolicy: policy}
	maps.Copy(all, annotations)
	return machineConfig("id1", &specs.Spec{Annotations: all}, s)
}

// TestSecretsOfThePodsOwnVolumes: its policy names them without a grant of the floor's, which still says where they may go.
func TestSecretsOfThePodsOwnVolumes(t *testing.T) {
	t.Parallel()
	kubelet, pod := kubeletPod(t)
	uid := map[string]string{annotationPodUID: "u1"}
	for from, want := range map[string]string{
		"api/token":  filepath.Join(pod, "volumes/kubernetes.io~secret/api/token"),
		"vault/key":  filepath.Join(pod, "volumes/kubernetes.io~csi/vault/mount/key"),
		"all/ca.crt": filepath.Join(pod, "volumes/kubernetes.io~projected/all/ca.crt"),
	} {
		cfg, err := podConfig(t, floorText, kubelet, secretPolicy(from), uid)
		if err != nil {
			t.Errorf("%s: %v", from, err)
			continue
		}
		if got := cfg.Policy.Secrets[0].From.Value; got != want {
			t.Errorf("%s is read from %s", from, got)
		}
		if _, err := policies.Tighten(cfg.Floor, cfg.Policy); err != nil { // as the supervisor does
			t.Errorf("under the floor that the supervisor gets: %v", err)
		}
		if got := hiddenVolumes(cfg.Policy, pod); !slices.Equal(got, []string{strings.Split(from, "/")[0]}) {
			t.Errorf("hidden: %q", got)
		}
	}
}

// TestI14_SecretVolumesAreThePodsOwn: no name leads to another file of the node, and no pod reads another's.
func TestI14_SecretVolumesAreThePodsOwn(t *testing.T) {
	t.Parallel()
	kubelet, _ := kubeletPod(t)
	for _, c := range []struct{ floor, from, uid, want string }{
		{floorText, "api/token", "", "none made this one; without a kubelet name the file by its absolute path"},
		{floorText, "api/token", "u2", "no Secret's volume api"},
		{floorText, "api/token", "../u1", "none made this one"},
		{floorText, "api/nothing", "u1", "has no key nothing"},
		{floorText, "api/out", "u1", "escapes"},
		{floorText, "settings/colour", "u1", "no Secret's volume settings"},
		{floorText, "api/..data/token", "u1", "file:VOLUME/KEY"},
		{floorText, "api/..1", "u1", "file:VOLUME/KEY"},
		{floorText, "../api/token", "u1", "file:VOLUME/KEY"},
		{floorText, "token", "u1", "file:VOLUME/KEY"},
		{floorText, "../../etc/passwd", "u1", "file:VOLUME/KEY"},
		{floorText, filepath.Join(kubelet, "pods/u1/volumes/kubernetes.io~secret/api/token"), "u1", "floor names no secret"},
		{"version = 1\n[[egress.allow]]\nhosts = [\"other.example\"]\n", "api/token", "u1", "beyond the node's floor"},
	} {
		_, err := podConfig(t, c.floor, kubelet, secretPolicy(c.from), map[string]string{annotationPodUID: c.uid})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q of pod %q: got %v, want %q", c.from, c.uid, err, c.want)
		}
	}
}

// TestI14_SecretsStayInTheirVolume: who writes to a volume, such as another pod's guest to a claim that both have, puts a link in
// the key's place that leads out, after the pod has started. The twin is the kubelet's link, which stays within.
func TestI14_SecretsStayInTheirVolume(t *testing.T) {
	t.Parallel()
	kubelet, pod := kubeletPod(t)
	outside := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(outside, []byte("of-the-node"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, key, to, want string }{
		{"vault/key", "volumes/kubernetes.io~csi/vault/mount/key", outside, "refused"},
		{"vault/key", "volumes/kubernetes.io~csi/vault/mount/key", "../../../kubernetes.io~secret/api/..1/token", "refused"},
		{"api/token", "volumes/kubernetes.io~secret/api/token", "..1/token", "the-value-of-the-secret"},
	} {
		cfg, err := podConfig(t, floorText, kubelet, secretPolicy(c.from), map[string]string{annotationPodUID: "u1"})
		if err != nil {
			t.Fatal(err)
		}
		home, err := sandbox.OpenHome(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		admitted, err := home.Trust().Admit(cfg.Policy, sandbox.AdmitOptions{Floor: cfg.Floor, Trust: cfg.Trust})
		if err != nil {
			t.Fatal(err)
		}
		key := filepath.Join(pod, c.key)
		before, err := os.ReadFile(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Remove(key), os.Symlink(c.to, key)); err != nil {
			t.Fatal(err)
		}
		got := "refused"
		if f, err := grants.Open(&admitted.Policy.Secrets[0].From); err == nil {
			b, err := io.ReadAll(f)
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != c.want {
			t.Errorf("%s, now a link to %s: read %q, want %q", c.from, c.to, got, c.want)
		}
		if err := errors.Join(os.Remove(key), os.WriteFile(key, before, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestI8_SourcesAreNoMounts: what is a secret's source is kept from the guest, by whatever path it is mounted, and nothing else.
func TestI8_SourcesAreNoMounts(t *testing.T) {
	t.Parallel()
	kubelet, dir := kubeletPod(t)
	link := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(kubelet, link); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		source, target string
		token, visible bool
	}{
		{at("volumes/kubernetes.io~secret/api"), "/a", false, false},
		{at("volumes/kubernetes.io~secret/api/token"), "/a", false, false},
		{at("volumes/kubernetes.io~secret/../kubernetes.io~secret/api"), "/a", false, false},
		{filepath.Join(link, "pods/u1/volumes/kubernetes.io~secret/api"), "/a", false, false},
		{at("volume-subpaths/api/c/0"), "/a", false, false},
		{at("volumes/kubernetes.io~secret/apis"), "/a", false, true},
		{at("volume-subpaths/apis/c/0"), "/a", false, true},
		{at("volumes/kubernetes.io~configmap/settings"), "/a", false, true},
		{filepath.Join(kubelet, "pods/u2/volumes/kubernetes.io~secret/api"), "/a", false, true},
		{at("volumes/kubernetes.io~projected/kube-api-access"), tokenPath, false, false},
		{at("volumes/kubernetes.io~projected/kube-api-access"), tokenPath + "/", false, false},
		{at("volumes/kubernetes.io~projected/kube-api-access"), tokenPath, true, true},
		{"/proc", "/proc", false, true},
	} {
		p := &pod{kubelet: dir, hidden: []string{"api"}, token: c.token}
		spec := &specs.Spec{Mounts: []specs.Mount{{Source: c.source, Destination: c.target}}}
		if got := len(p.visible(spec).Mounts) == 1; got != c.visible || len(spec.Mounts) != 1 {
			t.Errorf("%s at %s: visible %v, want %v", c.source, c.target, got, c.visible)
		}
	}
}

// TestI14_HostPathsAreNoWayOut: what a hostPath may not name of the node. The twins are the pod's own volumes, and directories of the
// node that are nobody's.
func TestI14_HostPathsAreNoWayOut(t *testing.T) {
	t.Parallel()
	kubelet, own := kubeletPod(t)
	other := filepath.Join(kubelet, "pods/u2/volumes/kubernetes.io~secret/api")
	records, plain := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(plain, "link")
	if err := os.Symlink("/proc", link); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bundles := t.TempDir()
	if err := os.Mkdir(filepath.Join(bundles, "c2"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := &pod{kubelet: own, settings: &settings{Kubelet: kubelet, Records: records}}
	for _, c := range []struct {
		source   string
		readOnly bool
		want     string // "" is admitted
	}{
		{"/", true, "the volumes of the node's pods"},
		{"/proc", true, "a file system of the node's kernel"},
		{"/proc/1", true, "a file system of the node's kernel"},
		{"/proc/self/environ", true, "a file system of the node's kernel"},
		{"/sys/kernel", true, "a file system of the node's kernel"},
		{link, true, "a file system of the node's kernel"},
		{kubelet, true, "the volumes of the node's pods"},
		{filepath.Join(kubelet, "pods"), true, "the volumes of the node's pods"},
		{other, true, "the volumes of the node's pods"},
		{bundles, true, "the bundles of the node's containers"},
		{filepath.Join(bundles, "c2"), true, "the bundles of the node's containers"},
		{records, true, "the captures and audit logs"},
		{filepath.Dir(records), true, "the captures and audit logs"},
		{filepath.Dir(self), false, "writable, at /x"},
		{self, false, "writable, at /x"},
		{self, true, ""},
		{filepath.Join(own, "volumes/kubernetes.io~configmap/settings"), true, ""},
		{plain, false, ""},
	} {
		err := func() error {
			m, ok := mountOf(&specs.Mount{Type: "bind", Source: c.source, Destination: "/x"}, &refusals{})
			m.ReadOnly = c.readOnly
			if !ok {
				t.Errorf("%s was refused before", c.source)
			}
			return p.admits([]sandbox.ContainerMount{m}, bundles)
		}()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.source, err, c.want)
		}
	}
}

// TestVolumesInMemoryAreTheGuests: an emptyDir in memory, for which the kubelet has mounted a tmpfs, is one of the guest's, with
// the kubelet's size, mode and owner, and so is a part of it (subPath). Every other directory is served by the node.
func TestVolumesInMemoryAreTheGuests(t *testing.T) {
	ownMounts(t)
	kubelet := realPath(t.TempDir())
	p := &pod{kubelet: filepath.Join(kubelet, "pods/u1")}
	at := func(name string) string { return filepath.Join(p.kubelet, name) }
	mount := func(source, kind, name, data string) {
		t.Helper()
		flags := uintptr(0)
		if kind == "" {
			flags = unix.MS_BIND
		}
		if err := errors.Join(os.MkdirAll(at(name), 0o755), unix.Mount(source, at(name), kind, flags, data)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at(name), unix.MNT_DETACH) })
	}
	mount("tmpfs", "tmpfs", emptyDirs+"/mem", "size=1m")
	if err := errors.Join(os.Chown(at(emptyDirs+"/mem"), 0, 2000), os.Chmod(at(emptyDirs+"/mem"), 0o777|os.ModeSetgid), os.MkdirAll(at(emptyDirs+"/mem/a b/c"), 0o755), os.MkdirAll(at(emptyDirs+"/disk/x"), 0o755)); err != nil {
		t.Fatal(err)
	}
	mount(at(emptyDirs+"/mem/a b/c"), "", "volume-subpaths/mem/main/0", "")
	mount(at(emptyDirs+"/disk/x"), "", "volume-subpaths/disk/main/0", "")
	mount("tmpfs", "tmpfs", "volume-subpaths/mem/main/1", "") // of another file system
	mount("tmpfs", "tmpfs", "volumes/kubernetes.io~secret/api", "")
	ours := sandbox.ContainerMount{Type: "tmpfs", Target: "/t", Shared: "mem", SizeBytes: 1 << 20, Mode: 0o2777, GID: 2000, ReadOnly: true}
	part := ours
	part.SubPath = "a b/c"
	for name, want := range map[string]*sandbox.ContainerMount{
		emptyDirs + "/mem": &ours, "volume-subpaths/mem/main/0": &part, emptyDirs + "/mem/a b": nil, emptyDirs + "/disk": nil,
		"volume-subpaths/mem/main/1": nil, "volume-subpaths/mem/main": nil, "volume-subpaths/disk/main/0": nil, "volumes/kubernetes.io~secret/api": nil, "../u2/" + emptyDirs + "/mem": nil,
	} {
		m := sandbox.ContainerMount{Type: "bind", Source: at(name), Target: "/t", ReadOnly: true}
		if want == nil {
			same := m
			want = &same
		}
		if err := p.inMemory(&m); err != nil || m != *want {
			t.Errorf("%s: got %+v, %v, want %+v", name, m, err, *want)
		}
	}
	// Where the kubelet's own directory is on a tmpfs, an emptyDir on disk is none.
	mount("tmpfs", "tmpfs", "volumes", "")
	if err := os.MkdirAll(at(emptyDirs+"/disk"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := sandbox.ContainerMount{Type: "bind", Source: at(emptyDirs + "/disk"), Target: "/t"}
	if err := p.inMemory(&m); err != nil || m.Type != "bind" {
		t.Errorf("on a tmpfs of the kubelet's: %+v, %v", m, err)
	}
}

// ownMounts gives the test's thread mounts of its own.
func ownMounts(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Skip(err)
	}
}

// TestI14_HostPathsHoldNoKernelFiles: a directory of the node below which the kernel's files are mounted, as control groups of
// version 1 are below a tmpfs, is refused. The twin is the directory before that.
func TestI14_HostPathsHoldNoKernelFiles(t *testing.T) {
	ownMounts(t)
	dir := realPath(t.TempDir())
	p := &pod{settings: &settings{Kubelet: "/none", Records: "/none"}}
	admits := func() error {
		return p.admits([]sandbox.ContainerMount{{Type: "bind", Source: dir, Target: "/x", ReadOnly: true}}, "/none")
	}
	at := filepath.Join(dir, "a b/c")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := admits(); err != nil {
		t.Error(err)
	}
	if err := unix.Mount("proc", at, "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	if err := admits(); err == nil || !strings.Contains(err.Error(), "a file system of the node's kernel at /x ("+dir+")") {
		t.Errorf("got %v", err)
	}
}

// TestI14_KernelFilesAnywhereAreRefused: file systems by which the kernel is told what to do, wherever they are mounted, and what is mounted in
// one of them. The twin is a tmpfs.
func TestI14_KernelFilesAnywhereAreRefused(t *testing.T) {
	ownMounts(t)
	p := &pod{settings: &settings{Kubelet: "/none", Records: "/none"}}
	refused := func(dir string) bool {
		err := p.admits([]sandbox.ContainerMount{{Type: "bind", Source: dir, Target: "/x"}}, "/none")
		return err != nil && strings.Contains(err.Error(), "a file system of the node's kernel")
	}
	tried := 0
	for _, kind := range []string{"tmpfs", "mqueue", "devpts", "fusectl", "configfs", "binfmt_misc", "securityfs", "debugfs", "selinuxfs", "rpc_pipefs", "nfsd"} {
		dir := realPath(t.TempDir())
		if err := unix.Mount(kind, dir, kind, 0, ""); err != nil {
			continue // a kernel without it
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		tried++
		if got := refused(dir); got != (kind != "tmpfs") {
			t.Errorf("%s: refused %v", kind, got)
		}
	}
	if tried < 3 {
		t.Errorf("only %d kinds can be mounted here", tried)
	}
	dir := realPath(t.TempDir())
	if err := unix.Mount("proc", dir, "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	in := filepath.Join(dir, "sys/fs") // as binfmt_misc, by autofs
	if err := unix.Mount("tmpfs", in, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(in, unix.MNT_DETACH) })
	if !refused(in) {
		t.Error("what is mounted in /proc is admitted")
	}
}
