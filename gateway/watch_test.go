package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/policies"
)

// TestI12_SameSizeEditsAreTaken: one rule becomes another of as many bytes, and the file gets its old time back.
func TestI12_SameSizeEditsAreTaken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.toml")
	text := []byte("version = 1\n" + apiTLS)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Unix(1_700_000_000, 0)
	if err := os.Chtimes(path, before, before); err != nil {
		t.Fatal(err)
	}
	p, err := policies.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	w := gatewaytest.StartWith(t, p, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done, now := make(chan struct{}), make(chan os.Signal)
	go func() { defer close(done); w.Gateway.WatchPolicy(ctx, path, p, now) }()
	t.Cleanup(func() { cancel(); <-done })
	now <- os.Interrupt // once this is taken, the file was read
	w.Audit.Wait(t, audit.PolicyReload, 1)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(bytes.ReplaceAll(text, []byte("api.example.com"), []byte("bpi.example.com")))
	if err := errors.Join(err, f.Close(), os.Chtimes(path, before, before)); err != nil {
		t.Fatal(err)
	}
	w.Audit.Wait(t, audit.PolicyReload, 2)
	if m := w.Resolve("api.example.com", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("the name that only the old text allows: %v", m)
	}
}
