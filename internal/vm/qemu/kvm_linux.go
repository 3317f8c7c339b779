package qemu

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
)

// The calls of linux/kvm.h for what KVM gives its guests of the processor.
const (
	kvmGetSupportedCPUID = 0xc008ae05 // _IOWR(0xae, 0x05, struct kvm_cpuid2)
	kvmGetFeatureIndexes = 0xc004ae0a // _IOWR(0xae, 0x0a, struct kvm_msr_list)
	kvmGetRegisters      = 0xc008ae88 // _IOWR(0xae, 0x88, struct kvm_msrs)
)

// What is read at most: the kernel has some 100 leaves and 50 registers, and fails where there are more.
const (
	maxLeaves    = 256
	maxRegisters = 256
)

// cpuidLeaf is struct kvm_cpuid_entry2 of linux/kvm.h.
type cpuidLeaf struct {
	Function, Index, Flags, EAX, EBX, ECX, EDX uint32
	Padding                                    [3]uint32
}

// featureRegister is struct kvm_msr_entry of linux/kvm.h.
type featureRegister struct {
	Index, Reserved uint32
	Value           uint64
}

// kvmFeatures asks KVM for what CPUID answers in a guest, and for the registers that tell it more: defences that the
// processor needs or has, its microcode, how it nests guests.
func kvmFeatures() ([]cpuidLeaf, []featureRegister, error) {
	f, err := os.OpenFile(vm.KVMDevice, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	var id struct { // struct kvm_cpuid2
		count, _ uint32
		leaves   [maxLeaves]cpuidLeaf
	}
	id.count = maxLeaves
	if _, err := ioctl(f, kvmGetSupportedCPUID, unsafe.Pointer(&id)); err != nil {
		return nil, nil, fmt.Errorf("CPUID: %w", err)
	}
	var list struct { // struct kvm_msr_list
		count   uint32
		indexes [maxRegisters]uint32
	}
	list.count = maxRegisters
	if _, err := ioctl(f, kvmGetFeatureIndexes, unsafe.Pointer(&list)); err != nil {
		return nil, nil, fmt.Errorf("list of registers: %w", err)
	}
	var all struct { // struct kvm_msrs
		count, _  uint32
		registers [maxRegisters]featureRegister
	}
	all.count = list.count
	for i, index := range list.indexes {
		all.registers[i].Index = index
	}
	read, err := ioctl(f, kvmGetRegisters, unsafe.Pointer(&all))
	if err != nil {
		return nil, nil, fmt.Errorf("registers: %w", err)
	}
	if read != int(all.count) { // it stops at the first that it can't read
		return nil, nil, fmt.Errorf("register %#x can't be read", all.registers[read].Index)
	}
	return id.leaves[:id.count], all.registers[:read], nil
}

func ioctl(f *os.File, request uintptr, argument unsafe.Pointer) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(argument))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
