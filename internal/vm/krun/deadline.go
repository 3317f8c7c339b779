//go:build linux && cgo && amd64

package krun

/*
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

// Bit 24 of ECX of CPUID's leaf 1: the APIC's timer can be set to a value of the TSC.
static const uint32_t tsc_deadline = 1 << 24;

static bool has_deadline;

// ioctl stands before C's own for the libraries of this process. libkrun up to 1.17.4 hides this timer from guests on AMD's
// CPUs, although KVM gives it to every guest: they measure the APIC's other timer at each boot then, which takes 0.2 s
// (libkrun/libkrun#741).
int ioctl(int fd, unsigned long request, ...) {
	va_list arguments;
	va_start(arguments, request);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	if (request == KVM_CREATE_VM)
		has_deadline = syscall(SYS_ioctl, fd, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) == 1;
	if (request == KVM_SET_CPUID2 && has_deadline) {
		struct kvm_cpuid2 *id = argument;
		for (uint32_t i = 0; i < id->nent; i++)
			if (id->entries[i].function == 1) id->entries[i].ecx |= tsc_deadline;
	}
	return syscall(SYS_ioctl, fd, request, argument);
}
*/
import "C"
