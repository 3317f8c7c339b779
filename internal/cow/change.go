package cow

import (
	"errors"
	"fmt"
	"io/fs"
)

// Entry is a file of the guest's layer, as the guest reports it: only its form
// was checked.
type Entry struct {
	// Path is from the top, with slashes; no element is "." or "..".
	Path   string
	Mode   fs.FileMode
	Size   int64
	Target string
	// Whiteout tells that the host's file is removed, Opaque that nothing of the
	// host's directory is seen.
	Whiteout, Opaque bool
}

// Kind says what a change does to the host's directory.
type Kind string

// The kinds.
const (
	Added    Kind = "added"
	Modified Kind = "modified" // also by another type of file
	Deleted  Kind = "deleted"
	Mode     Kind = "mode" // permissions alone
)

// Version is a file before or after a change.
type Version struct {
	// Mode has type and permissions. Setuid, setgid and sticky bits are never taken over.
	Mode fs.FileMode `json:"-"`
	// Type is "file", "directory", "link" or "special".
	Type string `json:"type"`
	// Permissions are in octal, as "0644".
	Permissions string `json:"permissions"`
	Size        int64  `json:"size"`
	// Target is where a link leads.
	Target string `json:"target,omitempty"`
}

func version(mode fs.FileMode, size int64, target string) *Version {
	v := &Version{Mode: mode &^ (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky), Permissions: fmt.Sprintf("%04o", mode.Perm()), Size: size, Target: target}
	switch mode.Type() {
	case 0:
		v.Type = "file"
	case fs.ModeDir:
		v.Type = "directory"
	case fs.ModeSymlink:
		v.Type = "link"
	default:
		v.Type = "special"
	}
	return v
}

// Change is one file that the guest has in another version than the host.
type Change struct {
	// Path is from the directory's top. It may hold any character but "/" and NUL.
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	// Old is the host's, New the guest's; nil for none.
	Old *Version `json:"old,omitempty"`
	New *Version `json:"new,omitempty"`
	// Refusals say why Apply refuses it.
	Refusals []Refusal `json:"refusals,omitempty"`
	// Note says what to look at before it is applied.
	Note string `json:"note,omitempty"`

	host   File   // what Old was made of
	shown  bool   // digest is that of what Diff has shown
	digest []byte // SHA-256
}

// Refusal is a reason for which a change is not applied.
type Refusal struct {
	// Name is what overrides it; the reasons of Final are never overridden.
	Name  string `json:"name"`
	Why   string `json:"why"`
	Final bool   `json:"final,omitempty"`
}

// The names of refusals that don't come from a list of file names (rules.go).
const (
	refusedChanged  = "changed"  // the host's file is not what the guest was shown
	refusedExec     = "exec"     // it gets an executable bit
	refusedLink     = "link"     // it leads elsewhere
	refusedHidden   = "hidden"   // the sandbox doesn't see it
	refusedSpecial  = "special"  // a device, FIFO or socket
	refusedConfines = "confines" // it says what the sandbox may do
	refusedMount    = "mount"    // it is in another file system
)

var (
	// ErrRefused is wrapped by errors of Apply about a refusal.
	ErrRefused = errors.New("change refused")

	// ErrChanged means that the host's or the guest's file is not the one that was compared.
	ErrChanged = errors.New("it changed meanwhile; look at the difference again")

	// errList means that no guest's kernel makes such a layer.
	errList = errors.New("the guest's list of changes is malformed")

	// errMany means that there are more changes than maxChanges.
	errMany = errors.New("too many changes")
)

// maxChanges bounds the changes of one directory, with the files of directories
// that the guest removed.
const maxChanges = 1 << 18

// Refused is the refusal that keeps a change from being applied; nil if the
// names in allow override all of them.
func (c *Change) Refused(allow func(name string) bool) *Refusal {
	for i, r := range c.Refusals {
		if r.Final || !allow(r.Name) {
			return &c.Refusals[i]
		}
	}
	return nil
}
