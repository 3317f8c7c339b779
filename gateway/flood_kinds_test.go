package gateway_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// floodOf is more denials than are written one by one.
const floodOf = 2500

// accounted sums the denials of a kind: lines of their own, and those that merged lines count.
func accounted(w *gatewaytest.World, kind audit.Kind) (lines int, verdicts uint64, first audit.Event) {
	for i, e := range w.Audit.Events(kind) {
		if i == 0 {
			first = e
		}
		if e.Action == "deny" {
			lines++
			verdicts += max(1, e.Count)
		}
	}
	return lines, verdicts, first
}

// mostLines is how many lines a flood of that length may make. On a slow machine little is merged: the
// lines of a second are what is bounded.
func mostLines(flood time.Duration) int {
	const burst, rate, merged = 1000, 100, 2 // a second's merged lines: one, and one more at a border
	return burst + (rate+merged)*(int(flood.Seconds())+2)
}

// TestI1_I11_DeniedNameFloodsAreMerged asks over one connection for names that no rule allows, then for
// one of another sort. The capture has a comment on each packet that carried a question all the same.
func TestI1_I11_DeniedNameFloodsAreMerged(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	pcap := capture.NewWriter(&file, capture.Options{})
	c := gateway.NewCaptureTap()
	c.Start(pcap)
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, "[limits]\ndns_per_second = 100000\n"), func(cfg *gateway.Config) { cfg.Capture = c })
	start := time.Now()
	for i := range floodOf {
		w.Resolve("n"+strconv.Itoa(i)+".example.com", dns.TypeA)
	}
	w.Resolve("metadata.google.internal", dns.TypeA)
	names := w.Audit.Events(audit.DNSQuery)
	if last := names[len(names)-1]; last.DNS == nil || last.DNS.Name != "metadata.google.internal" {
		t.Errorf("the last line is %+v, want the denial of another sort in full", last)
	}
	if err := w.Gateway.Close(); err != nil {
		t.Fatal(err)
	}
	lines, verdicts, first := accounted(w, audit.DNSQuery)
	if most := mostLines(time.Since(start)); verdicts != floodOf+1 || lines > most {
		t.Errorf("%d lines account for %d verdicts; want %d at most, and %d", lines, verdicts, most, floodOf+1)
	}
	if first.DNS == nil || first.DNS.Name != "n0.example.com" {
		t.Errorf("the first line is %+v, want the name in full", first)
	}
	c.Start(nil)
	if err := pcap.Close(); err != nil {
		t.Fatal(err)
	}
	if n := comments(t, file.Bytes(), "msb dns=0 action=deny"); n != floodOf+1 {
		t.Errorf("%d packets have a verdict on a name, want %d", n, floodOf+1)
	}
}

// comments counts the comments that begin with prefix.
func comments(t *testing.T, file []byte, prefix string) (n int) {
	t.Helper()
	r, err := capture.NewReader(bytes.NewReader(file))
	for err == nil {
		var rec *capture.Record
		if rec, err = r.Next(); err != nil {
			break
		}
		for _, text := range rec.Comments {
			if strings.HasPrefix(text, prefix) {
				n++
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return n
}

// TestI1_I11_DeniedRequestFloodsAreMerged asks for paths that the rule does not name.
func TestI1_I11_DeniedRequestFloodsAreMerged(t *testing.T) {
	t.Parallel()
	// Each connection that the client opens again asks for the name again.
	w := gatewaytest.Start(t, "[limits]\ndns_per_second = 100000\n[[egress.allow]]\nname = \"plain\"\nhosts = [\"plain.example.com\"]\nprotocol = \"http\"\npaths = [\"/open/**\"]\n")
	w.Record("plain.example.com. 60 IN A " + site)
	w.ServeHTTP(netip.AddrPortFrom(netip.MustParseAddr(site), 80).String(), http.NotFoundHandler())
	client := w.Client()
	ask := func(i int) {
		if status, _ := get(t, client, "http://plain.example.com/shut/"+strconv.Itoa(i)); status != http.StatusForbidden {
			t.Errorf("status %d", status)
		}
	}
	ask(0)
	start := time.Now()
	var work sync.WaitGroup
	const askers = 8
	for k := range askers {
		work.Go(func() {
			for i := 1 + k; i < floodOf; i += askers {
				ask(i)
			}
		})
	}
	work.Wait()
	most := mostLines(time.Since(start))
	if err := w.Gateway.Close(); err != nil {
		t.Fatal(err)
	}
	lines, verdicts, first := accounted(w, audit.HTTPRequest)
	if verdicts != floodOf || lines > most {
		t.Errorf("%d lines account for %d verdicts; want %d at most, and %d", lines, verdicts, most, floodOf)
	}
	if first.Path != "/shut/0" || first.Host != "plain.example.com" {
		t.Errorf("the first line is %+v, want the request in full", first)
	}
}
