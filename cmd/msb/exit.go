package main

import (
	"errors"
	"fmt"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// exitCode is an error that only carries the exit code: the command's own, or that of an error which was printed already.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// msb's own exit codes. 126 and 127 are the guest's, as in every container tool; 125 is any failure of
// msb without a code of its own; 124 is a timeout, as in timeout(1). The others sit just below, where
// few programs exit by themselves.
const (
	exitDoctor        = 1
	exitDenied        = 3
	exitDiffers       = 3
	exitPolicyMissing = 110
	exitPolicyInvalid = 111
	exitImageUnknown  = 112
	exitImagePlatform = 113
	exitImageRefused  = 114
	exitNoBackend     = 115
	exitKVMPermission = 116
	exitNoSpace       = 117
	exitGuestPanic    = 118
	exitGuestMemory   = 119
	exitAgent         = 120
	exitSecret        = 121
	exitSandbox       = 122
	exitTimeout       = 124
	exitOther         = 125
)

// exitHelp is the table of `msb run --help`; docs/exit-codes.md has the same.
const exitHelp = `Exit codes:
  the command's own, 128+N when signal N ended it; 126 not executable, 127 not found
  124 --timeout ran out          125 msb itself failed
  110 policy can't be read       111 policy is wrong, or not approved
  112 image unknown              113 image for another platform   114 image refused
  115 no usable backend          116 no permission on /dev/kvm    117 no disk space
  118 guest kernel panicked      119 guest out of memory          120 guest agent gone
  121 ended by a secret's on_violation = "terminate"
  122 no sandbox of that name, or it is (not) running`

func exitOf(err error) int {
	var usage *usageError
	var wrong policies.ErrorList
	switch {
	case errors.As(err, &usage):
		return exitOther
	case errors.As(err, &wrong):
		return exitPolicyInvalid
	}
	switch sandbox.KindOf(err) {
	case sandbox.KindPolicyMissing:
		return exitPolicyMissing
	case sandbox.KindPolicyInvalid, sandbox.KindGrants:
		return exitPolicyInvalid
	case sandbox.KindImageUnknown:
		return exitImageUnknown
	case sandbox.KindImagePlatform:
		return exitImagePlatform
	case sandbox.KindImageRefused:
		return exitImageRefused
	case sandbox.KindNoBackend:
		return exitNoBackend
	case sandbox.KindKVMPermission:
		return exitKVMPermission
	case sandbox.KindNoSpace:
		return exitNoSpace
	case sandbox.KindGuestPanic:
		return exitGuestPanic
	case sandbox.KindGuestMemory:
		return exitGuestMemory
	case sandbox.KindAgent:
		return exitAgent
	case sandbox.KindSecret:
		return exitSecret
	case sandbox.KindSandbox:
		return exitSandbox
	case sandbox.KindSecretValue, sandbox.KindIdle, sandbox.KindLifetime, sandbox.KindOther:
	}
	return exitOther
}

// usageError is a wrong command line.
type usageError struct {
	err  error
	help string
}

func (e *usageError) Error() string { return e.err.Error() + "; see " + e.help }
func (e *usageError) Unwrap() error { return e.err }
