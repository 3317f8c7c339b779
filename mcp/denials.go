package mcp

import (
	"sync"
	"time"

	"github.com/msb-project/msb/sandbox"
)

const (
	// quietAfterDenial is how long, after a denial, the client doesn't ask for the same host and port again, for any sandbox:
	// an agent can't repeat its request, in a fresh sandbox either, until somebody agrees by mistake.
	quietAfterDenial = time.Hour
	// maxRefused bounds the questions of that time that a person denied or dismissed: an agent could go on with other hosts.
	maxRefused = 16
)

// denials are what persons denied or dismissed lately. The requests of sandboxes say it too, but only until an agent
// removes the sandbox.
type denials struct {
	mu sync.Mutex
	at map[string]time.Time // by destinations, and by the ids of requests whose question was dismissed
}

// note remembers what was refused at a time.
func (d *denials) note(what string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil {
		d.at = map[string]time.Time{}
	}
	if len(d.at) < maxRefused || !d.at[what].IsZero() { // with as many, nobody is asked anything
		d.at[what] = at
	}
}

// noteAll remembers the denials among the requests of a sandbox, which is about to be removed.
func (d *denials) noteAll(all []sandbox.Request) {
	for i := range all {
		if deniedLately(&all[i]) {
			d.note(destination(&all[i]), *all[i].Answered)
		}
	}
}

// lately reports whether a person denied a destination, and whether they refused too much to be asked anything.
func (d *denials) lately(to string) (denied, tooMany bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for what, at := range d.at {
		if time.Since(at) >= quietAfterDenial {
			delete(d.at, what)
		}
	}
	return !d.at[to].IsZero(), len(d.at) >= maxRefused
}

func deniedLately(r *sandbox.Request) bool {
	return r.State == sandbox.RequestDenied && r.Answered != nil && time.Since(*r.Answered) < quietAfterDenial
}
