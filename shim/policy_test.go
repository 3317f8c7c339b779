package shim

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim/nodesettings"
)

const floorText = `version = 1
[[egress.allow]]
hosts = ["api.example"]
ports = [443]
`

// underFloor is a pod's configuration under a floor's text; "" is none.
func underFloor(t *testing.T, floor string, annotations map[string]string) (sandbox.Config, error) {
	t.Helper()
	dir := t.TempDir()
	s := &settings{Home: dir, Records: dir, CPUs: 1, HostProfiles: nodesettings.ProfilesRefuse}
	if floor != "" {
		s.Floor = filepath.Join(dir, "floor.toml")
		if err := os.WriteFile(s.Floor, []byte(floor), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return machineConfig("id1", &specs.Spec{Annotations: annotations}, s)
}

func TestPolicyUnderTheFloor(t *testing.T) {
	t.Parallel()
	tighter := "version = 1\n[[egress.allow]]\nhosts = [\"api.example\"]\nports = [443]\nmethods = [\"GET\"]\n"
	cfg, err := underFloor(t, floorText, map[string]string{annotationPolicy: tighter})
	if err != nil || cfg.Floor == nil || len(cfg.Policy.Egress.Allow) != 1 {
		t.Errorf("a tighter policy: %v, %+v", err, cfg.Policy)
	}
	cfg, err = underFloor(t, floorText, nil)
	if err != nil || cfg.Policy == nil || len(cfg.Policy.Egress.Allow) != 1 {
		t.Errorf("without a policy of its own the floor holds: %v, %+v", err, cfg.Policy)
	}
	cfg, err = underFloor(t, "", nil)
	if err != nil || cfg.Policy != nil {
		t.Errorf("without a floor nothing is allowed: %v, %+v", err, cfg.Policy)
	}
}

// TestPoliciesOfPodsAreRefused with their line and remedy, and so are annotations that name anything of the node.
func TestPoliciesOfPodsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		floor       string
		annotations map[string]string
		want        []string
	}{
		{floorText, map[string]string{annotationPolicy: "version = 1\nsurprise = 2\n"}, []string{annotationPolicy + ":2", "surprise"}},
		{floorText, map[string]string{annotationPolicy: "version = 1\n[[egress.allow]]\nhosts = [\"api.example\"]\n[secrets.KEY]\nfrom = \"file:/etc/shadow\"\nin = [\"header:Authorization\"]\nhosts = [\"api.example\"]\n"}, []string{"beyond the node's floor", ":4", "floor names no secret"}},
		{floorText, map[string]string{annotationPolicy: "version = 1\ninclude = [\"/etc/passwd\"]\n"}, []string{annotationPolicy + ":2"}},
		{floorText, map[string]string{annotationPolicy: strings.Repeat("#", maxPolicy+1)}, []string{"give at most"}},
		{"", map[string]string{annotationPolicy: "version = 1\n"}, []string{"no floor", nodesettings.DefaultFloor}},
		{"version = 2\n", nil, []string{"the node's floor", "floor.toml:1"}},
		{floorText, map[string]string{annotationCapture: "/etc/passwd"}, []string{annotationCapture, `write "on" or "off"`}},
		{floorText, map[string]string{annotationAudit: "on", annotationPodName: "../x", annotationPodNamespace: "a"}, []string{`"../x"`}},
		{floorText, map[string]string{annotationAudit: "on", annotationPodName: "a", annotationPodNamespace: "../x"}, []string{`"../x"`}},
		{floorText, map[string]string{annotationMemory: "much"}, []string{annotationMemory, "no number"}},
		{floorText, map[string]string{"msb.dev/polcy": "version = 1\n"}, []string{"no annotation msb.dev/polcy", annotationPolicy}},
		{"", map[string]string{"msb.dev/x": ""}, []string{"no annotation msb.dev/x"}},
	} {
		_, err := underFloor(t, c.floor, c.annotations)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.200v: want %q, got %v", c.annotations, want, err)
			}
		}
	}
}

func TestRecordsAreNamedForThePod(t *testing.T) {
	t.Parallel()
	cfg, err := underFloor(t, floorText, map[string]string{annotationCapture: "on", annotationAudit: "true", annotationPodName: "web-0", annotationPodNamespace: "shop"})
	if err != nil || filepath.Base(cfg.Pcap) != "shop_web-0_id1.pcapng" || filepath.Base(cfg.Audit) != "shop_web-0_id1.audit.jsonl" {
		t.Errorf("%v: %q, %q", err, cfg.Pcap, cfg.Audit)
	}
	if o := cfg.PcapOptions; o.MaxBytes == 0 || o.Keep == 0 {
		t.Errorf("a pod's capture has no bound: %+v", o)
	}
	if cfg, err := underFloor(t, floorText, nil); err != nil || cfg.Pcap+cfg.Audit != "" {
		t.Errorf("without annotations: %v, %q, %q", err, cfg.Pcap, cfg.Audit)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for text, want := range map[string]string{
		"":                                          "",
		"floor = \"here.toml\"\n":                   "no absolute path",
		"memory = \"lots\"\n":                       "memory: ",
		"host_profiles = \"yes\"\n":                 `write "refuse" or "drop"`,
		"floors = \"/etc/x\"\n":                     "unknown key floors",
		"cpus = \"two\"\n":                          "cpus",
		"host_profiles = \"drop\"\n":                "",
		"memory_overhead = \"64MiB\"\n":             "",
		"nameservers = [\"::1\", \"10.96.0.10\"]\n": "",
		"nameservers = [\"dns.example\"]\n":         "nameservers",
	} {
		l.settings(text)
		_, err := loadSettings(l.options)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if _, err := loadSettings(&anypb.Any{TypeUrl: "containerd.runc.v1.Options"}); err == nil || !strings.Contains(err.Error(), "another runtime's") {
		t.Errorf("runc's options: %v", err)
	}
}

func TestMachineSize(t *testing.T) {
	t.Parallel()
	s := &settings{MemoryBytes: 512 << 20, OverheadBytes: 128 << 20, DiskBytes: 1 << 30, CPUs: 1}
	for _, c := range []struct {
		annotations map[string]string
		resources   *specs.LinuxResources
		memory      int64
		cpus        int
	}{
		{nil, nil, 512 << 20, 1},
		{nil, baseSpec().Linux.Resources, (64 + 128) << 20, 1},
		{map[string]string{annotationSandbox: "p", annotationMemory: "1073741824", annotationCPUQuota: "250000", annotationCPUPeriod: "100000"}, baseSpec().Linux.Resources, (1024 + 128) << 20, 3},
		{map[string]string{annotationSandbox: "p", annotationCPUShares: "2048", annotationCPUQuota: "-1"}, nil, 512 << 20, 2},
	} {
		var cfg sandbox.Config
		err := machineSize(&cfg, s, &specs.Spec{Annotations: c.annotations, Linux: &specs.Linux{Resources: c.resources}})
		if err != nil || cfg.Memory != c.memory || cfg.CPUs != c.cpus || cfg.Disk != s.DiskBytes {
			t.Errorf("%v: %v, memory %d, processors %d", c.annotations, err, cfg.Memory, cfg.CPUs)
		}
	}
}

// TestNetworkNamespace: what is started there is in the namespace, and the caller isn't.
func TestNetworkNamespace(t *testing.T) {
	t.Parallel()
	link := func() string {
		s, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if _, _, err := boot(t.Context(), sandbox.Config{Pod: new(sandbox.Pod)}, "/not/there"); err == nil || !strings.Contains(err.Error(), "/not/there") {
		t.Errorf("a namespace that isn't there: %v", err)
	}
	if _, _, err := boot(t.Context(), sandbox.Config{Pod: new(sandbox.Pod)}, "/proc/thread-self/ns/net"); err == nil || !strings.Contains(err.Error(), "hostNetwork") {
		t.Errorf("the node's own: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("entering a namespace needs root")
	}
	before, inside := link(), ""
	other := make(chan error, 1)
	made := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		ns := -1
		if err == nil {
			ns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		made <- ns
		other <- err
	}()
	ns := <-made
	if err := <-other; err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(ns) }()
	if err := inNetwork(ns, func() error { inside = link(); return nil }); err != nil || inside == before || link() != before {
		t.Errorf("%v: %s inside, %s before, %s after", err, inside, before, link())
	}
	p := new(sandbox.Pod)
	if err := podNetwork(p, ns); err != nil || inside != fmt.Sprintf("net:[%d]", p.Namespace) {
		t.Errorf("%v: %+v, want %s", err, p, inside)
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	own := map[netip.Addr]bool{}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && !prefix.Addr().IsLoopback() {
			own[prefix.Addr()] = true
		}
	}
	for _, a := range p.Node { // in the pod's namespace 127.0.0.1 is the pod's
		if !own[a] {
			t.Errorf("%v is no address of the node that a pod could reach", a)
		}
	}
	if len(p.Node) != len(own) {
		t.Errorf("the node has %v, want %v", p.Node, own)
	}
}

// TestAuditLinesNameThePod: labels are those of the pod, the node and, of a container without a pod, its id.
func TestAuditLinesNameThePod(t *testing.T) {
	t.Parallel()
	s := &settings{Home: t.TempDir(), Records: t.TempDir(), CPUs: 1, HostProfiles: nodesettings.ProfilesRefuse, Node: "n1"}
	for name, c := range map[string]struct{ annotations, want map[string]string }{
		"pod": {
			map[string]string{annotationPodName: "web", annotationPodNamespace: "shop", annotationSandbox: "id1"},
			map[string]string{"pod": "web", "namespace": "shop", "node": "n1"},
		},
		"container alone": {nil, map[string]string{"container": "id1", "node": "n1"}},
	} {
		got, err := auditLabels("id1", c.annotations, s)
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := auditLabels("id1", map[string]string{annotationPodName: strings.Repeat("x", 600)}, s); err == nil {
		t.Error("a name of 600 bytes is taken")
	}
}

// TestCheckSettings tells the shim's own judgement of a node's file, for `msb doctor --node`.
func TestCheckSettings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shim.toml")
	for text, want := range map[string]string{
		"memory = '1G'\n": "", "": "",
		"memry = '1G'\n": "unknown key memry", "memory = 'lots'\n": "memory", "home = 'relative'\n": "no absolute path",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := CheckSettings(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if nodesettings.DefaultDisk != sandbox.DefaultDisk || nodesettings.MinMemory != sandbox.MinMemory {
		t.Error("the sizes of nodesettings are not the sandbox's")
	}
	if CheckSettings(path+"x") == nil {
		t.Error("a file that isn't there is right")
	}
}

// TestPodsResolvConf: the file that is mounted at /etc/resolv.conf names the resolvers of a pod, and of nothing without one.
func TestPodsResolvConf(t *testing.T) {
	t.Parallel()
	s := &settings{Home: t.TempDir(), Records: t.TempDir(), CPUs: 1, HostProfiles: nodesettings.ProfilesRefuse, Node: "n1", Floor: filepath.Join(t.TempDir(), "floor.toml")}
	if err := os.WriteFile(s.Floor, []byte(floorText), 0o600); err != nil {
		t.Fatal(err)
	}
	mounts := []specs.Mount{{Destination: "/etc/resolv.conf", Source: "/a/below"}, {Destination: "/etc/hosts", Source: "/a/hosts"}, {Destination: "/etc/resolv.conf", Source: "/a/resolv.conf"}}
	in := &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.NetworkNamespace, Path: "/run/netns/x"}}}
	for name, c := range map[string]struct {
		spec *specs.Spec
		want string
		pod  bool
	}{
		"pod":                    {&specs.Spec{Linux: in, Mounts: mounts}, "/a/resolv.conf", true},
		"pod without a file":     {&specs.Spec{Linux: in}, "", true},
		"no network namespace's": {&specs.Spec{Mounts: mounts}, "", false},
	} {
		cfg, err := machineConfig("id1", c.spec, s)
		if err != nil || (cfg.Pod != nil) != c.pod || c.pod && cfg.Pod.ResolvConf != c.want {
			t.Errorf("%s: %v, %+v", name, err, cfg.Pod)
		}
	}
}
