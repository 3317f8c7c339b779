package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Auto is the choice that leaves the backend to Select.
const Auto = "auto"

// Select returns the backend to use and, for the user, why. The choice is Auto
// or a backend's name; Auto takes the first that is usable, so the order of
// the backends is the order of preference.
//
// The error wraps ErrNoBackend and the first sentinel of every backend that
// was asked, so that errors.Is finds, for instance, ErrKVMPermission.
func Select(ctx context.Context, choice string, backends ...Backend) (Backend, string, error) {
	if err := CheckChoice(choice, backends...); err != nil {
		return nil, "", err
	}
	var refused []string
	var causes []error
	for _, b := range backends {
		if choice != Auto && choice != "" && choice != b.Name() {
			continue
		}
		report := b.Probe(ctx)
		if report.Usable {
			return b, explain(choice, b, report, refused), nil
		}
		refused = append(refused, fmt.Sprintf("%s: %s", b.Name(), report.Note))
		causes = append(causes, report.errors()...)
	}
	return nil, "", &selectError{reasons: refused, causes: causes}
}

// CheckChoice tells whether Select would know the choice, without a look at the machine.
func CheckChoice(choice string, backends ...Backend) error {
	if choice != Auto && choice != "" && !slices.ContainsFunc(backends, func(b Backend) bool { return b.Name() == choice }) {
		return fmt.Errorf("%w: %q is not one of %s", ErrNoBackend, choice, names(backends))
	}
	return nil
}

func explain(choice string, b Backend, r Report, refused []string) string {
	why := fmt.Sprintf("%s (%s)", b.Name(), r.Note)
	if choice != Auto && choice != "" {
		return why + ", as asked for"
	}
	if len(refused) > 0 {
		return why + ", because " + strings.Join(refused, "; ")
	}
	return why
}

func names(backends []Backend) string {
	list := make([]string, 1, 1+len(backends))
	list[0] = Auto
	for _, b := range backends {
		list = append(list, b.Name())
	}
	return strings.Join(list, ", ")
}

// errors gives the sentinels of the required checks that are not OK.
func (r Report) errors() []error {
	var errs []error
	for _, c := range r.Checks {
		if !c.OK && c.Required && c.Err != nil {
			errs = append(errs, c.Err)
		}
	}
	return errs
}

// selectError says in one sentence why every candidate was refused and keeps
// their sentinels apart for errors.Is.
type selectError struct {
	reasons []string
	causes  []error
}

func (e *selectError) Error() string {
	return fmt.Sprintf("%v: %s; `msb doctor` lists the remedies", ErrNoBackend, strings.Join(e.reasons, "; "))
}

func (e *selectError) Unwrap() []error { return append([]error{ErrNoBackend}, e.causes...) }
