package secretstore

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/msb-project/msb/policies"
)

const (
	// fileCheckEvery is how often a file's identity is looked at: rotation is
	// seen within a second, and a busy guest costs one stat a second.
	fileCheckEvery = time.Second
	// refreshEvery bounds runs of a source that 401 answers ask for: the guest
	// causes those answers.
	refreshEvery = 10 * time.Second
)

// Holder is one secret of a policy: its source and its present value. It is
// safe for concurrent use.
type Holder struct {
	policy policies.Secret
	reader *reader

	mu      sync.Mutex
	current Secret
	keep    Keep // nil until KeepBy
	readAt  time.Time
	checked time.Time
	file    os.FileInfo
	closed  bool
	// refused is set when an upstream answered 401, until the next reading.
	refused bool
}

// Keep takes ownership of a value before it's used, and returns it as the Secret that is used. On an error
// the value before it stays in use.
type Keep func(value []byte) (Secret, error)

// Open reads the sources of all secrets, in order; the first that fails is the
// error, and nothing stays open. now is the clock that lifetimes are measured
// with.
func Open(ctx context.Context, secrets []policies.Secret, now func() time.Time) ([]*Holder, error) {
	return open(ctx, secrets, reader{lookupEnv: os.LookupEnv, environ: os.Environ, now: now})
}

func open(ctx context.Context, secrets []policies.Secret, r reader) ([]*Holder, error) {
	for i := range secrets {
		if secrets[i].From.Kind == policies.FromEnv {
			r.hidden = append(r.hidden, secrets[i].From.Value)
		}
	}
	holders := make([]*Holder, 0, len(secrets))
	for i := range secrets {
		h := &Holder{policy: secrets[i], reader: &r}
		if err := h.read(ctx); err != nil {
			for _, opened := range holders {
				opened.Close()
			}
			return nil, err
		}
		holders = append(holders, h)
	}
	return holders, nil
}

// Fixed returns a holder of a value that has no source: a token that an
// upstream gave to this sandbox. Whoever made the value closes it.
func Fixed(policy policies.Secret, value Secret) *Holder {
	return &Holder{policy: policy, current: value}
}

// KeepBy hands the present value and all later ones to keep, whose they are from then on.
func (h *Holder) KeepBy(keep Keep) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept, err := keep(h.current.Reveal())
	if err != nil {
		return err
	}
	h.current.Close()
	h.current, h.keep = kept, keep
	return nil
}

// Policy is the secret's table in the policy.
func (h *Holder) Policy() *policies.Secret { return &h.policy }

// Current returns the present value, read again when the source changed or its
// time is over. If that fails the last good value stays in use and the error
// comes beside it.
func (h *Holder) Current(ctx context.Context) (Secret, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || !h.due() {
		return h.current, nil
	}
	if err := h.readLocked(ctx); err != nil {
		return h.current, err
	}
	return h.current, nil
}

// Refused notes that an upstream answered 401 to the value: if the policy asks
// for it, Current reads the source again, unless that was done within the last
// seconds. The reading waits for Current so that the very next request has the
// new value.
func (h *Holder) Refused() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reader == nil || !h.policy.From.RefreshOn401 || h.reader.now().Sub(h.readAt) < refreshEvery {
		return
	}
	h.refused = true
}

// Value returns the present value without looking at its source.
func (h *Holder) Value() Secret {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// Close overwrites the value, unless it was handed to a Keep.
func (h *Holder) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.keep == nil {
		h.current.Close()
	}
}

func (h *Holder) read(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readLocked(ctx)
}

// due says whether the source should be read again. The caller holds mu.
func (h *Holder) due() bool {
	if h.reader == nil {
		return false
	}
	now := h.reader.now()
	switch h.policy.From.Kind {
	case policies.FromCommand:
		return h.refused || h.policy.From.TTL > 0 && now.Sub(h.readAt) >= h.policy.From.TTL
	case policies.FromFile:
		if now.Sub(h.checked) < fileCheckEvery {
			return false
		}
		h.checked = now
		info, err := os.Stat(h.policy.From.Value)
		return err != nil || h.file == nil || !os.SameFile(info, h.file) ||
			!info.ModTime().Equal(h.file.ModTime()) || info.Size() != h.file.Size()
	case policies.FromEnv, policies.FromNone:
	}
	return false
}

// readLocked reads the source. The caller holds mu.
func (h *Holder) readLocked(ctx context.Context) error {
	h.readAt = h.reader.now()
	h.checked = h.readAt
	h.refused = false // a reading that fails is not tried again before the next 401
	h.file = nil      // but that of a file is
	var file os.FileInfo
	if h.policy.From.Kind == policies.FromFile {
		// Looked at before reading: a change in between is seen next time.
		if info, err := os.Stat(h.policy.From.Value); err == nil {
			file = info
		}
	}
	value, err := h.reader.read(ctx, &h.policy)
	if err == nil {
		err = h.take(value)
	}
	if err == nil {
		h.file = file
	}
	return err
}

// take makes value the present one. The caller holds mu.
func (h *Holder) take(value []byte) error {
	if h.current.Len() > 0 && string(h.current.Reveal()) == string(value) {
		clear(value)
		return nil
	}
	if h.keep == nil {
		h.current = New(value)
		return nil
	}
	kept, err := h.keep(value)
	if err == nil {
		h.current = kept
	}
	return err
}

// LooseMode returns a warning if a "file:" source may be read by others than
// its owner, or "".
func (h *Holder) LooseMode() string {
	if h.policy.From.Kind != policies.FromFile {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file == nil || h.file.Mode().Perm()&0o077 == 0 {
		return ""
	}
	return fmt.Sprintf("secret %s: %s may be read by others (mode %04o): run chmod 600 %s",
		h.policy.Name, h.policy.From.Value, h.file.Mode().Perm(), h.policy.From.Value)
}
