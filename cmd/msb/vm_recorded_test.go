//go:build vmtest

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

var record = flag.Bool("record", false, "rewrite the recorded captures of testdata/pcap")

// TestVMRecordedCapturesMatchRealGuests has a real guest do again what the captures show, and
// compares what a review makes of either. With -record it stores the new ones.
func TestVMRecordedCapturesMatchRealGuests(t *testing.T) {
	for _, c := range pcapgen.Recorded() {
		t.Run(c.Name, func(t *testing.T) {
			i := newIsland(t)
			for _, line := range c.Zone {
				rr, err := dns.NewRR(line)
				if err != nil {
					t.Fatal(err)
				}
				a, ok := rr.(*dns.A)
				if !ok {
					t.Fatalf("the island's resolver has addresses of IPv4 only: %s", line)
				}
				i.zone[strings.TrimSuffix(a.Hdr.Name, ".")] = []string{a.A.String()}
			}
			path := filepath.Join("..", "..", "testdata", "pcap", c.Name+".pcapng")
			fresh := i.recording(&c)
			if *record {
				if err := os.WriteFile(path, fresh, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			stored, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, want := verdictsOf(t, &c, fresh), verdictsOf(t, &c, stored)
			if !slices.Equal(got, want) {
				t.Errorf("recorded now:\n%s\nthe stored capture:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// maxRecording keeps the captures small.
const maxRecording = 200 << 10

// recording is the capture of a guest that runs a case's script. No secret's value is in it, nor
// anything that tells of this machine.
func (i *island) recording(c *pcapgen.Case) []byte {
	i.t.Helper()
	path := filepath.Join(i.t.TempDir(), "link.pcapng")
	policy := c.Policy + "\n[dns]\nservers = [\"udp://" + resolver + "\"]\n"
	if strings.Contains(policy, `"good.example"`) {
		policy += "[[tls.extra_ca]]\nfile = \"CA\"\nhosts = [\"good.example\"]\n"
	}
	a := i.guest(policy, "--pcap", path, "-e", "ISLAND_CA="+string(i.ca.PEM()))
	i.t.Logf("the guest says\n%s", a.sh(c.Script))
	a.leave()
	file, err := os.ReadFile(path)
	if err != nil {
		i.t.Fatal(err)
	}
	if len(file) > maxRecording {
		i.t.Errorf("the capture has %d bytes, want %d at most", len(file), maxRecording)
	}
	here, err := os.Getwd()
	if err != nil {
		i.t.Fatal(err)
	}
	private := []string{scratch, path, here}
	s := i.seen()
	for _, r := range s.requests {
		if _, value, ok := strings.Cut(r.text, "\r\nAuthorization: Bearer "); ok {
			value, _, _ = strings.Cut(value, "\r\n")
			private = append(private, value)
		}
	}
	for _, text := range private {
		if bytes.Contains(file, []byte(text)) {
			i.t.Errorf("the capture holds %q", text)
		}
	}
	return file
}

// verdictsOf is what a review says of a capture, without what differs from one run to the next: ports,
// sizes and how often something was tried.
func verdictsOf(t *testing.T, c *pcapgen.Case, file []byte) []string {
	t.Helper()
	p, err := policies.Parse(c.Name+".toml", []byte(c.File()), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := review.Read(t.Context(), c.Name, bytes.NewReader(file), review.Options{Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Count(review.IsChanged) + r.Count(review.Unreadable); n != 0 {
		t.Errorf("the review finds %d flows that were judged otherwise when recorded, or can't be read: %q", n, r.Rows(true))
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
		lines = append(lines, strings.Join([]string{q.Method, q.Host, q.Path, q.Verdict.Action, q.Verdict.Reason}, " "))
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
