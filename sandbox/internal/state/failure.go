package state

import (
	"context"
	"errors"
	"syscall"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/policies"
)

// ErrSupervisor means that the supervisor process ended without saying why.
var ErrSupervisor = errors.New("the sandbox's supervisor ended unexpectedly")

// ErrPolicyMissing means that the policy file could not be read.
var ErrPolicyMissing = errors.New("policy file can't be read")

// ErrHome means that others than the caller can write to the state directory.
var ErrHome = errors.New("state directory isn't safe to use")

// ErrIdle is the end of a sandbox that nobody used for as long as its IdleStop.
var ErrIdle = errors.New("nobody used it")

// ErrLifetime is the end of a sandbox that ran for its Lifetime.
var ErrLifetime = errors.New("its lifetime is over")

// ErrTerminated is the end of a sandbox whose guest broke a rule that ends it.
var ErrTerminated = errors.New("the policy ends the sandbox")

// ErrSecretValue means that a secret of the policy has no value that can be used.
var ErrSecretValue = errors.New("a secret's value can't be used")

// Kind sorts the ways in which starting or running a sandbox can go wrong. It travels from the
// supervisor to the caller, and cmd/msb makes it an exit code.
type Kind string

// The kinds. Their values are stable: scripts see them in JSON.
const (
	KindOther         Kind = "other"
	KindPolicyMissing Kind = "policy_missing"
	KindPolicyInvalid Kind = "policy_invalid"
	KindImageUnknown  Kind = "image_unknown"
	KindImagePlatform Kind = "image_platform"
	KindImageRefused  Kind = "image_refused"
	KindNoBackend     Kind = "no_backend"
	KindKVMPermission Kind = "kvm_permission"
	KindNoSpace       Kind = "no_space"
	KindGuestPanic    Kind = "guest_panic"
	KindGuestMemory   Kind = "guest_out_of_memory"
	KindAgent         Kind = "agent_dead"
	KindSecret        Kind = "secret_violation"
	KindGrants        Kind = "policy_grants"   // what the policy takes from this machine is not approved: a *GrantsError
	KindSecretValue   Kind = "secret_unusable" // a secret of the policy has no value that can be used
	KindIdle          Kind = "idle"            // nobody used it: Config.IdleStop
	KindLifetime      Kind = "lifetime"        // Config.Lifetime is over
	KindSandbox       Kind = "sandbox"         // no sandbox of that name, or it isn't in the state that was asked for
)

// Failure is an error with its Kind. Error gives the sentence alone.
type Failure struct {
	Kind Kind
	err  error
}

func (f *Failure) Error() string { return f.err.Error() }

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.err }

// Fail gives err the kind of its sentinels; nil stays nil.
func Fail(err error) error {
	var have *Failure
	if err == nil || errors.As(err, &have) {
		return err
	}
	return FailAs(kindOf(err), err)
}

// FailAs gives err that kind.
func FailAs(kind Kind, err error) *Failure { return &Failure{Kind: kind, err: err} }

// KindOf is the kind of err, KindOther for a foreign one.
func KindOf(err error) Kind {
	var f *Failure
	if errors.As(err, &f) {
		return f.Kind
	}
	return kindOf(err)
}

// The order matters: a permission problem is also a missing backend, and a guest that panicked for
// want of memory is also a dead agent.
var kindBySentinel = []struct {
	sentinel error
	kind     Kind
}{
	{ErrTerminated, KindSecret},
	{ErrIdle, KindIdle},
	{ErrLifetime, KindLifetime},
	{ErrName, KindSandbox},
	{ErrNoSandbox, KindSandbox},
	{ErrExists, KindSandbox},
	{ErrRunning, KindSandbox},
	{ErrNotRunning, KindSandbox},
	{ErrState, KindSandbox},
	{ErrSnapshotName, KindSandbox},
	{ErrNoSnapshot, KindSandbox},
	{ErrSnapshotExists, KindSandbox},
	{ErrSnapshotDamaged, KindSandbox},
	{ErrSnapshotOf, KindSandbox},
	{ErrMemoryDamaged, KindSandbox},
	{agentclient.ErrNotSaved, KindSandbox},
	{vm.ErrNotResumed, KindSandbox},
	{ErrSnapshotArchive, KindImageRefused},
	{ErrJobName, KindSandbox},
	{ErrNoJob, KindSandbox},
	{ErrJobExists, KindSandbox},
	{ErrJobRunning, KindSandbox},
	{ErrJobEnded, KindSandbox},
	{ErrJobLost, KindSandbox},
	{ErrJobInput, KindSandbox},
	{ErrJobLimit, KindSandbox},
	{ErrVolumeName, KindSandbox},
	{ErrNoVolume, KindSandbox},
	{ErrVolumeBusy, KindSandbox},
	{ErrCache, KindSandbox},
	{ErrCacheBusy, KindSandbox},
	{vm.ErrKVMPermission, KindKVMPermission},
	{vm.ErrNoBackend, KindNoBackend},
	{vm.ErrLibkrunfwMissing, KindNoBackend},
	{vm.ErrGuestOutOfMemory, KindGuestMemory},
	{vm.ErrGuestPanic, KindGuestPanic},
	{syscall.ENOSPC, KindNoSpace},
	{image.ErrNoSpace, KindNoSpace},
	{ErrHome, KindOther},
	{image.ErrPlatform, KindImagePlatform},
	{image.ErrHostile, KindImageRefused},
	{image.ErrLimit, KindImageRefused},
	{image.ErrConfig, KindImageRefused},
	{image.ErrDigest, KindImageRefused},
	{image.ErrNotFound, KindImageUnknown},
	{image.ErrReference, KindImageUnknown},
	{image.ErrNotCached, KindImageUnknown},
	{image.ErrUnauthorized, KindImageUnknown},
	{image.ErrUnreachable, KindImageUnknown},
	{image.ErrNotRegistry, KindImageUnknown},
	{syscall.ENOTDIR, KindImageUnknown},
	{ErrPolicyMissing, KindPolicyMissing},
	{ErrSecretValue, KindSecretValue},
	{agentclient.ErrPaused, KindSandbox},
	{agentclient.ErrAgentDead, KindAgent},
	{agentclient.ErrProtocol, KindAgent},
	{agentclient.ErrVersion, KindAgent},
	{agentclient.ErrTimeout, KindAgent},
	{vm.ErrKilled, KindAgent},
	{vm.ErrVMM, KindAgent},
	{ErrSupervisor, KindAgent},
	{context.DeadlineExceeded, KindAgent},
}

func kindOf(err error) Kind {
	var wrong policies.ErrorList
	if errors.As(err, &wrong) {
		return KindPolicyInvalid
	}
	for _, s := range kindBySentinel {
		if errors.Is(err, s.sentinel) {
			return s.kind
		}
	}
	return KindOther
}
