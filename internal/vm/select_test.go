package vm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// fake is a backend that only probes.
type fake struct {
	Backend
	name   string
	report Report
}

func (f fake) Name() string                 { return f.name }
func (f fake) Probe(context.Context) Report { return f.report }

func usable(name string) fake {
	return fake{name: name, report: Report{Usable: true, Note: name + " 1.0"}}
}

func broken(name string, err error) fake {
	return fake{name: name, report: Report{Note: err.Error(), Checks: []Check{Missing(name, true, err)}}}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	permission := fmt.Errorf("%w: add yourself to its group", ErrKVMPermission)
	noQEMU := fmt.Errorf("%w: install it", ErrQEMUMissing)
	tests := []struct {
		name, choice string
		backends     []Backend
		want         string
		wantErrs     []error
		inWhy        string
	}{
		{"auto takes the first", Auto, []Backend{usable("krun"), usable("qemu")}, "krun", nil, "krun 1.0"},
		{"empty is auto", "", []Backend{usable("krun")}, "krun", nil, ""},
		{"auto says why not the first", Auto, []Backend{broken("krun", permission), usable("qemu")}, "qemu", nil, "because krun: no permission"},
		{"a choice is kept", "qemu", []Backend{usable("krun"), usable("qemu")}, "qemu", nil, "as asked for"},
		{"a choice is not replaced", "krun", []Backend{broken("krun", permission), usable("qemu")}, "", []error{ErrNoBackend, ErrKVMPermission}, ""},
		{"nothing works", Auto, []Backend{broken("krun", permission), broken("qemu", noQEMU)}, "", []error{ErrNoBackend, ErrKVMPermission, ErrQEMUMissing}, ""},
		{"unknown choice", "xen", []Backend{usable("krun")}, "", []error{ErrNoBackend}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, why, err := Select(t.Context(), tt.choice, tt.backends...)
			for _, want := range tt.wantErrs {
				if !errors.Is(err, want) {
					t.Errorf("error %v does not wrap %v", err, want)
				}
			}
			if tt.want == "" {
				if err == nil {
					t.Errorf("got %s, want an error", b.Name())
				}
				return
			}
			if err != nil || b.Name() != tt.want || !strings.Contains(why, tt.inWhy) {
				t.Errorf("got %v, %q, %v; want %s and %q in the reason", b, why, err, tt.want, tt.inWhy)
			}
		})
	}
}

func TestMissingSplitsTheRemedyOff(t *testing.T) {
	t.Parallel()
	c := Missing("kvm", true, fmt.Errorf("%w: add yourself to the group", ErrKVMPermission))
	if c.OK || c.Detail != ErrKVMPermission.Error() || c.Remedy != "add yourself to the group" || !errors.Is(c.Err, ErrKVMPermission) {
		t.Errorf("got %+v", c)
	}
}
