package policies

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error is one fault of a policy, with its place and what to write instead.
type Error struct {
	File      string
	Line, Col int // 0 where the fault has no place
	// Key is the path of the key, "egress.allow[1].hosts".
	Key     string
	Message string
	// Remedy says what to write instead; "" where the message says it.
	Remedy string

	// missing are the keys, with blanks between, that the table Key lacks; meant is the key that an unknown one was
	// taken for.
	missing, meant string
}

var _ error = Error{}

// Error returns "policy.toml:12:3: egress.allow[1].hosts: message; remedy".
func (e Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Col)
		}
		b.WriteString(": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Message)
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

// ErrorList is every fault that was found, in the order of the file.
type ErrorList []Error

var _ error = ErrorList{}

// Error returns one line for each fault; a remedy may go on in indented lines.
func (l ErrorList) Error() string {
	lines := make([]string, len(l))
	for i, e := range l {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As reach each Error.
func (l ErrorList) Unwrap() []error {
	errs := make([]error, len(l))
	for i, e := range l {
		errs[i] = e
	}
	return errs
}

// faults collects the errors of one file.
type faults struct {
	file   string
	places places
	list   ErrorList
	more   int // beyond keptFaults
	// broken are keys of a wrong type: what else could be said of them, or of
	// what they should hold, follows from that.
	broken map[string]bool
}

// add notes a fault at a key path, with the place of the key or of the nearest
// thing around it.
func (f *faults) add(key, message, remedy string) {
	for k := key; len(f.broken) > 0 && k != ""; k = k[:max(0, strings.LastIndexAny(k, ".["))] {
		if f.broken[k] {
			return
		}
	}
	for k := range f.broken {
		if rest, inside := strings.CutPrefix(k, key); inside && strings.HasPrefix(rest, ".") {
			return // what holds a broken part is judged once the part is sound
		}
	}
	f.addAt(f.places.of(key), key, message, remedy)
}

// addErr is add for an error whose text may carry its remedy after a semicolon.
func (f *faults) addErr(key string, err error) {
	f.add(key, err.Error(), "")
}

// lacks is add for a table that has nothing at any of these keys.
func (f *faults) lacks(key, missing, message, remedy string) {
	n := len(f.list)
	if f.add(key, message, remedy); len(f.list) > n {
		f.list[n].missing = missing
	}
}

// dropFollowing takes out what is said of missing keys where the key is there, with a fault of its own or a letter
// wrong.
func (f *faults) dropFollowing() {
	f.list = slices.DeleteFunc(f.list, func(e Error) bool {
		return slices.ContainsFunc(strings.Fields(e.missing), func(name string) bool {
			key := joinKey(e.Key, name)
			return slices.ContainsFunc(f.list, func(cause Error) bool {
				return cause.meant == key || strings.HasPrefix(cause.Key, key) && (len(cause.Key) == len(key) || cause.Key[len(key)] == '[')
			})
		})
	})
}

// addAt is add for a fault whose place is known.
func (f *faults) addAt(pos Position, key, message, remedy string) {
	if pos.File == "" {
		pos.File = f.file
	}
	if len(f.list) >= keptFaults {
		f.more++
		return
	}
	f.list = append(f.list, Error{File: pos.File, Line: pos.Line, Col: pos.Col, Key: key, Message: message, Remedy: remedy})
}

// err returns the faults in the order of their places, or nil.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	f.sort()
	return f.list
}

// keptFaults bounds the memory that faults take: pairs of what a file names can be many more than its lines, and who wrote it need not be
// whom it is read for.
const keptFaults = 100 * maxFaults

// shorten leaves the first maxFaults of the file, and not of the checks, and the number of the others.
func shorten(f *faults) {
	if n := len(f.list) + f.more; n > maxFaults {
		f.sort()
		f.list, f.more = f.list[:maxFaults:maxFaults], 0
		f.addAt(Position{}, "", fmt.Sprintf("%d more faults", n-maxFaults), "mend these first")
	}
}

// sort puts the faults into the order of their places.
func (f *faults) sort() {
	slices.SortStableFunc(f.list, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}

// JoinErrors is errors.Join, with the faults of all ErrorLists among errs in one, in the order of their places.
func JoinErrors(errs ...error) error {
	var f faults
	var others []error
	for _, err := range errs {
		var list ErrorList
		if errors.As(err, &list) {
			f.list = append(f.list, list...)
		} else {
			others = append(others, err)
		}
	}
	return errors.Join(append([]error{f.err()}, others...)...)
}
