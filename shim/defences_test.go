package shim

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/errdefs"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim/nodesettings"
)

// TestI14_ProfilesAreRefusedInContainers, and in execs, by the name of each. The twins are the pause container, which isn't run, and
// host_profiles = "drop".
func TestI14_ProfilesAreRefusedInContainers(t *testing.T) {
	t.Parallel()
	for name, profile := range map[string]func(*specs.Spec){
		"seccomp":  func(s *specs.Spec) { s.Linux.Seccomp = &specs.LinuxSeccomp{} },
		"AppArmor": func(s *specs.Spec) { s.Process.ApparmorProfile = "cri" },
		"SELinux":  func(s *specs.Spec) { s.Process.SelinuxLabel = "l" },
		"label":    func(s *specs.Spec) { s.Linux.MountLabel = "l" },
	} {
		l := newLab(t)
		pod, c := podSpec(typeSandbox, "pod"), podSpec("container", "pod")
		profile(pod)
		profile(c)
		l.running("pod", pod, streams{})
		if err := l.create("c", c, streams{}); !is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), name) || len(l.m.containers) > 0 {
			t.Errorf("%s: %v", name, err)
		}
		l = newLab(t)
		l.settings("host_profiles = \"drop\"\n")
		l.running("pod", pod, streams{})
		l.running("c", c, streams{})
		b, err := json.Marshal(&specs.Process{Args: []string{"sh"}, ApparmorProfile: "cri"})
		if err != nil {
			t.Fatal(err)
		}
		r := &taskapi.ExecProcessRequest{ID: "c", ExecID: "e", Spec: &anypb.Any{Value: b}}
		if _, err := l.s.Exec(t.Context(), r); err != nil {
			t.Errorf("%s, left out: %v", name, err)
		}
	}
}

// secretsFloor allows a host, with a secret for it and a line of hosts.
func secretsFloor(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte("the-operators-value"), 0o600); err != nil {
		t.Fatal(err)
	}
	return floorText + "[hosts]\n\"db.example\" = \"192.0.2.7:5432\"\n[secrets.FLOOR]\nfrom = \"file:" + file + "\"\nin = [\"header:X-Key\"]\nhosts = [\"api.example\"]\n"
}

// TestI14_FloorsSecretsArePodsToo: a pod whose policy has a secret of its own volume has the floor's beside it, where it allows the
// host, and may name the floor's. The twin is a policy that doesn't allow the host.
func TestI14_FloorsSecretsArePodsToo(t *testing.T) {
	t.Parallel()
	kubelet, _ := kubeletPod(t)
	uid := map[string]string{annotationPodUID: "u1"}
	names := func(p *policies.Policy) (all []string) {
		for _, s := range p.Secrets {
			all = append(all, s.Name)
		}
		slices.Sort(all)
		return all
	}
	floor := secretsFloor(t)
	for _, c := range []struct {
		policy string
		want   []string
	}{
		{secretPolicy("api/token"), []string{"FLOOR", "KEY"}},
		{floorText, []string{"FLOOR"}},
		{"version = 1\n", nil},
	} {
		cfg, err := podConfig(t, floor, kubelet, c.policy, uid)
		if err != nil || !slices.Equal(names(cfg.Policy), c.want) || !cfg.Trust || cfg.Floor == nil {
			t.Errorf("%s: %v, trusted %v, the secrets %v, want %v", c.policy, err, cfg.Trust, names(cfg.Policy), c.want)
			continue
		}
		home, err := sandbox.OpenHome(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := home.Trust().Admit(cfg.Policy, sandbox.AdmitOptions{Floor: cfg.Floor, Trust: cfg.Trust}); err != nil { // as the machine's start
			t.Errorf("%s is not admitted: %v", c.policy, err)
		}
	}
	// Without a policy the pod has the floor, secret and all, which is the operator's own and needs no approval.
	cfg, err := underFloor(t, floor, nil)
	if err != nil || !slices.Equal(names(cfg.Policy), []string{"FLOOR"}) || !cfg.Trust || cfg.Floor != nil {
		t.Errorf("without a policy: %v, trusted %v, %v", err, cfg.Trust, names(cfg.Policy))
	}
}

// TestI14_PoliciesNameWhatTheFloorHas of hosts and presets, and nothing else of the node.
func TestI14_PoliciesNameWhatTheFloorHas(t *testing.T) {
	t.Parallel()
	floor := strings.Replace(secretsFloor(t), "version = 1\n", "version = 1\ninclude = [\"pypi\"]\n", 1)
	for policy, want := range map[string]string{
		floorText + "[hosts]\n\"db.example\" = \"192.0.2.7:5432\"\n":                                       "",
		floorText + "[hosts]\n\"db.example\" = \"192.0.2.8:5432\"\n":                                       "beyond the node's floor",
		floorText + "[hosts]\n\"other.example\" = \"192.0.2.7:5432\"\n":                                    "beyond the node's floor",
		"version = 1\ninclude = [\"pypi\"]\n":                                                              "",
		"version = 1\ninclude = [\"./pypi\"]\n":                                                            annotationPolicy + ":2",
		floorText + "[secrets.X]\nfrom = \"command:id\"\nhosts = [\"api.example\"]\nin = [\"header:A\"]\n": "beyond the node's floor",
		floorText + "[secrets.X]\nfrom = \"env:HOME\"\nhosts = [\"api.example\"]\nin = [\"header:A\"]\n":   "beyond the node's floor",
	} {
		_, err := underFloor(t, floor, map[string]string{annotationPolicy: policy})
		if want == "" && err != nil || want != "" && (err == nil || !is(toGRPC(err), errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", policy, err, want)
		}
	}
	if _, err := underFloor(t, floorText, map[string]string{annotationPolicy: strings.Repeat("#", maxPolicy-12) + "\nversion = 1"}); err != nil {
		t.Errorf("a policy of the most bytes: %v", err)
	}
}

// TestI14_RecordsStayInTheirDirectory: no name of a pod or a container leads out of it, and only root reads it.
func TestI14_RecordsStayInTheirDirectory(t *testing.T) {
	t.Parallel()
	on := map[string]string{annotationAudit: "on"}
	for id, ok := range map[string]bool{"c1": true, "a.b_c-d": true, "../x": false, "a/b": false, ".hidden": false, "": false, "x\n": false, strings.Repeat("x", 300): false} {
		s := &settings{Records: filepath.Join(t.TempDir(), "records")}
		var cfg sandbox.Config
		if err := records(&cfg, s, id, on); (err == nil) != ok || ok && cfg.Audit != filepath.Join(s.Records, id+".audit.jsonl") || !ok && cfg.Audit != "" {
			t.Errorf("%q: %v, %q", id, err, cfg.Audit)
		}
		if info, err := os.Stat(s.Records); (err == nil) != ok || ok && info.Mode().Perm() != 0o700 {
			t.Errorf("%q: %v, %v", id, info, err)
		}
	}
	for _, c := range []struct {
		annotations map[string]string
		capture     bool
		log         bool
	}{
		{map[string]string{annotationCapture: "ON"}, true, false}, {map[string]string{annotationAudit: "true"}, false, true},
		{map[string]string{annotationCapture: "off", annotationAudit: "false"}, false, false},
	} {
		var cfg sandbox.Config
		if err := records(&cfg, &settings{Records: t.TempDir()}, "c1", c.annotations); err != nil || (cfg.Pcap != "") != c.capture || (cfg.Audit != "") != c.log {
			t.Errorf("%v: %v, %q, %q", c.annotations, err, cfg.Pcap, cfg.Audit)
		}
	}
}

// kubeletLab is a service whose settings have a kubelet's directory with a pod, and a floor.
func kubeletLab(t *testing.T) (l *lab, pod string, spec func(kind string) *specs.Spec) {
	t.Helper()
	kubelet, pod := kubeletPod(t)
	l = newLab(t)
	floor := filepath.Join(l.dir, "floor.toml")
	if err := os.WriteFile(floor, []byte(floorText), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(l.dir, "kubelet") // as where /var/lib is on another disk
	if err := os.Symlink(kubelet, link); err != nil {
		t.Fatal(err)
	}
	l.settings("kubelet = \"" + link + "\"\nfloor = \"" + floor + "\"\n")
	return l, pod, func(kind string) *specs.Spec {
		s := podSpec(kind, "pod")
		s.Annotations[annotationPodUID] = "u1"
		return s
	}
}

func bind(source, target string) specs.Mount {
	return specs.Mount{Type: "bind", Source: source, Destination: target, Options: []string{"rbind", "ro"}}
}

// targets are the targets of a container's binds, in the guest.
func (l *lab) targets(i int) (all []string) {
	for _, m := range l.m.containers[i].cfg.Mounts {
		if m.Type == "bind" && m.Target != "/etc" {
			all = append(all, m.Target)
		}
	}
	return all
}

// TestI8_GuestsGetNoSource: of what a container mounts the guest lacks volumes that are sources of the pod's secrets, and the service
// account's token. The twins are a pod without a policy, and one that asks for the token.
func TestI8_GuestsGetNoSource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy, token string
		want          []string
	}{
		{secretPolicy("api/token"), "", []string{"/vault", "/settings"}},
		{secretPolicy("vault/key"), "off", []string{"/api", "/settings"}},
		{"", "", []string{"/api", "/vault", "/settings"}},
		{secretPolicy("api/token"), "on", []string{"/vault", "/settings", tokenPath}},
	} {
		l, pod, spec := kubeletLab(t)
		p := spec(typeSandbox)
		if c.policy != "" {
			p.Annotations[annotationPolicy] = c.policy
		}
		p.Annotations[annotationToken] = c.token
		l.running("pod", p, streams{})
		s := spec("container")
		at := func(volume string) string { return filepath.Join(pod, "volumes", volume) }
		if err := os.MkdirAll(at("kubernetes.io~projected/kube-api-access"), 0o700); err != nil {
			t.Fatal(err)
		}
		s.Mounts = append(s.Mounts, bind(at("kubernetes.io~secret/api"), "/api"), bind(at("kubernetes.io~csi/vault/mount"), "/vault"),
			bind(at("kubernetes.io~configmap/settings"), "/settings"), bind(at("kubernetes.io~projected/kube-api-access"), tokenPath))
		l.running("c", s, streams{})
		if got := l.targets(0); !slices.Equal(got, c.want) {
			t.Errorf("policy %.20q, token %q: the guest has %v, want %v", c.policy, c.token, got, c.want)
		}
	}
	l, _, spec := kubeletLab(t)
	p := spec(typeSandbox)
	p.Annotations[annotationToken] = "maybe"
	if err := l.create("pod", p, streams{}); !is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), annotationToken) || l.boots > 0 {
		t.Errorf("%v, %d boots", err, l.boots)
	}
}

// TestI14_HostPathsOfContainersAreJudged when a container is made: another pod's volume is refused, by a link on the way, too, and
// leaves the pod as it was. The twin is a volume of the pod's own by a link.
func TestI14_HostPathsOfContainersAreJudged(t *testing.T) {
	t.Parallel()
	l, pod, spec := kubeletLab(t)
	l.running("pod", spec(typeSandbox), streams{})
	other := filepath.Join(pod, "../u2/volumes/kubernetes.io~secret/api")
	link := filepath.Join(t.TempDir(), "link")
	own := filepath.Join(t.TempDir(), "own")
	if err := errors.Join(os.MkdirAll(other, 0o700), os.Symlink(filepath.Dir(other), link), os.Symlink(pod, own)); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{other, filepath.Join(link, "api"), link, filepath.Join(pod, "../.."), "/proc", l.dir} {
		s := spec("container")
		s.Mounts = append(s.Mounts, bind(source, "/x"))
		if err := l.create("c", s, streams{}); !is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "at /x") || len(l.m.containers) > 0 {
			t.Errorf("%s: %v", source, err)
		}
	}
	s := spec("container")
	s.Mounts = append(s.Mounts, bind(filepath.Join(own, "volumes/kubernetes.io~configmap/settings"), "/x"))
	l.running("c", s, streams{})
	if got, want := l.m.containers[0].cfg.Mounts[len(s.Mounts)-1].Source, realPath(filepath.Join(pod, "volumes/kubernetes.io~configmap/settings")); got != want {
		t.Errorf("the guest gets %s, want %s", got, want)
	}
	if l.machineOver() {
		t.Error("the machine is over")
	}
}

// TestVolumesInMemoryOfContainers are the guest's, in each container of the pod that mounts one.
func TestVolumesInMemoryOfContainers(t *testing.T) {
	ownMounts(t)
	l, pod, spec := kubeletLab(t)
	volume := filepath.Join(realPath(pod), emptyDirs, "mem")
	if err := errors.Join(os.MkdirAll(volume, 0o755), unix.Mount("tmpfs", volume, "tmpfs", 0, "size=1m,mode=1777")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(volume, unix.MNT_DETACH) })
	l.running("pod", spec(typeSandbox), streams{})
	s := spec("container")
	s.Mounts = append(s.Mounts, bind(volume, "/x"))
	l.running("c", s, streams{})
	want := sandbox.ContainerMount{Type: "tmpfs", Target: "/x", Shared: "mem", SizeBytes: 1 << 20, Mode: 0o1777, ReadOnly: true}
	if got := l.m.containers[0].cfg.Mounts[len(s.Mounts)-1]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestI14_NodesProgramsAreReadOnly: no hostPath lets a guest write to the shim's settings, wherever they are, nor to msb's programs and
// libraries, nor make the settings' directory. The twins are the same paths, read-only, and a file beside them.
func TestI14_NodesProgramsAreReadOnly(t *testing.T) {
	t.Parallel()
	dir := realPath(t.TempDir())
	file := filepath.Join(dir, "etc/shim.toml")
	link := filepath.Join(dir, "links/shim.toml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.MkdirAll(filepath.Dir(link), 0o700), os.WriteFile(file, nil, 0o600), os.WriteFile(file+".bak", nil, 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Dir(realPath(self))
	s, err := loadSettings(optionsAt(t, link))
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{settings: s}
	for _, name := range []string{"msb", "msb-other", "../lib/msb/libkrun.so.1"} { // beside the test's program, which the go command removes
		at := filepath.Join(program, name)
		if _, err := os.Stat(at); err == nil {
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(at) })
	}
	for source, refused := range map[string]bool{
		file: true, filepath.Dir(file): true, dir: true, filepath.Dir(link): true, file + ".bak": false,
		"/etc": true, filepath.Join(program, "msb"): true, filepath.Join(program, "../lib/msb/libkrun.so.1"): true, filepath.Join(program, "../lib/msb"): true,
		filepath.Join(program, "msb-other"): false,
	} {
		for _, readOnly := range []bool{false, true} {
			err := p.admitsOne(source, readOnly)
			if got := err != nil && strings.Contains(err.Error(), "writable, at /x"); got != (refused && !readOnly) {
				t.Errorf("%s, read-only %v: %v", source, readOnly, err)
			}
		}
	}
}

// TestI14_KernelFilesOfEachKind of this kernel's are refused. The twin is a tmpfs.
func TestI14_KernelFilesOfEachKind(t *testing.T) {
	ownMounts(t)
	dir := realPath(t.TempDir())
	p := &pod{settings: &settings{Kubelet: "/none", Records: "/none"}}
	mounted := 0
	for _, kind := range []string{"proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "bpf", "efivarfs", "pstore", "tmpfs"} {
		data := ""
		if kind == "cgroup" {
			data = "none,name=systemd"
		}
		if err := unix.Mount(kind, dir, kind, 0, data); err != nil {
			t.Logf("no %s: %v", kind, err)
			continue
		}
		mounted++
		err := p.admitsOne(dir, true)
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		if got := err != nil && strings.Contains(err.Error(), "a file system of the node's kernel"); got != (kind != "tmpfs") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if mounted < 3 {
		t.Errorf("%d kinds could be mounted", mounted)
	}
}

// optionsAt are the runtime's options that name a file, and have a text that is not to be read.
func optionsAt(t *testing.T, file string) *anypb.Any {
	t.Helper()
	a, err := anypb.New(&runtimeoptions.Options{ConfigPath: file, ConfigBody: []byte("cpus = 3\n")})
	if err != nil {
		t.Fatal(err)
	}
	a.TypeUrl = "runtimeoptions.v1.Options"
	return a
}

func (p *pod) admitsOne(source string, readOnly bool) error {
	return p.admits([]sandbox.ContainerMount{{Type: "bind", Source: source, Target: "/x", ReadOnly: readOnly}}, "/none")
}

// TestLinksOfSourcesAreFollowed by the node, once, when a container is made.
func TestLinksOfSourcesAreFollowed(t *testing.T) {
	t.Parallel()
	dir := realPath(t.TempDir())
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o700), os.Symlink("a", filepath.Join(dir, "l")), os.Symlink("l/b", filepath.Join(dir, "m"))); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"a/b", "l/b", "m"} {
		r := &refusals{}
		if m, ok := mountOf(&specs.Mount{Type: "none", Options: []string{"bind"}, Source: filepath.Join(dir, source), Destination: "/x"}, r); !ok || m.Source != filepath.Join(dir, "a/b") {
			t.Errorf("%s: %+v, %v", source, m, r.err())
		}
	}
}

// TestMountsAreConverted: each option of a mount changes what the guest makes, and no other.
func TestMountsAreConverted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   specs.Mount
		want sandbox.ContainerMount // zero is refused
	}{
		{specs.Mount{Type: "tmpfs", Destination: "/t", Options: []string{"rro", "size=1k", "mode=0700"}}, sandbox.ContainerMount{Type: "tmpfs", Target: "/t", ReadOnly: true, SizeBytes: 1024, Mode: 0o700}},
		{specs.Mount{Type: "tmpfs", Destination: "/t", Options: []string{"ro", "rw", "suid", "dev", "exec", "relatime", "private"}}, sandbox.ContainerMount{Type: "tmpfs", Target: "/t"}},
		{specs.Mount{Type: "cgroup2", Destination: "/t"}, sandbox.ContainerMount{Type: "cgroup", Target: "/t"}},
		{specs.Mount{Type: "mqueue", Destination: "/t", Options: []string{"noexec"}}, sandbox.ContainerMount{Type: "mqueue", Target: "/t", NoExec: true}},
		{specs.Mount{Type: "tmpfs", Destination: "t"}, sandbox.ContainerMount{}},
		{specs.Mount{Type: "tmpfs", Destination: "/t", Options: []string{"size=0"}}, sandbox.ContainerMount{}},
		{specs.Mount{Type: "tmpfs", Destination: "/t", Options: []string{"size=much"}}, sandbox.ContainerMount{}},
		{specs.Mount{Type: "tmpfs", Destination: "/t", Options: []string{"mode=rwx"}}, sandbox.ContainerMount{}},
		{specs.Mount{Type: "tmpfs", Destination: "/t", Options: []string{"uid=7"}}, sandbox.ContainerMount{}},
		{specs.Mount{Type: "proc", Destination: "/t", Options: []string{"hidepid=2"}}, sandbox.ContainerMount{}},
		{specs.Mount{Type: "devpts", Destination: "/t", Options: []string{"gid=6"}}, sandbox.ContainerMount{}},
		{specs.Mount{Type: "overlay", Destination: "/t"}, sandbox.ContainerMount{}},
		{specs.Mount{Type: "tmpfs", Destination: "/t", UIDMappings: []specs.LinuxIDMapping{{Size: 1}}}, sandbox.ContainerMount{}},
		{specs.Mount{Type: "tmpfs", Destination: "/t", GIDMappings: []specs.LinuxIDMapping{{Size: 1}}}, sandbox.ContainerMount{}},
	} {
		r := &refusals{}
		got, ok := mountOf(&c.in, r)
		if ok != (c.want.Type != "") || ok && got != c.want || ok != (r.err() == nil) {
			t.Errorf("%+v: %+v, %v", c.in, got, r.err())
		}
	}
	for source, want := range map[string]sandbox.ContainerMount{
		"/run/c/sandboxes/p/shm": {Type: "tmpfs", Target: "/dev/shm", NoSuid: true, NoDev: true, NoExec: true, Mode: 0o1777, SizeBytes: 64 << 20},
		"/dev/shm":               {Type: "bind", Source: realPath("/dev/shm"), Target: "/dev/shm"},
		"/etc":                   {Type: "bind", Source: "/etc", Target: "/dev/shm"},
	} {
		s := baseSpec()
		s.Annotations = map[string]string{annotationSandbox: "p"}
		s.Mounts = []specs.Mount{{Destination: "/dev/shm", Type: "bind", Source: source, Options: []string{"rbind", "rw"}}}
		if got, err := convert(s); err != nil || got.Mounts[0] != want {
			t.Errorf("%s at /dev/shm: %+v, %v", source, got.Mounts, err)
		}
	}
}

// TestEachFieldHasItsPlace: the whole of what the guest gets of a spec.
func TestEachFieldHasItsPlace(t *testing.T) {
	t.Parallel()
	s := baseSpec()
	s.Root.Readonly = true
	s.Mounts = nil
	s.Linux.Sysctl = map[string]string{"net.core.somaxconn": "9"}
	p := s.Process
	p.Terminal, p.ConsoleSize = true, &specs.Box{Height: 25, Width: 1 << 20}
	p.User = specs.User{UID: 1, GID: 2, AdditionalGids: []uint32{3}, Umask: ptr[uint32](0o27)}
	p.Capabilities = &specs.LinuxCapabilities{Bounding: []string{"B"}, Effective: []string{"E"}, Inheritable: []string{"I"}, Permitted: []string{"P"}, Ambient: []string{"A"}}
	p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Soft: 1, Hard: 2}}
	r := s.Linux.Resources
	r.CPU = &specs.LinuxCPU{Shares: ptr[uint64](2), Quota: ptr[int64](50000), Period: ptr[uint64](100000)}
	r.Pids.Limit = ptr[int64](-1)
	got, err := convert(s)
	want := sandbox.ContainerConfig{
		ID: "c1", Root: "/root", ReadOnlyRoot: true, Hostname: "web", MaskedPaths: []string{"/proc/kcore"}, ReadOnlyPaths: []string{"/proc/sys"}, Sysctls: s.Linux.Sysctl,
		Process: sandbox.ContainerProcess{
			Args: p.Args, Env: p.Env, Cwd: "/", UID: 1, GID: 2, AdditionalGIDs: []uint32{3}, Umask: ptr[uint32](0o27),
			Capabilities: sandbox.Capabilities{Bounding: []string{"B"}, Effective: []string{"E"}, Inheritable: []string{"I"}, Permitted: []string{"P"}, Ambient: []string{"A"}},
			Rlimits:      []agentclient.Rlimit{{Name: "RLIMIT_CORE", Soft: 1, Hard: 2}}, NoNewPrivileges: true, OOMScoreAdj: ptr(999), Terminal: true, ConsoleSize: agentclient.Size{Rows: 25, Cols: 65535},
		},
		Resources: sandbox.ContainerResources{MemoryBytes: 64 << 20, CPUWeight: 1, CPUQuota: 50e6, CPUPeriod: 100e6, Unified: map[string]string{"memory.oom.group": "1"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
	p.Terminal = false
	r.Memory.Limit, r.CPU.Quota = ptr[int64](-1), ptr[int64](-1)
	if got, err := convert(s); err != nil || got.Process.ConsoleSize != (agentclient.Size{}) || got.Resources.MemoryBytes != 0 || got.Resources.CPUQuota != 0 || got.Resources.CPUPeriod != 0 {
		t.Errorf("without limits and terminal: %v, %+v", err, got)
	}
}

// TestRefusalsOfEachKind that TestRefusals lacks, and what is like them and allowed.
func TestRefusalsOfEachKind(t *testing.T) {
	t.Parallel()
	rule := func(kind, access string, major int64) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Type: kind, Major: &major, Access: access}}
		}
	}
	for _, c := range []struct {
		change func(*specs.Spec)
		want   string // "" is allowed
	}{
		{func(s *specs.Spec) {
			s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == "mount" })
		}, "no mount namespace"},
		{func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: "time"})
		}, `a namespace of the type "time"`},
		{func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: "cgroup"})
		}, ""},
		{rule("b", "rwm", 1), "access to a device of the node"}, {rule("c", "rwm", 10), "access to a device of the node"},
		{rule("c", "rwm", -1), "privileged"}, {rule("c", "rwm", 5), ""}, {rule("c", "rwm", 136), ""}, {rule("b", "m", 8), ""},
		{func(s *specs.Spec) { s.Linux = nil }, "a spec without linux"},
		{func(s *specs.Spec) { s.Process = nil }, "a spec without process"},
		{func(s *specs.Spec) { s.Linux.RootfsPropagation = "rprivate" }, ""},
		{func(s *specs.Spec) { s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/bin/x"}}} }, "hooks"},
		{func(s *specs.Spec) { s.Hooks = &specs.Hooks{} }, ""},
		{func(s *specs.Spec) { s.Linux.Resources.Memory.DisableOOMKiller = ptr(true) }, "disableOOMKiller"},
		{func(s *specs.Spec) { s.Linux.Resources.Memory.Reservation = ptr[int64](5) }, "a memory reservation"},
		{func(s *specs.Spec) { s.Linux.Resources.Memory.Swappiness = ptr[uint64](5) }, "swappiness"},
		{func(s *specs.Spec) { s.Linux.Resources.CPU.Mems = "0" }, "cpuset"},
		{func(s *specs.Spec) { s.Linux.Resources.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: "2MB"}} }, ""},
	} {
		s := copyOf(t, baseSpec())
		c.change(s)
		if _, err := convert(s); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
}

// TestDefaultsOfTheNode are those of docs/kubernetes.md, and a file that the runtime's options name goes before their text.
func TestDefaultsOfTheNode(t *testing.T) {
	t.Parallel()
	s := nodesettings.New()
	if err := s.Read("none", ""); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := settings{
		Home: "/var/lib/msb", Records: "/var/log/msb", Kubelet: "/var/lib/kubelet", Node: host, Memory: "512M", Overhead: "128M", Disk: "10G", CPUs: 1, HostProfiles: "refuse",
		MemoryBytes: 512 << 20, OverheadBytes: 128 << 20, DiskBytes: 10 << 30,
	}
	if want.Overhead, want.Disk = s.Overhead, s.Disk; !reflect.DeepEqual(*s, want) {
		t.Errorf("got %+v, want %+v", *s, want)
	}
	for _, key := range []string{"home", "records", "kubelet", "floor"} {
		if err := nodesettings.New().Read("x", key+" = \"a/b\"\n"); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("a relative path of %s: %v", key, err)
		}
		if err := nodesettings.New().Read("x", key+" = \"\"\n"); (err == nil) != (key == "floor") {
			t.Errorf("no path of %s: %v", key, err)
		}
	}
	for _, key := range []string{"memory", "memory_overhead", "disk"} {
		if err := nodesettings.New().Read("x", key+" = \"a\"\n"); err == nil || !strings.Contains(err.Error(), key+": ") {
			t.Errorf("a wrong %s: %v", key, err)
		}
	}
	file := filepath.Join(t.TempDir(), "shim.toml")
	if err := os.WriteFile(file, []byte("cpus = 7\nnode = \"n\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := loadSettings(optionsAt(t, file)); err != nil || got.CPUs != 7 || got.Node != "n" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := loadSettings(optionsAt(t, file+"x")); err == nil {
		t.Error("a file that isn't there is read")
	}
}

// TestSizeOfMachines: what a pod asks for, rounded up to whole processors; what isn't a limit is the node's default.
func TestSizeOfMachines(t *testing.T) {
	t.Parallel()
	s := &settings{MemoryBytes: 512 << 20, OverheadBytes: 1, CPUs: 4}
	for _, c := range []struct {
		memory, quota, period, shares string
		bytes                         int64
		cpus                          int
	}{
		{"0", "0", "0", "0", 512 << 20, 4}, {"-1", "-1", "100000", "2", 512 << 20, 4}, {"7", "200000", "100000", "9999", 8, 2}, {"7", "200001", "100000", "2", 8, 3},
		{"7", "1", "100000", "2", 8, 1}, {"7", "5", "0", "1024", 8, 4}, {"7", "0", "100000", "1025", 8, 2}, {"7", "0", "100000", "3072", 8, 3},
	} {
		var cfg sandbox.Config
		err := machineSize(&cfg, s, &specs.Spec{Annotations: map[string]string{
			annotationSandbox: "p", annotationMemory: c.memory, annotationCPUQuota: c.quota, annotationCPUPeriod: c.period, annotationCPUShares: c.shares,
		}})
		if err != nil || cfg.Memory != c.bytes || cfg.CPUs != c.cpus {
			t.Errorf("%+v: %v, %d bytes, %d processors", c, err, cfg.Memory, cfg.CPUs)
		}
	}
	for _, key := range []string{annotationMemory, annotationCPUQuota, annotationCPUPeriod, annotationCPUShares} {
		if err := machineSize(&sandbox.Config{}, s, &specs.Spec{Annotations: map[string]string{key: "x"}}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestRegistered: containerd's RunShim finds the task service, with its events and its end.
func TestRegistered(t *testing.T) {
	Register()
	t.Cleanup(registry.Reset)
	ctx, stop := shutdown.WithShutdown(t.Context())
	h := &heard{news: make(chan struct{}, 1)}
	for _, r := range registry.Graph(func(*plugin.Registration) bool { return false }) {
		if r.ID != "task" {
			continue
		}
		if r.Type != "io.containerd.ttrpc.v1" {
			t.Errorf("the type is %s", r.Type)
		}
		set := plugin.NewPluginSet()
		for typ, v := range map[plugin.Type]struct {
			id string
			v  any
		}{"io.containerd.event.v1": {"publisher", h}, "io.containerd.internal.v1": {"shutdown", stop}} {
			reg := plugin.Registration{Type: typ, ID: v.id, InitFn: func(*plugin.InitContext) (any, error) { return v.v, nil }}
			if err := set.Add(reg.Init(plugin.NewContext(ctx, set, nil))); err != nil {
				t.Fatal(err)
			}
		}
		made, err := r.InitFn(plugin.NewContext(ctx, set, nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := made.(*service).Shutdown(t.Context(), nil); err != nil {
			t.Error(err)
		}
		<-stop.Done()
		return
	}
	t.Error("no task service")
}

// TestFilesOfTheNode in /etc/msb hold without options; a floor that can't be read is an error, and no node without a floor. The twin is
// a node without these files.
func TestFilesOfTheNode(t *testing.T) {
	ownMounts(t)
	if err := unix.Mount("tmpfs", "/etc", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/etc", unix.MNT_DETACH) })
	load := func() (*settings, *policies.Policy, error) {
		s, err := loadSettings(nil)
		if err != nil {
			return nil, nil, err
		}
		floor, err := floorOf(s)
		return s, floor, err
	}
	if s, floor, err := load(); err != nil || s.CPUs != 1 || floor != nil {
		t.Errorf("without files: %+v, %v, %v", s, floor, err)
	}
	if err := errors.Join(os.Mkdir("/etc/msb", 0o700), os.WriteFile("/etc/msb/shim.toml", []byte("cpus = 7\n"), 0o600), os.WriteFile("/etc/msb/floor.toml", []byte(floorText), 0o600)); err != nil {
		t.Fatal(err)
	}
	if s, floor, err := load(); err != nil || s.CPUs != 7 || floor == nil || len(floor.Egress.Allow) != 1 {
		t.Errorf("with files: %+v, %v, %v", s, floor, err)
	}
	if err := errors.Join(os.Remove("/etc/msb/floor.toml"), os.Symlink("/not/there", "/etc/msb/floor.toml")); err != nil {
		t.Fatal(err)
	}
	if _, floor, err := load(); err == nil {
		t.Errorf("a link that leads nowhere is %v", floor)
	}
	if err := os.WriteFile("/etc/msb/shim.toml", []byte("cpu = 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(); err == nil || !strings.Contains(err.Error(), "/etc/msb/shim.toml: unknown key cpu") {
		t.Errorf("an unknown key: %v", err)
	}
}

// TestWeights are runc's and the kubelet's, within the kernel's bounds.
func TestWeights(t *testing.T) {
	t.Parallel()
	for shares, want := range map[uint64]uint64{0: 0, 1: 1, 2: 1, 1024: 39, 262144: 10000, 1 << 40: 10000} {
		if got := cpuWeight(shares); got != want {
			t.Errorf("%d shares are the weight %d, want %d", shares, got, want)
		}
	}
}
