package review_test

// A spoken case is an attack that hides inside TLS, or needs a live client and a live server. A guest
// speaks it through a real gateway to real servers in each run of the tests, which look at what the
// servers and the guest got. What the product's own capture made of it once is in testdata/pcap.
//
// To add one:
//  1. Add a pcapgen.Case to the end of its topic (internal/pcapgen/spoken_*.go): a name that begins with
//     "spoken-", the story, the policy, the zone.
//  2. Add a script of that name to scripts (below): it starts servers (session.site), speaks
//     (session.tls, talk.ask, session.h2) and asserts. The secret's placeholder is session.token(), its value
//     pcapgen.SecretValue; a further one belongs into pcapgen.Values, and that the guest and the capture
//     never get any of them is asserted for every case.
//  3. go test ./review -run Spoken/NAME -record, then go test ./review -update, and read the diff.

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/review"
	"github.com/msb-project/msb/secretproxy/ca"
)

const (
	// maxSpoken keeps recordings small, in bytes.
	maxSpoken = 60 << 10
	// maxBusy is what all sessions that go on at a time may hold, in bytes.
	maxBusy = 128 << 20
	// spokenWait bounds every wait of a script.
	spokenWait = 60 * time.Second
)

// script is what a case's guest and servers do, and what is to come of it.
type script func(*session)

// scripts are all, by their cases' names.
func scripts() map[string]script {
	all := map[string]script{}
	for _, topic := range []map[string]script{
		tlsScripts(), certificateScripts(), h2Scripts(), httpScripts(), framingScripts(), upgradeScripts(),
		placeholderScripts(), answerScripts(),
	} {
		maps.Copy(all, topic)
	}
	return all
}

// session is one case while it is spoken.
type session struct {
	*gatewaytest.World
	t         *testing.T
	life      *lifetime
	authority *ca.Authority // the sandbox's
	tap       *gateway.CaptureTap
	file      bytes.Buffer

	addrs map[string]netip.Addr
	port  uint16 // of the guest's next connection
	open  []*talk

	mu       sync.Mutex
	received bytes.Buffer // all that the guest got, decrypted
}

// TestI7_I9_SpokenAttacksAreWithstood speaks each case. What the capture shows of it, verdict by verdict,
// must be what the stored one shows.
func TestI7_I9_SpokenAttacksAreWithstood(t *testing.T) {
	before := live()
	t.Cleanup(func() {
		if grown := live() - before; grown > maxGrowth {
			t.Errorf("after all cases %d bytes more are live, want %d at most", grown, maxGrowth)
		}
	})
	plays := scripts()
	for _, c := range pcapgen.Spoken() {
		play := plays[c.Name]
		delete(plays, c.Name)
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if play == nil {
				t.Fatal("it has no script")
			}
			file := speak(t, &c, play)
			path := filepath.Join(directory, c.Name+".pcapng")
			if *record && !t.Failed() {
				if err := os.WriteFile(path, file, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			stored, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := outline(t, &c, file), outline(t, &c, stored); got != want {
				t.Errorf("spoken now:\n%s\nthe stored capture:\n%s", got, want)
			}
		})
	}
	for name := range plays {
		t.Errorf("the script %s has no case", name)
	}
}

// speak plays a case and returns its capture. Afterwards the gateway must still serve.
func speak(t *testing.T, c *pcapgen.Case, play script) []byte {
	t.Helper()
	authority, err := ca.New(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	life := &lifetime{TB: t}
	defer life.end()
	s := &session{t: t, life: life, authority: authority, tap: gateway.NewCaptureTap(), addrs: map[string]netip.Addr{}, port: c.GuestPort}
	w := capture.NewWriter(&s.file, capture.Options{Comment: cmp.Or(c.Title, c.Story)})
	s.tap.Start(w)
	s.World = gatewaytest.StartWith(life, gatewaytest.Policy(t, c.Policy), func(cfg *gateway.Config) {
		cfg.Capture, cfg.CA = s.tap, authority
	})
	wait := tcpip.TCPTimeWaitTimeoutOption(time.Millisecond) // or hangUp waits for a minute
	if terr := s.Guest.Stack.SetTransportProtocolOption(tcp.ProtocolNumber, &wait); terr != nil {
		t.Fatal(terr)
	}
	if terr := s.Guest.Stack.SetPortRange(c.GuestPort, c.GuestPort+pcapgen.SpokenPorts-1); terr != nil {
		t.Fatal(terr)
	}
	s.Record(c.Zone...)
	play(s)
	s.hangUp()
	s.tap.Start(nil)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.alive()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, value := range pcapgen.Values() {
		if bytes.Contains(s.received.Bytes(), []byte(value)) {
			t.Error("the guest got a secret's value")
		}
		if bytes.Contains(s.file.Bytes(), []byte(value)) {
			t.Error("the capture holds a secret's value")
		}
	}
	file := bytes.Clone(s.file.Bytes())
	if *record && len(file) > maxSpoken { // a machine that stalls makes more of it
		t.Errorf("the capture has %d bytes, want %d at most: session.enough ends it earlier", len(file), maxSpoken)
	}
	return file
}

// lifetime cleans up at the end of a case what it made. A testing.T keeps what was given to its Cleanup for as
// long as its parent runs: with it, the gateways of all cases would count as left behind.
type lifetime struct {
	testing.TB
	ends []func()
}

// Cleanup implements testing.TB.
func (l *lifetime) Cleanup(f func()) { l.ends = append(l.ends, f) }

func (l *lifetime) end() {
	for _, f := range slices.Backward(l.ends) {
		f()
	}
}

// enough ends the recording: what follows is more of the same.
func (s *session) enough() { s.tap.Start(nil) }

// token is the placeholder that the guest has of the secret TOKEN.
func (s *session) token() string {
	s.t.Helper()
	p := s.Gateway.Placeholders()["TOKEN"]
	if p == "" {
		s.t.Fatal("the policy has no secret TOKEN")
	}
	return p
}

// addr is where the gateway's resolver says that name is. Each name is asked for once.
func (s *session) addr(name string) netip.Addr {
	s.t.Helper()
	if _, known := s.addrs[name]; !known {
		s.addrs[name] = s.Lookup(name)
	}
	return s.addrs[name]
}

// hangUp ends the guest's connections, and waits until the gateway has ended them too: verdicts that come
// late stand on the last packets.
func (s *session) hangUp() {
	s.t.Helper()
	for _, k := range s.open {
		_ = k.Close()
	}
	still := s.Guest.Stack.Stats().TCP.CurrentConnected
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(spokenWait); still.Value() > 0; <-tick.C {
		if time.Now().After(end) {
			s.t.Errorf("%d connections stay open after the guest has closed its end", still.Value())
			return
		}
	}
}

// dialled asserts that the gateway connected to these addresses and no others, each at least once.
func (s *session) dialled(want ...string) {
	s.t.Helper()
	got := s.Dialled()
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		s.t.Errorf("the gateway connected to %q, want %q", got, want)
	}
}

// alive shows that the gateway still serves: its stack answers a ping, its resolver a question.
func (s *session) alive() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), spokenWait)
	defer cancel()
	if err := s.Guest.Ping(ctx, s.Gateway.Link().Gateway4, []byte("alive")); err != nil {
		s.t.Errorf("the gateway no longer serves: %v", err)
	}
	s.Resolve("alive.invalid", dns.TypeA)
}

// outline is what a review says of a capture, without what differs from one run to the next: ports, sizes
// and how often something was tried. It must be what was said when it was recorded.
func outline(t *testing.T, c *pcapgen.Case, file []byte) string {
	t.Helper()
	r := reviewed(t, c, file)
	if n := r.Count(review.IsChanged) + r.Count(review.Unreadable); n != 0 {
		t.Errorf("%d flows or requests were judged otherwise when recorded, or can't be read: %q", n, r.Rows(true))
	}
	var lines []string
	for _, row := range r.Rows(false)[1:] {
		from, _, _ := strings.Cut(row[1], "/")
		if row[0] == "dns" {
			from = row[0]
		}
		lines = append(lines, strings.Join(append([]string{from}, append(row[2:4:4], row[6:]...)...), " "))
	}
	for _, q := range r.Requests {
		lines = append(lines, strings.Join([]string{q.Scheme, q.Method, q.Host, q.Path, q.Verdict.Action, q.Verdict.Reason}, " "))
	}
	for i, line := range lines {
		lines[i] = placeholders.ReplaceAllString(line, "PLACEHOLDER")
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// placeholders are those of spoken cases, which are others in each run.
var placeholders = regexp.MustCompile(`(?:tok|key)_[A-Za-z0-9]{24}|\[TOKEN\]`)
