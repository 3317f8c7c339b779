//go:build !vmtest

package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/vm"
)

// fakeSaver is a fakeMachine that can be saved.
type fakeSaver struct{ *fakeMachine }

var _ vm.Saver = fakeSaver{}

// fakeState is what a fakeSaver writes: the guest's memory, and what the guest believes of its disk.
type fakeState struct {
	Boot   string
	Tokens []string
	Disk   [sha256.Size]byte
}

// errAnotherInstant is the worst that can come of a restore: real guests damage their disk by it.
var errAnotherInstant = errors.New("CORRUPT: the disk is of another instant than the memory")

func (m *fakeMachine) savedNeeds() []vm.Need {
	return []vm.Need{{What: "the memory", Is: fmt.Sprintf("%d MiB", m.memory)}}
}

// Saved implements vm.Saver.
func (m fakeSaver) Saved() vm.Saved { return vm.Saved{Backend: "fake", Needs: m.savedNeeds()} }

// Save implements vm.Saver.
func (m fakeSaver) Save(ctx context.Context, w io.Writer, still func(context.Context) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum, err := m.sum()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(w).Encode(fakeState{Boot: m.boot, Tokens: m.tokens, Disk: sum}); err != nil {
		return err
	}
	return still(ctx)
}

// sum is of the part of the disk that the guest uses.
func (m *fakeMachine) sum() (sum [sha256.Size]byte, err error) {
	b := make([]byte, tokensAt)
	n, err := m.disk.ReadAt(b, tokensAt)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return sha256.Sum256(b[:n]), err
}

// goOn makes the machine the one that was saved.
func (m *fakeMachine) goOn(r *vm.Resume) error {
	if err := vm.CheckNeeds(r.Saved.Needs, m.savedNeeds()); err != nil {
		return err
	}
	b, err := io.ReadAll(r.State)
	if err != nil {
		return err
	}
	var s fakeState
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if sum, err := m.sum(); err != nil || sum != s.Disk {
		return errors.Join(errAnotherInstant, err)
	}
	m.boot, m.tokens = s.Boot, s.Tokens
	return r.Begin()
}

// rejoin is the agent's part of agentclient.Rejoin, with much to send of the session before.
func (m *fakeMachine) rejoin() error {
	key := make([]byte, agentpb.ResumeKeyBytes)
	_, err := io.ReadFull(m.far, key)
	if err == nil {
		_, err = m.far.Write(append([]byte(strings.Repeat("stale", 1<<14)), key...))
	}
	return err
}
