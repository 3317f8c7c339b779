//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/msb-project/msb/bench/internal/figures"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// load is what dnsperf measured.
type load struct {
	qps  float64
	lost float64 // part of the queries that got no answer
	p99  float64 // seconds; only where asked for
}

var (
	qpsLine  = regexp.MustCompile(`Queries per second:\s+([0-9.]+)`)
	lostLine = regexp.MustCompile(`Queries lost:\s+\d+ \(([0-9.]+)%\)`)
	codeLine = regexp.MustCompile(`Response codes:\s+(.*)`)
)

// dnsperf runs dnsperf in the guest, against its gateway, with more arguments.
func dnsperf(guest *netstacktest.TapGuest, latencies bool, more []string) (load, error) {
	args := append([]string{"-s", linkConfig().Gateway4.String(), "-c", "8", "-t", "2"}, more...)
	if latencies {
		args = append(args, "-v")
	}
	// A file, and not a pipe: who reads a line for each query while the clock
	// runs takes the CPU from what is measured.
	out, err := os.CreateTemp("", "dnsperf-*")
	if err != nil {
		return load{}, err
	}
	defer func() { _ = out.Close(); _ = os.Remove(out.Name()) }()
	var errs bytes.Buffer
	cmd := guest.Command("dnsperf", args...)
	cmd.Stdout, cmd.Stderr = out, &errs
	if err := cmd.Run(); err != nil {
		return load{}, fmt.Errorf("dnsperf: %w: %s", err, errs.String())
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		return load{}, err
	}
	return parseLoad(string(text), latencies)
}

func parseLoad(out string, latencies bool) (load, error) {
	qps, lost := qpsLine.FindStringSubmatch(out), lostLine.FindStringSubmatch(out)
	if qps == nil || lost == nil {
		return load{}, fmt.Errorf("dnsperf printed no result:\n%s", out)
	}
	if codes := codeLine.FindStringSubmatch(out); codes == nil || !strings.HasPrefix(codes[1], "NOERROR ") || strings.Contains(codes[1], ",") {
		return load{}, fmt.Errorf("some answers have another code than NOERROR: %v", codes)
	}
	var l load
	l.qps, _ = strconv.ParseFloat(qps[1], 64)
	l.lost, _ = strconv.ParseFloat(lost[1], 64)
	l.lost /= 100
	if latencies {
		l.p99 = p99(out)
	}
	return l, nil
}

// p99 reads the latency at the end of each "> NOERROR name A 0.000123" line.
func p99(out string) float64 {
	var all []float64
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || fields[0] != ">" {
			continue
		}
		if v, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil {
			all = append(all, v)
		}
	}
	return figures.Quantile(all, 0.99)
}

// nameFile writes count names that start with prefix, one question each. They are of a public zone, which is asked of
// nobody but the authority: names that are special are answered without asking.
func nameFile(dir, prefix string, count int) (string, error) {
	path := filepath.Join(dir, prefix+".txt")
	var b bytes.Buffer
	for i := range count {
		fmt.Fprintf(&b, "%s-%d.zone%d.com A\n", prefix, i, i%97)
	}
	return path, os.WriteFile(path, b.Bytes(), 0o600)
}
