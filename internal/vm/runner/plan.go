package runner

// Verb is the hidden first argument under which msb becomes a VMM.
const Verb = "__vmm"

// Descriptors that the VMM process inherits, by number. Those that the caller
// adds follow in the order of Launch.Files.
const (
	planFD     = 3
	statusFD   = 4
	livenessFD = 5
	// FirstFileFD is the number of the first of Launch.Files.
	FirstFileFD = 6
)

// ThisProgram leads to the file that this process was executed from, also when
// that has been removed or another build has been renamed over it.
const ThisProgram = "/proc/self/exe"

// Descriptors is where a program finds its own open descriptors, by number, if
// its plan says so.
const Descriptors = "/proc/self/fd"

// maxPlanBytes bounds the plan. It must fit a pipe's buffer (64 KiB on Linux),
// for it is written before anyone reads.
const maxPlanBytes = 48 << 10

// Plan says what the VMM process executes and which files remain visible.
// It holds no secret: whoever breaks out of the VMM can read it.
type Plan struct {
	// Argv is the program and its arguments; Argv[0] is an absolute path.
	Argv []string
	// Itself executes the runner's own program instead of the file of Argv[0],
	// where an upgrade may have put another build. The libraries that it and
	// Loads need are added to ReadOnly.
	Itself bool
	// Loads are what the runner's own program loads, at run time.
	Loads []string `json:"-"`
	// Env is the program's whole environment.
	Env []string
	// ReadOnly are files and directories that may be read and executed from.
	// Missing ones are left out: they differ from one distribution to another.
	ReadOnly []string
	// ReadWrite are files that may be written too.
	ReadWrite []string
	// Devices are device nodes that may be opened and controlled.
	Devices []string
	// Descriptors makes the program's own descriptors appear under the directory
	// of that name, for what it opens by path alone. There is nothing else of
	// /proc, and what they lead to is held to the other grants.
	Descriptors bool
	// Handover keeps the status and liveness pipes open in the program, which
	// must call Handover.Ready once it has nothing left to report.
	Handover bool

	// VMM chooses the list of system calls.
	VMM VMM
	// MaxFile is the size in bytes that no file may grow over: the largest
	// disk's.
	MaxFile int64
	// Recording and RecordAll are set by Launch: seccomp refuses nothing and
	// reports what it would have, or every call.
	Recording, RecordAll bool

	// Files is how many descriptors from FirstFileFD up are the program's own;
	// set by Launch. Every other one is closed.
	Files int
	// Namespaces is set by Launch: with them first, without them if the host
	// forbids them.
	Namespaces bool

	// program is the descriptor of the runner's own program, if Itself is set.
	program int
}

// VMM is a kind of VMM, by what it needs. Zero stands for both.
type VMM uint8

// The two VMMs.
const (
	QEMU VMM = 1 << iota
	Libkrun
)

// status is one line that the runner reports to its supervisor.
type status struct {
	// Confinement lists what is in force, for people.
	Confinement []string `json:",omitempty"`
	// Listener is the number of the filter's listener in a recording.
	Listener int `json:",omitempty"`
	// Error is what went wrong; empty when the program is about to run.
	Error string `json:",omitempty"`
	// Code names the sentinel behind Error, see codes.
	Code string `json:",omitempty"`
	// Namespaces is true when the namespaces are to blame, so that it is worth
	// another try without them.
	Namespaces bool `json:",omitempty"`
}
