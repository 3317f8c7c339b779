package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// advised is an error with what to do next, which depends on the sandbox that it is about.
type advised struct {
	error
	next string
}

// Unwrap gives the cause.
func (a advised) Unwrap() error { return a.error }

// startFault is an error that happened before there was a session with a sandbox, so no guest wrote its text.
type startFault struct{ error }

// Unwrap gives the cause.
func (s startFault) Unwrap() error { return s.error }

// advise adds to the error of a call in a sandbox what can be done about it there.
func (s *server) advise(name string, err error) error {
	var failed *toolFailure
	if err == nil || errors.As(err, &failed) || own(err) && !errors.Is(err, sandbox.ErrNotRunning) {
		return err
	}
	st, inspectErr := s.own(name, true)
	if inspectErr != nil {
		return err
	}
	if life := outlived(st); life != "" {
		return advised{err, fmt.Sprintf("call again: sandbox %s ran for its lifetime of %s, the operator's bound, and starts again with its files", st.Name, life)}
	}
	var before startFault
	if errors.As(err, &before) {
		return err
	}
	var path *fs.PathError
	inShared := errors.As(err, &path) && s.opts.inShared(path.Path)
	switch {
	case errors.Is(err, syscall.ENOSPC) && inShared:
		return advised{err, "tell the operator that the disk with the shared directory is full"}
	case errors.Is(err, syscall.ENOSPC):
		return advised{err, fmt.Sprintf("the disk of sandbox %s (%d MB) is full: delete files in it", st.Name, st.Disk>>20)}
	case inShared && s.opts.hides() && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)):
		return advised{err, "it is not there, or the operator hides it: sandbox_list shows what is hidden"}
	}
	return err
}

// outlived is the lifetime of a sandbox that it has ended, "" for any other.
func outlived(st *sandbox.Status) string {
	over := st.Started != nil && time.Since(*st.Started) >= st.Lifetime || st.Started == nil && st.End != nil && st.End.Kind == sandbox.KindLifetime
	if st.Lifetime == 0 || !over {
		return ""
	}
	return st.Lifetime.String()
}

// inShared reports whether a path of a sandbox lies in a directory of this machine.
func (o *Options) inShared(path string) bool {
	for _, d := range o.Directories {
		if path == d.Guest || strings.HasPrefix(path, strings.TrimSuffix(d.Guest, "/")+"/") {
			return true
		}
	}
	return false
}

// hides reports whether some files of the shared directories are hidden from sandboxes.
func (o *Options) hides() bool {
	return len(o.Directories) > 0 && (o.HideCredentials || len(o.Hide) > 0)
}

// unset are the variables that secrets of a policy are read from and that are not set in this process. A sandbox with such
// a secret doesn't start.
func unset(p *policies.Policy) []string {
	var names []string
	if p == nil {
		return nil
	}
	for i := range p.Secrets {
		if from := &p.Secrets[i].From; from.Kind == policies.FromEnv && os.Getenv(from.Value) == "" {
			names = append(names, from.Value)
		}
	}
	return names
}

// mayRead says why the secrets of a sandbox can't be read.
func mayRead(p *policies.Policy) error {
	if names := unset(p); len(names) > 0 {
		return say("a secret of the policy can't be read\nNext: tell the operator that %s not set where msb mcp runs", variables(names))
	}
	return nil
}

// valueFault matches what msb says of a secret that can't be read. Only the captured part is shown: the rest may name a
// path of the host.
var valueFault = lazyregexp.New(`secret (\w+): unusable secret: (its (?:value|source) [\w ,;:-]+)?`)

// unusable says which secret has no usable value, and why, without its source.
func unusable(err error) error {
	if sandbox.KindOf(err) != sandbox.KindSecretValue { // a guest may have written it
		return err
	}
	what, why := "a secret of the policy", ""
	if fault := valueFault.Get().FindStringSubmatch(err.Error()); fault != nil {
		what, why = "secret "+fault[1], fault[2]
	}
	return say("%s can't be used: %s\nNext: tell the operator, who gives it a value where the policy reads it from", what, cmp.Or(why, "its source can't be read"))
}

// variables is "the variable A is" or "the variables A, B are".
func variables(names []string) string {
	if len(names) == 1 {
		return "the variable " + names[0] + " is"
	}
	return "the variables " + strings.Join(names, ", ") + " are"
}

// hidden describes the files of the shared directories that sandboxes don't see.
func (o *Options) hidden() []string {
	if len(o.Directories) == 0 {
		return nil
	}
	all := slices.Clone(o.Hide)
	if o.HideCredentials {
		all = append(all, "what looks like credentials when a sandbox starts")
	}
	return all
}
