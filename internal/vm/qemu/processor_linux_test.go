package qemu

import (
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// cpuinfo is of a host with two processors.
const cpuinfo = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon\nstepping\t: 8\nmicrocode\t: 0x2b\n" +
	"cpu MHz\t\t: 2000.000\nflags\t\t: fpu vmx\nvmx flags\t: ept\nbugs\t\t: spectre_v1\nbogomips\t: 4000\n\nprocessor\t: 1\nmodel name\t: other\nflags\t\t: fpu\n"

// TestI18_ProcessorsAreToldApart changes one thing of what a guest sees at a time: a copy of a saved machine whose processor
// has another name is not made.
func TestI18_ProcessorsAreToldApart(t *testing.T) {
	t.Parallel()
	leaves := func() []cpuidLeaf {
		return []cpuidLeaf{
			{Function: 0x1, EAX: 0x806f8, EBX: 0x1000800, ECX: 5, EDX: 6},
			{Function: 0x4, EAX: 7},
			{Function: 0x7, Flags: 1, EBX: 8},
			{Function: 0xb, EDX: 1},
			{Function: 0xd, EAX: 7, EBX: 988, ECX: 988},
			{Function: 0x80000001, ECX: 4},
			{Function: 0x8000001e, EAX: 1},
		}
	}
	registers := func() []featureRegister { return []featureRegister{{Index: 0x8b, Value: 9}, {Index: 0x10a, Value: 1}} }
	name := func(text, kernel string, l []cpuidLeaf, r []featureRegister) string {
		model, lines, err := firstProcessor(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return processorName(model, lines+kernel, l, r)
	}
	is := name(cpuinfo, "6.1", leaves(), registers())
	if !strings.HasPrefix(is, "the host's, Xeon, ") {
		t.Errorf("it is named %q", is)
	}
	leaf := func(function uint32, change func(*cpuidLeaf)) []cpuidLeaf {
		list := leaves()
		change(&list[slices.IndexFunc(list, func(l cpuidLeaf) bool { return l.Function == function })])
		return list
	}
	for _, tt := range []struct {
		what string
		got  string
		same bool
	}{
		{"nothing", name(cpuinfo, "6.1", leaves(), registers()), true},
		{"the CPU that is asked", name(cpuinfo, "6.1", leaf(0x1, func(l *cpuidLeaf) { l.EBX = 0x3000800 }), registers()), true},
		{"its number", name(cpuinfo, "6.1", leaf(0xb, func(l *cpuidLeaf) { l.EDX = 3 }), registers()), true},
		{"its number, AMD's", name(cpuinfo, "6.1", leaf(0x8000001e, func(l *cpuidLeaf) { l.EAX = 3 }), registers()), true},
		{"its caches", name(cpuinfo, "6.1", leaf(0x4, func(l *cpuidLeaf) { l.EAX = 8 }), registers()), true},
		{"what the asking thread uses", name(cpuinfo, "6.1", leaf(0xd, func(l *cpuidLeaf) { l.EBX = 832 }), registers()), true},
		{"its momentary frequency", name(strings.Replace(cpuinfo, "2000.000", "800.000", 1), "6.1", leaves(), registers()), true},
		{"a second processor", name(strings.Replace(cpuinfo, ": other", ": third", 1), "6.1", leaves(), registers()), true},
		{"a feature of leaf 1", name(cpuinfo, "6.1", leaf(0x1, func(l *cpuidLeaf) { l.ECX = 4 }), registers()), false},
		{"a feature of leaf 7", name(cpuinfo, "6.1", leaf(0x7, func(l *cpuidLeaf) { l.EBX = 9 }), registers()), false},
		{"the states to be saved", name(cpuinfo, "6.1", leaf(0xd, func(l *cpuidLeaf) { l.EAX = 3 }), registers()), false},
		{"nesting", name(cpuinfo, "6.1", leaf(0x80000001, func(l *cpuidLeaf) { l.ECX = 0 }), registers()), false},
		{"a leaf less", name(cpuinfo, "6.1", leaves()[:6], registers()), true},
		{"two leaves less", name(cpuinfo, "6.1", leaves()[:5], registers()), false},
		{"a register", name(cpuinfo, "6.1", leaves(), []featureRegister{{Index: 0x8b, Value: 9}, {Index: 0x10a, Value: 3}}), false},
		{"a register less", name(cpuinfo, "6.1", leaves(), registers()[:1]), false},
		{"microcode", name(strings.Replace(cpuinfo, "0x2b", "0x2c", 1), "6.1", leaves(), registers()), false},
		{"the model's name", name(strings.Replace(cpuinfo, "Xeon", "Xeon 2", 1), "6.1", leaves(), registers()), false},
		{"the model", name(strings.Replace(cpuinfo, ": 143", ": 144", 1), "6.1", leaves(), registers()), false},
		{"a flag of the host's", name(strings.Replace(cpuinfo, "fpu vmx", "fpu", 1), "6.1", leaves(), registers()), false},
		{"the host's kernel", name(cpuinfo, "6.2", leaves(), registers()), false},
	} {
		if (tt.got == is) != tt.same {
			t.Errorf("with %s changed, the same name: %t", tt.what, !tt.same)
		}
	}
}

// TestProcessorsAreNamedAlikeOnAllCPUs: which CPU the question is asked on must not decide.
func TestProcessorsAreNamedAlikeOnAllCPUs(t *testing.T) {
	var all unix.CPUSet
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			t.Error(err)
		}
	}()
	first := ""
	for cpu := range 64 {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Fatal(err)
		}
		name, err := kvmProcessor()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = name
		}
		if name != first {
			t.Errorf("on CPU %d it is %q, before it was %q", cpu, name, first)
		}
	}
	t.Log(first)
}
