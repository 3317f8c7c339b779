//go:build linux

package workload

import (
	"strings"
	"testing"
)

// TestI12_WhatContainersCantHaveIsNamed: each error begins with the field.
func TestI12_WhatContainersCantHaveIsNamed(t *testing.T) {
	t.Parallel()
	most, least := int32(1001), int32(-1001)
	for want, change := range map[string]func(*ContainerSetup, *ContainerProcess){
		"process: ":         func(_ *ContainerSetup, p *ContainerProcess) { p.Env = []string{"no value"} },
		"cwd":               func(_ *ContainerSetup, p *ContainerProcess) { p.Cwd = "x" },
		"user":              func(_ *ContainerSetup, p *ContainerProcess) { p.GID = 1<<32 - 1 },
		"additional":        func(_ *ContainerSetup, p *ContainerProcess) { p.Groups = make([]uint32, maxGroups+1) },
		"rlimits: ":         func(_ *ContainerSetup, p *ContainerProcess) { p.Rlimits = []Rlimit{{"nofile", 2, 1}} },
		"oomScoreAdj":       func(_ *ContainerSetup, p *ContainerProcess) { p.OOMScoreAdj = &most },
		"oomScoreAdj -1001": func(_ *ContainerSetup, p *ContainerProcess) { p.OOMScoreAdj = &least },
		"user 4294967295:0": func(_ *ContainerSetup, p *ContainerProcess) { p.UID = 1<<32 - 1 },
		"sysctl \"vm.overcommit_memory\"": func(s *ContainerSetup, _ *ContainerProcess) {
			s.Sysctls = map[string]string{"vm.overcommit_memory": "1"}
		},
		"sysctl \"/net/x\" is no name":        func(s *ContainerSetup, _ *ContainerProcess) { s.Sysctls = map[string]string{"/net/x": "1"} },
		"capabilities: CAP_KILL is effective": func(_ *ContainerSetup, p *ContainerProcess) { p.Capabilities.Effective = 1 << 5 },
		"capabilities: CAP_KILL is ambient": func(_ *ContainerSetup, p *ContainerProcess) {
			p.Capabilities = CapabilitySets{Permitted: 1 << 5, Ambient: 1 << 5}
		},
		"mounts[0]: the type": func(s *ContainerSetup, _ *ContainerProcess) {
			s.Mounts = []ContainerMount{{Type: "ext4", Target: "/x"}}
		},
		"mounts[0]: the target": func(s *ContainerSetup, _ *ContainerProcess) {
			s.Mounts = []ContainerMount{{Type: "tmpfs", Target: "/a/.."}}
		},
		"mounts[1]: devpts": func(s *ContainerSetup, _ *ContainerProcess) {
			s.Mounts = []ContainerMount{{Type: "proc", Target: "/proc"}, {Type: "devpts", Target: "/x"}}
		},
		"maskedPaths":             func(s *ContainerSetup, _ *ContainerProcess) { s.MaskedPaths = []string{"x"} },
		"readonlyPaths":           func(s *ContainerSetup, _ *ContainerProcess) { s.ReadOnlyPaths = []string{"/x\x00"} },
		"sysctl \"kernel.panic\"": func(s *ContainerSetup, _ *ContainerProcess) { s.Sysctls = map[string]string{"kernel.panic": "1"} },
		"sysctl \"net/../kernel/panic\" is no name": func(s *ContainerSetup, _ *ContainerProcess) {
			s.Sysctls = map[string]string{"net/../kernel/panic": "1"}
		},
		"hostname": func(s *ContainerSetup, _ *ContainerProcess) { s.Hostname = strings.Repeat("x", 65) },
	} {
		s, p := &ContainerSetup{}, &ContainerProcess{Args: []string{"true"}}
		if s.Check() != nil || p.Check() != nil {
			t.Fatal("what a container needs is refused")
		}
		change(s, p)
		err := p.Check()
		if err == nil {
			err = s.Check()
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for name, want := range map[string]string{"kernel.shmmax": "kernel/shmmax", "net/ipv4/conf/eth0.1/x": "net/ipv4/conf/eth0.1/x", "fs.mqueue.msg_max": "fs/mqueue/msg_max"} {
		if got, err := sysctlPath(name); got != want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if set, err := CapabilitySet([]string{"CAP_CHOWN", "CAP_CHECKPOINT_RESTORE"}); set != 1|1<<40 || err != nil {
		t.Errorf("%x, %v", set, err)
	}
	for _, bad := range []string{"chown", "CAP_ALL", "CAP_", ""} {
		if _, err := CapabilitySet([]string{bad}); err == nil {
			t.Errorf("%q is a capability", bad)
		}
	}
	for name, ok := range map[string]bool{"memory.high": true, "cpuset.cpus": true, "cgroup.procs": false, "../memory.max": false, "memory./../cgroup.procs": false, "": false} {
		if (CheckLimit(name) == nil) != ok {
			t.Errorf("%q: %v", name, CheckLimit(name))
		}
	}
}
