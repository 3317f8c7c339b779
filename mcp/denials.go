package mcp

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox"
)

const (
	// quietAfterDenial is how long, after a denial, the client doesn't ask for the same host and port again, for any sandbox:
	// an agent can't repeat its request, in a fresh sandbox either, until somebody agrees by mistake.
	quietAfterDenial = time.Hour
	// maxRefused bounds the questions of that time that a person denied or dismissed: an agent could go on with other hosts.
	maxRefused = 16
)

// maxDenialsFile bounds what is read of the file with denials, in bytes.
const maxDenialsFile = 64 << 10

// denials are what persons denied or dismissed lately. The requests of sandboxes say it too, but only until an agent
// removes the sandbox. All servers of one policy file share them through a file of the state directory.
type denials struct {
	path string

	mu sync.Mutex
	at map[string]time.Time // by destinations, and by the ids of requests whose question was dismissed
}

// note remembers what was refused at a time.
func (d *denials) note(what string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.share(os.O_RDWR|os.O_CREATE, func() {
		if len(d.at) < maxRefused || !d.at[what].IsZero() { // with as many, nobody is asked anything
			d.at[what] = at
		}
	})
}

// share adds what the file has to d.at, has change make its change, and writes the file again if it is open for that. What
// can't be read or written is known to this server alone. d.mu is held.
func (d *denials) share(how int, change func()) {
	if d.at == nil {
		d.at = map[string]time.Time{}
	}
	f, err := os.OpenFile(d.path, how|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err == nil {
		defer func() { _ = f.Close() }()
		if unix.Flock(int(f.Fd()), unix.LOCK_EX) == nil { // until it is closed
			text, _ := io.ReadAll(io.LimitReader(f, maxDenialsFile))
			var there map[string]time.Time
			if json.Unmarshal(text, &there) == nil {
				maps.Copy(d.at, there)
			}
		}
	}
	maps.DeleteFunc(d.at, func(_ string, at time.Time) bool { return time.Since(at) >= quietAfterDenial })
	change()
	text, _ := json.Marshal(d.at) // of strings and times
	if err == nil && how&os.O_RDWR != 0 && f.Truncate(0) == nil {
		_, _ = f.WriteAt(text, 0)
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
	d.share(os.O_RDONLY, func() {})
	return !d.at[to].IsZero(), len(d.at) >= maxRefused
}

func deniedLately(r *sandbox.Request) bool {
	return r.State == sandbox.RequestDenied && r.Answered != nil && time.Since(*r.Answered) < quietAfterDenial
}
