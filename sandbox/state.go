package sandbox

import (
	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox/internal/jobkeeper"
	"github.com/msb-project/msb/sandbox/internal/journal"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/sandbox/internal/supervisor"
)

// What the SDK shares with supervisors.
type (
	// Directory is a directory of this machine that a guest sees.
	Directory = state.Directory
	// Tmpfs is a file system in a guest's memory.
	Tmpfs = state.Tmpfs
	// Volume is a disk that stays, and that a guest sees.
	Volume = state.Volume
	// Port is a port of this machine that leads to one of the guest's.
	Port = state.Port
	// Restart says when a main command is run again.
	Restart = state.Restart
	// PcapOptions say how a capture is written.
	PcapOptions = state.PcapOptions
	// RecordFiles names what is written down of a sandbox; "" leaves a record out.
	RecordFiles = journal.RecordFiles
	// Records are the open files of RecordFiles. Close writes them out.
	Records = journal.Records
	// Info is what a started sandbox says of itself.
	Info = state.Info
	// End is how a run of a named sandbox ended.
	End = state.End
	// JobState is what has become of a job.
	JobState = state.JobState
	// JobStatus is a job as `msb job ls` shows it.
	JobStatus = state.JobStatus
	// Changes are what Home.Update changes.
	Changes = state.Changes
	// Usage is what a sandbox uses, and what its gateway counted.
	Usage = state.Usage
	// GuestUsage is the guest's own part of Usage, GatewayUsage the gateway's; DeniedUsage and DNSUsage are parts of that.
	GuestUsage   = state.GuestUsage
	GatewayUsage = state.GatewayUsage
	DeniedUsage  = state.DeniedUsage
	DNSUsage     = state.DNSUsage
	// NotStartedError says that a job's program could not be started.
	NotStartedError = state.NotStartedError
	// Failure is an error with its Kind.
	Failure = state.Failure
	// Kind sorts the ways in which starting or running a sandbox can go wrong.
	Kind = state.Kind
)

// The kinds. Their values are stable: scripts see them in JSON.
const (
	KindOther         = state.KindOther
	KindPolicyMissing = state.KindPolicyMissing
	KindPolicyInvalid = state.KindPolicyInvalid
	KindImageUnknown  = state.KindImageUnknown
	KindImagePlatform = state.KindImagePlatform
	KindImageRefused  = state.KindImageRefused
	KindNoBackend     = state.KindNoBackend
	KindKVMPermission = state.KindKVMPermission
	KindNoSpace       = state.KindNoSpace
	KindGuestPanic    = state.KindGuestPanic
	KindGuestMemory   = state.KindGuestMemory
	KindAgent         = state.KindAgent
	KindSecret        = state.KindSecret
	KindGrants        = state.KindGrants      // what the policy takes from this machine is not approved: a *GrantsError
	KindIdle          = state.KindIdle        // nobody used it: Config.IdleStop
	KindSecretValue   = state.KindSecretValue // a secret of the policy has no value that can be used
	KindLifetime      = state.KindLifetime    // Config.Lifetime is over
	KindSandbox       = state.KindSandbox
)

// The states of a job. All but JobRunning are final.
const (
	JobRunning = state.JobRunning
	JobExited  = state.JobExited  // by itself: JobStatus.Code
	JobKilled  = state.JobKilled  // by a signal: JobStatus.Signal
	JobLost    = state.JobLost    // the sandbox ended under it; its output to that point is there
	JobDamaged = state.JobDamaged // its file can't be read; only lists have it
)

// MaxJobs bounds the jobs of a sandbox, those that have ended included.
const MaxJobs = jobkeeper.MaxJobs

// Verb is the hidden first argument that makes msb a supervisor; see MaybeRun.
const Verb = state.Verb

// SignalCaptureOn and SignalCaptureOff switch the capture of a supervisor, and of `msb run` and `msb gateway`.
const (
	SignalCaptureOn  = state.SignalCaptureOn
	SignalCaptureOff = state.SignalCaptureOff
)

// Errors about sandboxes, their files and their jobs, for errors.Is.
var (
	ErrSecretValue     = state.ErrSecretValue
	ErrName            = state.ErrName
	ErrNoSandbox       = state.ErrNoSandbox
	ErrExists          = state.ErrExists
	ErrRunning         = state.ErrRunning
	ErrPaused          = agentclient.ErrPaused
	ErrNotRunning      = state.ErrNotRunning
	ErrState           = state.ErrState
	ErrSnapshotName    = state.ErrSnapshotName
	ErrNoSnapshot      = state.ErrNoSnapshot
	ErrSnapshotExists  = state.ErrSnapshotExists
	ErrSnapshotDamaged = state.ErrSnapshotDamaged
	ErrSnapshotArchive = state.ErrSnapshotArchive
	ErrSnapshotOf      = state.ErrSnapshotOf     // the snapshot is of another sandbox
	ErrNotSaved        = agentclient.ErrNotSaved // the memory of the sandbox can't be saved as it is
	ErrNotResumed      = vm.ErrNotResumed        // something that a saved memory needs has changed
	ErrMemoryDamaged   = state.ErrMemoryDamaged
	ErrHome            = state.ErrHome          // the state directory isn't the caller's alone
	ErrSupervisor      = state.ErrSupervisor    // the supervisor process ended without saying why
	ErrPolicyMissing   = state.ErrPolicyMissing // the policy file could not be read
	ErrDirectory       = state.ErrDirectory     // a directory can't be shared
	ErrTmpfs           = state.ErrTmpfs         // a file system in memory can't be where it should
	ErrRestart         = state.ErrRestart       // when a command is to be run again can't be read
	ErrCache           = state.ErrCache         // no such cache, or the sandbox is made without it
	ErrCacheBusy       = state.ErrCacheBusy     // another command changes the caches
	ErrVolume          = state.ErrVolume        // a volume can't be attached
	ErrVolumeName      = state.ErrVolumeName
	ErrNoVolume        = state.ErrNoVolume
	ErrVolumeBusy      = state.ErrVolumeBusy  // a machine has it, or a sandbox is made with it
	ErrNoCapture       = journal.ErrNoCapture // there is no file to capture into
	ErrJobName         = state.ErrJobName
	ErrJobExists       = state.ErrJobExists
	ErrNoJob           = state.ErrNoJob
	ErrJobRunning      = state.ErrJobRunning
	ErrJobEnded        = state.ErrJobEnded
	ErrJobLimit        = state.ErrJobLimit
	ErrJobFiles        = state.ErrJobFiles
	ErrJobInput        = state.ErrJobInput
	ErrDetach          = agentclient.ErrDetach // of ExecOptions.Stdin: the process runs on without this session
	ErrBusy            = agentclient.ErrBusy   // the guest takes no more for now
	ErrJobLost         = state.ErrJobLost      // its sandbox ended under it, so that it has no exit status
)

// Fail gives err the kind that its sentinels tell; nil stays nil.
func Fail(err error) error { return state.Fail(err) }

// KindOf is the kind of err, KindOther for a foreign one.
func KindOf(err error) Kind { return state.KindOf(err) }

// CheckName says whether a sandbox may have this name: it is the name of a directory and the guest's host name.
func CheckName(name string) error { return state.CheckName(name) }

// CheckVolumeName says whether a volume may have this name.
func CheckVolumeName(name string) error { return state.CheckVolumeName(name) }

// CheckJobName says whether a job may have this name: it is part of the names of files.
func CheckJobName(name string) error { return state.CheckJobName(name) }

// OpenRecords opens the files. Whatever can't be written is an error before anything runs.
func OpenRecords(files RecordFiles) (*Records, error) { return journal.OpenRecords(files) }

// GuardMemory keeps this process' memory out of core files and away from the user's other processes (invariant 8). A
// program that holds secrets without a supervisor, such as `msb gateway`, calls it before it reads them, and starts no
// machine of its own afterwards.
func GuardMemory() error { return supervisor.GuardMemory() }

// ErrPort is wrapped by errors about a port that can't be published.
var ErrPort = state.ErrPort

// ParseRestart reads "no", "on-failure[:N]" or "always", as --restart of `msb run` takes them.
func ParseRestart(s string) (Restart, error) { return state.ParseRestart(s) }

// ParsePort reads "[ADDRESS:]HOST:GUEST" or "GUEST", as -p of `msb run` takes them.
func ParsePort(s string) (Port, error) { return state.ParsePort(s) }
