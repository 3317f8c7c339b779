package vm

import (
	"context"
	"io"
	"net"
	"os"
	"time"
)

// AgentPort is the name of the virtio-console port that carries the agent's
// byte stream. The guest finds it under /sys/class/virtio-ports/*/name.
const AgentPort = "msb.agent"

// DirectoryPort is the name of the port that carries the FUSE messages of the
// host's directories. They don't go through the agent's gRPC, which was most of
// their cost.
const DirectoryPort = "msb.directories"

// Spec describes one machine.
type Spec struct {
	// CPUs is the number of virtual CPUs, 1 to MaxCPUs.
	CPUs int
	// MemoryMiB is the guest's memory in MiB, MinMemoryMiB to MaxMemoryMiB.
	MemoryMiB int
	// Disks appear in the guest as vda, vdb, … in this order. The first is the
	// agent's root: ext4, mounted read-only at /, with the agent at /init.
	Disks []Disk
	// Cmdline is appended to the kernel's command line. Each entry is one
	// argument without spaces or quotes.
	Cmdline []string
	// Net is the machine's only network device. Nil means that there is none
	// of any kind: no NIC, no vsock, no socket pass-through.
	Net *Net
	// Warm says that the guest's first process may be one of many copies: it
	// writes to its port that it is ready, and until the host answers it has
	// made no key, identity or connection and looked at no disk but the first.
	// A backend may then start it from a saved state; see Machine.Restored.
	Warm bool
	// CallersGroup keeps the VMM in its caller's control group, whose limits and accounts are to hold for it. Otherwise it gets
	// one of its own where that can be, with limits, which may be outside of the caller's.
	CallersGroup bool
	// Saves has the backend keep what it takes to save the machine while it runs, if it can: see Saver.
	Saves bool
	// Resume is what a Saver wrote, to go on from instead of a boot. The other fields are the same then as those of the
	// machine that was saved. A backend that can't returns ErrNotResumed.
	Resume *Resume
	// Held are files that the VMM only keeps open until it ends, such as locks. Start takes them over.
	Held []*os.File
	// ConsoleLog is the path of the file that receives the guest's console. It
	// is bounded: see ConsoleLogMax. Empty keeps the tail in memory only.
	ConsoleLog string
}

// Disk is one raw disk image. Other formats do not exist here: a qcow2 header
// that a guest can write names host files to read.
type Disk struct {
	// Path is the image on the host.
	Path string
	// ReadOnly makes the device refuse writes, on the host's side.
	ReadOnly bool
	// ID names the disk in errors: up to 20 bytes of [A-Za-z0-9._-], unique in
	// the Spec. The guest must go by the order of the disks: QEMU shows the ID
	// as /sys/block/vdX/serial, libkrun 1.17 shows numbers of its own there.
	ID string
}

// Net is the machine's network device.
type Net struct {
	// FD is one end of a SOCK_STREAM socket pair that carries frames, each
	// after its length in 4 bytes, big-endian. Backend.Start takes it over: it
	// is closed in this process when Start returns, error or not.
	FD *os.File
	// MAC is the address of the guest's end.
	MAC net.HardwareAddr
}

// Backend starts machines.
type Backend interface {
	// Name is what the user writes after --vm.
	Name() string
	// Probe looks at the host and changes nothing but its cache.
	Probe(ctx context.Context) Report
	// Start returns once the VMM process runs under its confinement, which is
	// well before the guest is ready. Its errors wrap the sentinels of this
	// package. The context bounds the start alone, not the machine's life.
	Start(ctx context.Context, spec Spec) (Machine, error)
}

// Machine is a started guest. All methods may be called at any time, also
// after the machine is gone, and by several goroutines.
type Machine interface {
	// Agent is the host's end of the port AgentPort; always the same value.
	// Reading gives io.EOF when the VMM is gone. Writes block until the guest
	// reads.
	Agent() Conn
	// Directories is the host's end of the port DirectoryPort, as Agent is of the agent's.
	Directories() Conn
	// PID is the VMM's process id as this process sees it.
	PID() int
	// Wait waits until the machine is gone and everything it used is released.
	// Nil means an orderly end by the guest; else an error that wraps
	// ErrGuestPanic, ErrGuestOutOfMemory, ErrKilled or ErrVMM and ends in the
	// console's tail. It returns the context's error when that comes first.
	Wait(ctx context.Context) error
	// Pause stops the VMM, and with it the guest, until Resume. Only Kill ends a paused machine.
	Pause() error
	Resume() error
	// Kill ends the machine at once and waits for it.
	Kill() error
	// ConsoleTail returns at most the last n bytes of the guest's console.
	ConsoleTail(n int) string
	// Confinement lists what the VMM process is confined by, for people.
	Confinement() []string
	// Restored tells whether the guest is a copy of a saved one (Spec.Warm).
	// Its randomness and its clock are then those of other guests, and its
	// network device has another MAC address than the Spec says.
	Restored() bool
	// Done is closed when Wait would return at once.
	Done() <-chan struct{}
}

// Conn is the agent's byte stream. A read or a write can be given up by a
// deadline, as with a net.Conn.
type Conn interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
}

// Report is what a Probe found.
type Report struct {
	// Usable is true when Start can be expected to work.
	Usable bool
	// Note says in a few words how machines would run ("libkrun 1.17.4 on
	// KVM"), or why they would not.
	Note string
	// Checks are the single findings, in the order to show them.
	Checks []Check
}

// Check is one finding about the host: a line of `msb doctor`.
type Check struct {
	// Name is a short, stable name: "kvm", "libkrun", "qemu".
	Name string
	// OK is false when something is missing; Required tells whether that keeps
	// the backend from running.
	OK, Required bool
	// Detail is what was found; Remedy is what to do about it, empty when OK.
	Detail, Remedy string
	// Err is the sentinel behind a finding that is not OK, if it has one.
	Err error
}
