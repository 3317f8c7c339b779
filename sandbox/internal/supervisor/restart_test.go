package supervisor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/secretproxy/ca"
)

// aMainRun is a main command of the plan's sandbox, which ran in a machine before.
func aMainRun(t *testing.T, p *state.Plan) state.MainRun {
	t.Helper()
	j := &state.StoredJob{JobStatus: state.JobStatus{Name: "main", State: state.JobRunning}}
	dir := filepath.Join(p.Dir, state.JobsDir)
	must(t, errors.Join(os.MkdirAll(dir, 0o700), j.Create(dir)))
	return *state.NewMainRun(j, &agentclient.ExecOptions{Argv: []string{"true"}}, state.Restarts{})
}

// TestI11_CrashesGiveNoBudget: a guest that crashes gets nothing of the policy's egress_bytes back.
func TestI11_CrashesGiveNoBudget(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.NoNet = false
	const used = 5000
	p.Again = &state.Again{Main: aMainRun(t, p), EgressUsed: used}
	s, info := superviseFake(t, &guestVM{did: func(string) {}}, p, func(s *supervisor) {
		s.restart.replan = func(_ context.Context, old *state.Plan) (*state.Plan, error) {
			next := *old
			next.Again = nil // a new plan knows nothing of it
			return &next, nil
		}
	})
	if info == nil {
		t.Fatal(<-s.ended)
	}
	if got := s.gateway.Stats().EgressUsed; got != used {
		t.Errorf("the new machine's gateway counts from %d, want %d", got, used)
	}
	if got := s.restart.again(&p.Again.Main).Again.EgressUsed; got != used {
		t.Errorf("the machine after it would have %d used, want %d", got, used)
	}
	s.cancel(errCallerGone)
	must(t, <-s.ended)
}

// TestCommandsWithoutAMachineAreLost: a main command whose new machine never came runs no more. Its twin ran in it, and how it
// ended was written down.
func TestCommandsWithoutAMachineAreLost(t *testing.T) {
	t.Parallel()
	for _, ran := range []bool{false, true} {
		p := newPlan(t, t.TempDir(), "web")
		p.Again = &state.Again{Main: aMainRun(t, p)}
		r := &restart{s: newSupervisor(p, nil, nil), runs: ran}
		must(t, r.giveUp(errors.New("no machine came")))
		j, err := state.ReadJob(filepath.Join(p.Dir, state.JobsDir), "main")
		must(t, err)
		if (j.State == state.JobLost) == ran || !ran && j.Reason != "no machine came" {
			t.Errorf("ran %t: %s, %q", ran, j.State, j.Reason)
		}
	}
}

// TestPausedSandboxesGoOnToEnd: a guest that stands still could not write back what it holds.
func TestPausedSandboxesGoOnToEnd(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	p.UpperDisk = filepath.Join(p.Dir, state.UpperDisk)
	guest := new(guestVM)
	var asked, still atomic.Bool
	guest.did = func(what string) {
		if what == "shut down" {
			asked.Store(true)
			still.Store(guest.paused.Load())
		}
	}
	s, info := superviseFake(t, guest, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	must(t, s.pause.set(true))
	s.cancel(errCallerGone)
	must(t, <-s.ended)
	if !asked.Load() || still.Load() {
		t.Errorf("it is asked to shut down: %t, while it stands still: %t", asked.Load(), still.Load())
	}
}

// TestExpiredAuthoritiesAreReplaced, and those whose time is not over stay.
func TestExpiredAuthoritiesAreReplaced(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "web")
	path := filepath.Join(p.Dir, state.CaFile)
	n := &newSupervisor(p, nil, nil).named
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	over := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "old"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, over, over, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	must(t, os.WriteFile(path, text, 0o600))
	if _, err := ca.Load(path); !errors.Is(err, ca.ErrExpired) {
		t.Fatal(err)
	}
	first, _, err := n.identity()
	must(t, err)
	again, _, err := n.identity()
	must(t, err)
	if string(first.CertPEM()) != string(again.CertPEM()) {
		t.Error("each start makes another authority")
	}
}
