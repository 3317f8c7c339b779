package runner

import (
	"fmt"
	"maps"
	"sync"
)

// Recording is what a filter that refuses nothing reports: every system call
// that would have been refused, with how often it was made. It is for tests and
// `make record-calls`: a VMM that is recorded is not confined by seccomp.
type Recording struct {
	// All records the calls that the lists allow as well.
	All bool

	mu    sync.Mutex
	calls map[Refused]int
}

// Refused is a system call as it would have been refused, or was made. Argument is the value
// of the argument that the lists look at, 0 where they look at none.
type Refused struct {
	Number   uint32
	Argument uint32
}

// String names the call by its number: linux/unistd.h has the names.
func (c Refused) String() string {
	return fmt.Sprintf("system call %d (argument %#x)", c.Number, c.Argument)
}

// Calls returns what was recorded so far.
func (r *Recording) Calls() map[Refused]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.calls)
}

func (r *Recording) add(c Refused) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = make(map[Refused]int)
	}
	r.calls[c]++
}
