package runner

import (
	"errors"
	"fmt"

	"github.com/msb-project/msb/internal/vm"
)

// codes are the sentinels that cross the status pipe.
var codes = map[string]error{
	"libkrun-missing":   vm.ErrLibkrunMissing,
	"libkrun-old":       vm.ErrLibkrunTooOld,
	"libkrunfw-missing": vm.ErrLibkrunfwMissing,
	"kvm-missing":       vm.ErrKVMMissing,
	"kvm-permission":    vm.ErrKVMPermission,
	"kvm-unusable":      vm.ErrKVMUnusable,
	"spec":              vm.ErrSpec,
	"unsupported":       vm.ErrUnsupported,
}

func codeOf(err error) string {
	for code, sentinel := range codes {
		if errors.Is(err, sentinel) {
			return code
		}
	}
	return ""
}

// remoteError is what a runner reported, with its sentinel put back.
type remoteError struct {
	text  string
	cause error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.cause }

func (s status) err() error {
	if s.Error == "" {
		return nil
	}
	if cause, ok := codes[s.Code]; ok {
		return &remoteError{text: s.Error, cause: cause}
	}
	return fmt.Errorf("%w: %s", vm.ErrVMM, s.Error)
}

// namespaceError says that the host forbids what namespaces are needed for.
type namespaceError struct{ err error }

func (e *namespaceError) Error() string { return e.err.Error() }
func (e *namespaceError) Unwrap() error { return e.err }

func isNamespaceError(err error) bool {
	var ns *namespaceError
	return errors.As(err, &ns)
}
