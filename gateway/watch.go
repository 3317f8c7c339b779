package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"os"
	"slices"
	"time"

	"github.com/msb-project/msb/policies"
)

// policyPoll is how often the policy file is read. That is cheap for a file of this size, works on every
// file system, and sees the rename by which editors save, which a watch on the file itself loses. Its size
// and time alone don't tell: an edit may keep both.
const policyPoll = 300 * time.Millisecond

// WatchPolicy puts the policy file at path in force whenever it or a file that it includes changes, or
// when now is sent to, until ctx ends. It begins by comparing the file with given, the policy that the
// gateway was made with: it may have changed since that was read. A file that is broken or gone leaves
// the old policy as it is and says so in the audit log.
func (g *Gateway) WatchPolicy(ctx context.Context, path string, given *policies.Policy, now <-chan os.Signal) {
	w := watcher{gateway: g, path: path, sources: []string{path}, inForce: effect(given)}
	w.reload(false)
	tick := time.NewTicker(policyPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-now:
			w.reload(true)
		case <-tick.C:
			w.poll()
		}
	}
}

// watcher follows one policy file.
type watcher struct {
	gateway *Gateway
	path    string
	sources []string // path and what it includes
	inForce []byte   // the effect of the policy in force
	read    []seen   // the sources as they were read last
	last    []seen   // the sources as they were seen last
}

// poll reloads once the sources differ from what was read and have stood still for one poll: a file that
// is being written in place is a valid policy at many of its lines, and may lack its deny rules.
func (w *watcher) poll() {
	now := look(w.sources)
	still := same(now, w.last)
	w.last = now
	if still && !same(now, w.read) {
		w.reload(true)
	}
}

// reload reads the file. Where nothing would change it is silent unless it was asked.
func (w *watcher) reload(asked bool) {
	before := look(w.sources)
	p, sources, err := policies.LoadSources(w.path)
	if len(sources) > 0 {
		w.sources = sources
	}
	after := look(w.sources)
	w.read, w.last = after, after
	if len(before) == len(after) && !same(before, after) || !asked && err != nil {
		// It changed under the reading, or may have: once more when it stands still.
		w.read = nil
		return
	}
	if err != nil {
		w.gateway.refused(err)
		return
	}
	text := effect(p)
	if !asked && bytes.Equal(text, w.inForce) {
		return
	}
	if w.gateway.cfg.Admit != nil {
		if p, err = w.gateway.cfg.Admit(p); err != nil {
			w.gateway.refused(err)
			return
		}
	}
	if w.gateway.Reload(p) == nil { // it writes its own refusal down
		w.inForce = text
	}
}

// effect is p as Encode writes it, without the names of what was merged into it: a policy that a supervisor was given
// holds the text of its includes and no longer their names.
func effect(p *policies.Policy) []byte {
	merged := *p
	merged.Include = nil
	return policies.Encode(&merged)
}

// seen is what changes when a file is written or exchanged; the zero value for one that can't be read.
type seen struct {
	info    os.FileInfo
	content [sha256.Size]byte
}

func look(paths []string) []seen {
	all := make([]seen, len(paths))
	for i, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			continue
		}
		if all[i].content, err = policies.Fingerprint(p); err == nil {
			all[i].info = info
		}
	}
	return all
}

func same(a, b []seen) bool {
	return slices.EqualFunc(a, b, func(x, y seen) bool {
		if x.info == nil || y.info == nil {
			return x.info == y.info
		}
		return os.SameFile(x.info, y.info) && x.info.Size() == y.info.Size() &&
			x.info.ModTime().Equal(y.info.ModTime()) && x.content == y.content
	})
}
