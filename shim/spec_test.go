package shim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim/nodesettings"
)

func ptr[T any](v T) *T { return &v }

// baseSpec is what ctr run and containerd's CRI ask for, with a value in each field that is honoured.
func baseSpec() *specs.Spec {
	return &specs.Spec{
		Version: specs.Version, Hostname: "web",
		Root: &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Args: []string{"/bin/sh", "-c", "true"}, Env: []string{"PATH=/bin"}, Cwd: "/",
			User:            specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{2000}},
			Capabilities:    &specs.LinuxCapabilities{Bounding: []string{"CAP_CHOWN"}, Effective: []string{"CAP_CHOWN"}, Permitted: []string{"CAP_CHOWN"}},
			Rlimits:         []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}},
			NoNewPrivileges: true, OOMScoreAdj: ptr(999),
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
			{Destination: "/etc", Type: "bind", Source: "/etc", Options: []string{"rbind", "rprivate", "ro"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: "/kubepods/pod1/c1",
			Namespaces:  []specs.LinuxNamespace{{Type: "pid"}, {Type: "ipc", Path: "/proc/7/ns/ipc"}, {Type: "uts", Path: "/proc/7/ns/uts"}, {Type: "mount"}, {Type: "network", Path: "/run/netns/x"}},
			MaskedPaths: []string{"/proc/kcore"}, ReadonlyPaths: []string{"/proc/sys"},
			Resources: &specs.LinuxResources{
				Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}, {Allow: true, Type: "c", Major: ptr[int64](1), Minor: ptr[int64](3), Access: "rwm"}, {Allow: true, Type: "b", Access: "m"}},
				Memory:  &specs.LinuxMemory{Limit: ptr[int64](64 << 20), Swap: ptr[int64](64 << 20)},
				CPU:     &specs.LinuxCPU{Shares: ptr[uint64](1024), Quota: ptr[int64](50000), Period: ptr[uint64](100000)},
				Pids:    &specs.LinuxPids{Limit: ptr[int64](100)},
				Unified: map[string]string{"memory.oom.group": "1"},
			},
		},
	}
}

func copyOf(t testing.TB, s *specs.Spec) *specs.Spec {
	t.Helper()
	b, err := json.Marshal(s)
	out := &specs.Spec{}
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func convert(s *specs.Spec) (sandbox.ContainerConfig, error) {
	return containerOf("c1", "/root", "pod", s, &settings{HostProfiles: nodesettings.ProfilesRefuse})
}

func TestSpecIsConverted(t *testing.T) {
	t.Parallel()
	got, err := convert(baseSpec())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"argv", got.Process.Args, []string{"/bin/sh", "-c", "true"}},
		{"groups", got.Process.AdditionalGIDs, []uint32{2000}},
		{"cpu weight", got.Resources.CPUWeight, uint64(39)},
		{"memory", got.Resources.MemoryBytes, int64(64 << 20)},
		{"sys", got.Mounts[4], sandbox.ContainerMount{Type: "sysfs", Target: "/sys", ReadOnly: true, NoSuid: true, NoExec: true, NoDev: true}},
		{"dev", got.Mounts[1], sandbox.ContainerMount{Type: "tmpfs", Target: "/dev", NoSuid: true, Mode: 0o755, SizeBytes: 64 << 20}},
		{"bind", got.Mounts[6], sandbox.ContainerMount{Type: "bind", Source: "/etc", Target: "/etc", ReadOnly: true}},
		{"hostname", got.Hostname, "web"},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.what, c.got, c.want)
		}
	}
	s := baseSpec()
	s.Annotations = map[string]string{annotationSandbox: "p"}
	s.Mounts = []specs.Mount{{Destination: "/dev/shm", Type: "bind", Source: "/run/c/sandboxes/p/shm", Options: []string{"rbind", "ro"}}}
	if got, err := convert(s); err != nil || got.Mounts[0].Type != "tmpfs" || got.Mounts[0].Mode != 0o1777 {
		t.Errorf("the pod's shared memory: %+v, %v", got.Mounts, err)
	}
	s = baseSpec()
	s.Hostname = ""
	if got, err := convert(s); err != nil || got.Hostname != "pod" {
		t.Errorf("a container without a name of its own has %q (%v), want the pod's", got.Hostname, err)
	}
}

// TestRefusals: what can't be honoured is named. The twin of all is TestSpecIsConverted.
func TestRefusals(t *testing.T) {
	t.Parallel()
	without := func(kind specs.LinuxNamespaceType) func(*specs.Spec) {
		return func(s *specs.Spec) {
			s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
		}
	}
	option := func(o string) func(*specs.Spec) {
		return func(s *specs.Spec) { s.Mounts[6].Options = append(s.Mounts[6].Options, o) }
	}
	for _, c := range []struct {
		change func(*specs.Spec)
		want   string
	}{
		{without("network"), "hostNetwork"},
		{without("pid"), "hostPID"},
		{without("ipc"), "hostIPC"},
		{without("uts"), "host name"},
		{func(s *specs.Spec) { s.Linux.Namespaces[0].Path = "/proc/1/ns/pid" }, "shareProcessNamespace"},
		{func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: "user"})
		}, "hostUsers"},
		{func(s *specs.Spec) { s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/kvm"}} }, "/dev/kvm"},
		{func(s *specs.Spec) { s.Linux.Devices = make([]specs.LinuxDevice, 100) }, "and 97 more)"},
		{func(s *specs.Spec) {
			s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
		}, "privileged"},
		{func(s *specs.Spec) { s.Linux.Seccomp = &specs.LinuxSeccomp{} }, "seccomp"},
		{func(s *specs.Spec) { s.Process.ApparmorProfile = "cri" }, "AppArmor profile cri"},
		{func(s *specs.Spec) { s.Process.SelinuxLabel = "l" }, "SELinux"},
		{func(s *specs.Spec) { s.Mounts[6].Type, s.Mounts[6].Options = "nfs", nil }, "type nfs of the mount at /etc"},
		{func(s *specs.Spec) { s.Mounts[6].Source = "/not/there" }, "the source of the mount at /etc"},
		{option("rshared"), "option rshared of the mount at /etc"},
		{option("rslave"), "rslave"},
		{option("idmap"), "idmap"},
		{func(s *specs.Spec) { s.Linux.RootfsPropagation = "rshared" }, "rootfsPropagation rshared"},
		{func(s *specs.Spec) { s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/x"}}} }, "hooks"},
		{func(s *specs.Spec) { s.Linux.Resources.CPU.Cpus = "0-1" }, "cpuset"},
		{func(s *specs.Spec) {
			s.Linux.Resources.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 1}}
		}, "hugepage"},
		{func(s *specs.Spec) { s.Process.Args = nil }, "args"},
	} {
		s := copyOf(t, baseSpec())
		c.change(s)
		if _, err := convert(s); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "can't be honoured; ") {
			t.Errorf("want a refusal with %q and a remedy, got %v", c.want, err)
		}
	}
	s := baseSpec()
	s.Linux.Seccomp, s.Process.ApparmorProfile = &specs.LinuxSeccomp{}, "cri"
	if _, err := containerOf("c", "", "", s, &settings{HostProfiles: nodesettings.ProfilesDrop}); err != nil {
		t.Errorf("host_profiles = drop: %v", err)
	}
	s.Annotations = map[string]string{annotationType: typeSandbox}
	if _, err := convert(s); err != nil {
		t.Errorf("profiles of the pause container, which isn't run: %v", err)
	}
}

// withoutEffect are fields that change nothing for the container, and why.
var withoutEffect = map[string]string{
	"Version":                                   "of the spec's form",
	"Annotations":                               "of the pod's machine, by those who make it",
	"Root.Path":                                 "the bundle's own",
	"Linux.CgroupsPath":                         "the machine's on the node, where the first container of a pod boots it",
	"Linux.Namespaces[].Path":                   "refused for pid; the pod's otherwise",
	"Linux.Resources.Devices":                   "the guest's devices are its own",
	"Linux.Resources.Memory.Swap":               "the guest has no swap",
	"Linux.Seccomp":                             "refused whole",
	"Linux.Resources.Memory.UseHierarchy":       "control groups of version 2 have no other way",
	"Linux.Resources.Memory.CheckBeforeUpdate":  "an update below what is used makes the kernel take memory back",
	"Linux.Resources.HugepageLimits[].Pagesize": "without a limit",
	"Mounts[].Source":                           "of the kernel's file systems",
	"Process.ConsoleSize":                       "without a terminal",
	"Linux.Resources.CPU.Period":                "without a quota",
}

// TestEveryFieldIsHonouredOrRefused sets each field of a spec in turn, and those of later versions of it with them.
func TestEveryFieldIsHonouredOrRefused(t *testing.T) {
	t.Parallel()
	base, err := convert(baseSpec())
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	each(reflect.TypeFor[specs.Spec](), "", func(v reflect.Value) reflect.Value { return v }, func(path string, at func(reflect.Value) reflect.Value) {
		fields++
		s := copyOf(t, baseSpec())
		set(at(reflect.ValueOf(s).Elem()))
		got, err := convert(s)
		if err != nil || !reflect.DeepEqual(got, base) {
			return
		}
		for p := path; p != ""; p = p[:max(0, strings.LastIndexAny(p, ".["))] {
			if withoutEffect[p] != "" {
				return
			}
		}
		t.Errorf("%s is neither honoured nor refused", path)
	})
	if fields < 150 {
		t.Errorf("%d fields were looked at; a spec has more", fields)
	}
}

// each calls leaf for each field, with what finds it in a spec, and makes what is missing on the way.
func each(typ reflect.Type, path string, at func(reflect.Value) reflect.Value, leaf func(string, func(reflect.Value) reflect.Value)) {
	switch typ.Kind() {
	case reflect.Struct:
		for i := range typ.NumField() {
			each(typ.Field(i).Type, strings.TrimPrefix(path+"."+typ.Field(i).Name, "."), func(v reflect.Value) reflect.Value { return at(v).Field(i) }, leaf)
		}
	case reflect.Pointer:
		each(typ.Elem(), path, func(v reflect.Value) reflect.Value {
			p := at(v)
			if p.IsNil() {
				p.Set(reflect.New(typ.Elem()))
			}
			return p.Elem()
		}, leaf)
	case reflect.Slice:
		each(typ.Elem(), path+"[]", func(v reflect.Value) reflect.Value {
			l := at(v)
			l.Set(reflect.Append(l, reflect.Zero(typ.Elem())))
			return l.Index(l.Len() - 1)
		}, leaf)
	default:
		leaf(path, at)
	}
}

// set gives a field a value that it doesn't have.
func set(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Interface:
		v.Set(reflect.ValueOf("x"))
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf("x"), reflect.Zero(v.Type().Elem()))
		v.Set(m)
	default:
		switch {
		case v.CanInt():
			v.SetInt(v.Int() + 3)
		case v.CanUint():
			v.SetUint(v.Uint() + 3)
		case v.CanFloat():
			v.SetFloat(v.Float() + 3)
		default:
			panic(fmt.Sprintf("a field of the kind %v", v.Kind()))
		}
	}
}
