package vm

import (
	"errors"
	"strings"
)

// Missing makes a Check out of an error whose text is "what: …; remedy" or
// "what: remedy", as all sentinels of this package are wrapped.
func Missing(name string, required bool, err error) Check {
	c := Check{Name: name, Required: required, Detail: err.Error(), Err: sentinel(err)}
	for _, sep := range []string{"; ", ": "} {
		if i := strings.LastIndex(c.Detail, sep); i >= 0 {
			c.Detail, c.Remedy = c.Detail[:i], c.Detail[i+len(sep):]
			break
		}
	}
	return c
}

func sentinel(err error) error {
	for _, s := range []error{
		ErrUnsupported, ErrKVMMissing, ErrKVMPermission, ErrKVMUnusable, ErrLibkrunMissing,
		ErrLibkrunTooOld, ErrLibkrunfwMissing, ErrQEMUMissing,
	} {
		if errors.Is(err, s) {
			return s
		}
	}
	return err
}

// CheckKVM turns ProbeKVM's answer into a line for people.
func CheckKVM(err error, required bool) Check {
	if err != nil {
		return Missing("kvm", required, err)
	}
	return Check{Name: "kvm", OK: true, Required: required, Detail: KVMDevice + " runs ordinary kernels"}
}

// CheckLibkrunfw looks for the library that holds the guest's kernel.
func CheckLibkrunfw() Check {
	path, err := FindLibrary(Libkrunfw, ErrLibkrunfwMissing)
	if err != nil {
		return Missing("libkrunfw", true, err)
	}
	return Check{Name: "libkrunfw", OK: true, Required: true, Detail: path}
}
