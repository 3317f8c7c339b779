//go:build linux

package agentd

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// groupOfFiles is a container's group whose files are ordinary ones.
func groupOfFiles(t *testing.T) (g *workload.Cgroup, read func() map[string]string) {
	t.Helper()
	top := t.TempDir()
	all, err := workload.NewCgroups(top, workload.Limits{})
	must(t, err)
	g, err = all.NewNamed("container-1")
	must(t, err)
	return g, func() map[string]string {
		files := map[string]string{}
		paths, _ := filepath.Glob(filepath.Join(top, "msb/container-1/*"))
		for _, p := range paths {
			b, err := os.ReadFile(p)
			must(t, err)
			files[filepath.Base(p)] = string(b)
			_ = os.Remove(p)
		}
		return files
	}
}

// TestLimitsAreWrittenAsAsked: what is not asked for stays as it is.
func TestLimitsAreWrittenAsAsked(t *testing.T) {
	g, read := groupOfFiles(t)
	for name, c := range map[string]struct {
		limits *agentpb.ContainerLimits
		want   map[string]string
	}{
		"none":                  {nil, map[string]string{}},
		"memory":                {&agentpb.ContainerLimits{MemoryBytes: 1 << 33}, map[string]string{"memory.max": "8589934592"}},
		"no memory limit":       {&agentpb.ContainerLimits{MemoryBytes: -1}, map[string]string{"memory.max": "max"}},
		"weight":                {&agentpb.ContainerLimits{CpuWeight: 79}, map[string]string{"cpu.weight": "79"}},
		"quota":                 {&agentpb.ContainerLimits{CpuQuotaUs: 25000}, map[string]string{"cpu.max": "25000 100000"}},
		"quota, period":         {&agentpb.ContainerLimits{CpuQuotaUs: 5, CpuPeriodUs: 50000}, map[string]string{"cpu.max": "5 50000"}},
		"no quota":              {&agentpb.ContainerLimits{CpuQuotaUs: -1}, map[string]string{"cpu.max": "max 100000"}},
		"period":                {&agentpb.ContainerLimits{CpuPeriodUs: 7000}, map[string]string{"cpu.max": "max 7000"}},
		"processes":             {&agentpb.ContainerLimits{Pids: 12}, map[string]string{"pids.max": "12"}},
		"no bound of processes": {&agentpb.ContainerLimits{Pids: -1}, map[string]string{}},
		"others":                {&agentpb.ContainerLimits{Unified: map[string]string{"memory.high": "77", "io.weight": "5"}}, map[string]string{"memory.high": "77", "io.weight": "5"}},
		"one that says more":    {&agentpb.ContainerLimits{MemoryBytes: 5, Unified: map[string]string{"memory.max": "9"}}, map[string]string{"memory.max": "5"}},
	} {
		if err := setLimits(g, c.limits); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := read(); !maps.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for _, name := range []string{"cgroup.procs", "../memory.max", "cgroup.kill", "cgroup.subtree_control"} {
		err := setLimits(g, &agentpb.ContainerLimits{MemoryBytes: 5, Unified: map[string]string{name: "1"}})
		if got := read(); err == nil || !strings.Contains(err.Error(), name) || len(got) > 0 {
			t.Errorf("%s: %v, and written: %q", name, err, got)
		}
	}
	if err := limitContainer(g, &agentpb.ContainerLimits{Pids: 3}); err != nil {
		t.Error(err)
	}
	if got, want := read(), (map[string]string{"cgroup.max.depth": "16", "cgroup.max.descendants": "1024", "pids.max": "3"}); !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestI12_RequestsForContainersAreChecked: each error names the field, and what is at the bound is taken.
func TestI12_RequestsForContainersAreChecked(t *testing.T) {
	t.Parallel()
	dir := &agentpb.HostDirectory{Number: 1}
	good := func() *agentpb.CreateContainerRequest {
		return &agentpb.CreateContainerRequest{Id: "a", Root: dir, Process: &agentpb.ContainerProcess{Args: []string{"true"}}}
	}
	many := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("/", i))
		}
		return all
	}
	table := func(n int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprint("net.", i)] = ""
		}
		return all
	}
	mounts := func(all ...*agentpb.ContainerMount) func(*agentpb.CreateContainerRequest) {
		return func(r *agentpb.CreateContainerRequest) { r.Mounts = all }
	}
	tmpfs := func(change func(*agentpb.ContainerMount)) func(*agentpb.CreateContainerRequest) {
		m := &agentpb.ContainerMount{Type: "tmpfs", Target: "/x", Shared: "s"}
		change(m)
		return mounts(m)
	}
	several := func(n int) (all []*agentpb.ContainerMount) {
		for range n {
			all = append(all, &agentpb.ContainerMount{Type: "tmpfs", Target: "/x"})
		}
		return all
	}
	type request = *agentpb.CreateContainerRequest
	type mount = *agentpb.ContainerMount
	for i, c := range []struct {
		want   string // "" for none
		change func(request)
	}{
		{"", func(request) {}},
		{"", func(r request) { r.MaskedPaths, r.ReadOnlyPaths, r.Sysctls = many(256), many(256), table(256) }},
		{"maskedPaths", func(r request) { r.MaskedPaths = many(257) }},
		{"readonlyPaths", func(r request) { r.ReadOnlyPaths = many(257) }},
		{"sysctls", func(r request) { r.Sysctls = table(257) }},
		{"resources", func(r request) { r.Limits = &agentpb.ContainerLimits{Unified: table(257)} }},
		{"", mounts(several(64)...)},
		{"mounts: 65", mounts(several(65)...)},
		{"root", func(r request) { r.Root = nil }},
		{"root", func(r request) { r.Root = &agentpb.HostDirectory{Number: 1, File: true} }},
		{"process", func(r request) { r.Process = nil }},
		{"process", func(r request) { r.Process.Args = nil }},
		{"capabilities", func(r request) { r.Process.Capabilities = &agentpb.Capabilities{Ambient: []string{"CAP_X"}} }},
		{"capabilities", func(r request) { r.Process.Capabilities = &agentpb.Capabilities{Bounding: []string{"CAP_X"}} }},
		{"mounts[0]: a source", mounts(&agentpb.ContainerMount{Type: "bind", Target: "/x"})},
		{"mounts[0]: a source", mounts(&agentpb.ContainerMount{Type: "tmpfs", Target: "/x", Source: dir})},
		{"mounts[0]: size", mounts(&agentpb.ContainerMount{Type: "proc", Target: "/x", SizeBytes: 1})},
		{"mounts[0]: size", mounts(&agentpb.ContainerMount{Type: "bind", Source: dir, Target: "/x", Mode: 1})},
		{"mounts[0]: size", mounts(&agentpb.ContainerMount{Type: "tmpfs", Target: "/x", SizeBytes: -1})},
		{"mounts[0]: owner", mounts(&agentpb.ContainerMount{Type: "tmpfs", Target: "/x", Uid: 1})},
		{"mounts[0]: owner", mounts(&agentpb.ContainerMount{Type: "tmpfs", Target: "/x", Gid: 1})},
		{"mounts[0]: owner", mounts(&agentpb.ContainerMount{Type: "tmpfs", Target: "/x", SubPath: "a"})},
		{"mounts[0]: containers share", mounts(&agentpb.ContainerMount{Type: "proc", Target: "/x", Shared: "s"})},
		{"mounts[0]: the target", mounts(&agentpb.ContainerMount{Type: "tmpfs", Target: "x"})},
		{"mounts[0]: the target", mounts(&agentpb.ContainerMount{Type: "tmpfs", Target: "/a/../"})},
		{"mounts[0]: the target", mounts(&agentpb.ContainerMount{Type: "tmpfs", Target: "/a\x00"})},
		{"", tmpfs(func(m mount) { m.SubPath, m.Uid, m.Gid = "a/../b", 1, 2 })},
		{"mounts[0]: the sub path", tmpfs(func(m mount) { m.SubPath = "../s2" })},
		{"mounts[0]: the sub path", tmpfs(func(m mount) { m.SubPath = "a/../../b" })},
		{"mounts[0]: the sub path", tmpfs(func(m mount) { m.SubPath = "/etc" })},
		{"mounts[0]: shared tmpfs", tmpfs(func(m mount) { m.Shared = "../host/1" })},
		{"mounts[0]: shared tmpfs", tmpfs(func(m mount) { m.Shared = ".." })},
		{"hostname", func(r request) { r.Hostname = strings.Repeat("h", 65) }},
		{"", func(r request) { r.Hostname = strings.Repeat("h", 64) }},
	} {
		r := good()
		c.change(r)
		_, _, err := parseContainer(r)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%d: %v, want %q", i, err, c.want)
		}
	}
	for i, m := range []*agentpb.ContainerMount{{}, {ReadOnly: true}, {NoSuid: true}, {NoExec: true}, {NoDev: true}} {
		m.Type, m.Target, m.SizeBytes, m.Mode = "tmpfs", "/x", 5, 6
		r := good()
		r.Mounts = []*agentpb.ContainerMount{m}
		s, _, err := parseContainer(r)
		must(t, err)
		want := unix.MOUNT_ATTR_NODEV | []int{0, unix.MOUNT_ATTR_RDONLY, unix.MOUNT_ATTR_NOSUID, unix.MOUNT_ATTR_NOEXEC, 0}[i]
		if got := s.Mounts[0]; got.Attributes != want || got.Size != 5 || got.Mode != 6 || got.Target != "/x" {
			t.Errorf("%v: %+v", m, got)
		}
	}
}

// TestEventsReachAllWhoWatch: one that doesn't read misses some and holds up nobody.
func TestEventsReachAllWhoWatch(t *testing.T) {
	s := &containerServer{watchers: map[chan *agentpb.ContainerEvent]struct{}{}}
	reads, full := make(chan *agentpb.ContainerEvent, 2), make(chan *agentpb.ContainerEvent)
	s.watchers[reads], s.watchers[full] = struct{}{}, struct{}{}
	s.tell(&agentpb.ContainerEvent{Container: "a", OomKills: 1})
	if e := <-reads; e.GetContainer() != "a" || e.GetOomKills() != 1 {
		t.Errorf("%v", e)
	}
}
