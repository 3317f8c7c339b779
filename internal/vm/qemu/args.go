package qemu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
)

// fds are the descriptors that QEMU inherits; 0 is one that there is not. The
// last three are of machines that are saved or restored; memory is only of those
// that many copies are made of.
type fds struct{ agent, console, dirs, net, memory, monitor, state int }

// args builds QEMU's command line. The Spec was validated: no value in it can
// hold a character of QEMU's option syntax, except paths; see escape.
func args(binary, kernel, cmdline string, spec *vm.Spec, accel accel, fd fds) []string {
	argv := []string{
		binary,
		// auto-kernel-cmdline appends the virtio-mmio devices; acpi=off makes
		// it do so. The pit, pic and rtc stay on: without them the boot hangs
		// under emulation.
		"-M", "microvm,acpi=off,isa-serial=off,auto-kernel-cmdline=on" + memoryBackend(fd),
	}
	argv = append(argv, accel.options()...)
	argv = append(argv, savingOptions(spec, fd)...)
	argv = append(argv,
		"-smp", fmt.Sprint(spec.CPUs), "-m", fmt.Sprintf("%dM", spec.MemoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-device", "virtio-serial-device,max_ports=4",
		"-chardev", fmt.Sprintf("socket,id=console,fd=%d", fd.console), "-device", "virtconsole,chardev=console",
		"-chardev", fmt.Sprintf("socket,id=agent,fd=%d", fd.agent), "-device", "virtserialport,chardev=agent,name="+vm.AgentPort,
		"-chardev", fmt.Sprintf("socket,id=dirs,fd=%d", fd.dirs), "-device", "virtserialport,chardev=dirs,name="+vm.DirectoryPort,
	)
	if fd.state == 0 { // the kernel of a saved machine is in its memory
		argv = append(argv, "-kernel", kernel, "-append", cmdline+accel.kernelArguments())
	}
	argv = append(argv, disks(spec.Disks)...)
	return append(argv, network(spec.Net, fd.net)...)
}

// memoryBackend makes the machine take its memory from the object of savingOptions:
// a saved state has the object's name in it.
func memoryBackend(fd fds) string {
	if fd.monitor == 0 {
		return ""
	}
	return ",memory-backend=ram"
}

// savingOptions are those of a machine that can be saved, or that is loaded. Its
// memory may be a file of ours: without a state to load it writes to that.
func savingOptions(spec *vm.Spec, fd fds) []string {
	if fd.monitor == 0 {
		return nil
	}
	share := "on"
	var incoming []string
	if fd.state != 0 {
		share, incoming = "off", []string{"-incoming", "defer"}
	}
	memory := fmt.Sprintf("memory-backend-ram,id=ram,size=%dM", spec.MemoryMiB)
	if fd.memory != 0 {
		memory = fmt.Sprintf("memory-backend-file,id=ram,size=%dM,share=%s,mem-path=%s/%d", spec.MemoryMiB, share, runner.Descriptors, fd.memory)
	}
	return slices.Concat(incoming, []string{
		"-object", memory,
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", fd.monitor), "-mon", "chardev=monitor,mode=control",
	})
}

// accel is how the guest's instructions are run.
type accel int

const (
	// onKVM runs them on the CPU.
	onKVM accel = iota
	// emulated translates them, in a host thread for each virtual CPU.
	emulated
	// emulatedInTurn translates them in one host thread for all CPUs, on a
	// clock that counts instructions (4 ns each, 2 to the power of the shift),
	// and follows the real one while all CPUs are idle: a clock that skipped
	// idleness (sleep=off) would run hours ahead while QEMU waits for the disk,
	// through every timeout in the guest. See Config.NestedVirtualisation.
	emulatedInTurn
)

func (a accel) options() []string {
	// Without ERMS kernels copy by words: emulation does each byte of a "rep
	// movsb" by itself, three times slower or more, and counts it as one more
	// instruction.
	switch a {
	case onKVM:
		return []string{"-accel", "kvm", "-cpu", "host"}
	case emulatedInTurn:
		return []string{"-accel", "tcg,thread=single", "-cpu", "max,erms=off", "-icount", "shift=2,sleep=on"}
	case emulated:
	}
	// The guest's kernel spends a tenth of its boot on setting up
	// virtualisation that it can't use.
	return []string{"-accel", "tcg,thread=multi", "-cpu", "max,svm=off,vmx=off,erms=off"}
}

// kernelArguments are what the guest's kernel gets beside the Spec's.
func (a accel) kernelArguments() string {
	if a == onKVM && !vm.Emulated() {
		return ""
	}
	return vm.NoCMPXCHG16B
}

// disks lists the disks in order: QEMU gives the guest's kernel virtio-mmio
// devices on its command line in the order of their creation.
func disks(list []vm.Disk) []string {
	argv := make([]string, 0, 4*len(list))
	for i, d := range list {
		// What the guest frees or fills with zeroes becomes a hole in the host's file.
		options := "readonly=off,discard=unmap,detect-zeroes=unmap"
		if d.ReadOnly {
			// Many machines have it open. QEMU takes locks of it otherwise, and whoever breaks out of one could take some
			// that keep all others from starting.
			options = "readonly=on,file.locking=off"
		}
		argv = append(argv,
			"-drive", fmt.Sprintf("id=d%d,if=none,format=raw,%s,file=%s", i, options, escape(d.Path)),
			// By default QEMU stops the machine when the host's disk is full, until somebody resumes it.
			"-device", fmt.Sprintf("virtio-blk-device,drive=d%d,serial=%s,werror=report,rerror=report", i, d.ID))
	}
	return argv
}

func network(n *vm.Net, fd int) []string {
	if n == nil {
		return []string{"-nic", "none"}
	}
	return []string{
		"-netdev", fmt.Sprintf("stream,id=n,addr.type=fd,addr.str=%d", fd),
		// The same features as libkrun with features 0: the guest checksums
		// and segments itself, so that every frame on the link is a whole one.
		"-device", fmt.Sprintf("virtio-net-device,netdev=n,mac=%s,csum=off,guest_csum=off,gso=off,"+
			"guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off", n.MAC),
	}
}

// escape doubles commas, which end a value in QEMU's option syntax.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }
