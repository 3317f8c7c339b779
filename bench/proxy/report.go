package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/msb-project/msb/bench/internal/figures"
)

// row is a measurement with its figures; a load has two.
type row struct {
	figures []figure
	once    bool // a second time would not show the same
	measure func(*contestant) ([]float64, error)
}

// figure is how one of them is printed, and what it is called among the series: there it is in the base unit, of which
// the printed one is a multiple.
type figure struct {
	name, format string
	series, unit string
	base         float64
}

func report(ctx context.Context, out io.Writer, all []*contestant, o options) error {
	for _, c := range all {
		if err := check(ctx, c); err != nil {
			return err
		}
	}
	wanted, err := regexp.Compile(o.rows)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 11, 8, 1, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\t")
	for _, c := range all {
		fmt.Fprintf(table, "%s\t", c.name)
	}
	fmt.Fprint(table, "msb/bare\t")
	if o.before != "" {
		fmt.Fprint(table, "before/bare\tmsb/before\t")
	}
	fmt.Fprintln(table)
	var set figures.Set
	for _, r := range rows(ctx, o) {
		if !wanted.MatchString(r.figures[0].name) {
			continue
		}
		if err := r.print(table, &set, all, o); err != nil {
			return err
		}
	}
	return set.WriteFile(o.out)
}

// rows are all measurements in their order.
func rows(ctx context.Context, o options) []row {
	one := func(measure func(context.Context, *contestant) (float64, error)) func(*contestant) ([]float64, error) {
		return func(c *contestant) ([]float64, error) {
			v, err := measure(ctx, c)
			return []float64{v}, err
		}
	}
	// First: after load, a process has room of its own for more connections.
	out := []row{{figures: []figure{{"KiB for each of 1000 idle conns", "%.1f", "Proxy/idle_conn", figures.Bytes, 1 << 10}}, once: true, measure: one(idle)}}
	counts := []int{1, 10, 100}
	if o.quick {
		counts = counts[1:]
	}
	for _, t := range []struct {
		name string
		run  func(context.Context, *contestant, int, time.Duration) (float64, error)
	}{{"HTTP/1.1 wrk", wrk}, {"HTTP/1.1 h2load", h2loadHTTP1}, {"HTTP/2 h2load", h2load}} {
		for _, n := range counts {
			name := fmt.Sprintf("%s, %d conns", t.name, n)
			series := fmt.Sprintf("Proxy/%s/conns=%d", t.name, n)
			out = append(out, row{figures: []figure{{"req/s " + name, "%.0f", series, "req/s", 1}, {"CPU us/req " + name, "%.1f", series + "/cpu", "sec/req", 1e-6}}, measure: func(c *contestant) ([]float64, error) {
				if !c.http2 && strings.Contains(t.name, "HTTP/2") {
					return []float64{math.NaN(), math.NaN()}, nil
				}
				return withCPU(c, o.length, func() (float64, error) { return t.run(ctx, c, n, o.length) })
			}})
		}
	}
	return append(out, row{figures: []figure{{"p50 of one connection, ms", "%.3f", "Proxy/p50_of_one_connection", figures.Seconds, 1e-3}}, measure: one(median)},
		row{figures: []figure{{"100 MB body, MB/s", "%.0f", "Proxy/100_MB_body", figures.Rate, 1e6}}, measure: one(bulk)})
}

// print measures all contestants in turn, so that what else the machine does meets them alike, and compares them
// round by round.
func (r *row) print(table *tabwriter.Writer, set *figures.Set, all []*contestant, o options) error {
	rounds := o.rounds
	if r.once {
		rounds = 1
	}
	by := make([]map[string][]float64, len(r.figures))
	for i := range by {
		by[i] = make(map[string][]float64)
	}
	order := slices.Clone(all)
	for range rounds {
		for _, c := range slices.Clone(order) {
			values, err := r.measure(c)
			if err != nil && c.name == figures.OfMsb {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if errors.Is(err, context.DeadlineExceeded) { // it is as slow in the next round
				order = slices.DeleteFunc(order, func(o *contestant) bool { return o == c })
			}
			if err != nil { // a peer that can't do it has no value
				fmt.Fprintf(os.Stderr, "left out: %s, %s: %v\n", c.name, r.figures[0].name, err)
				values = slices.Repeat([]float64{math.NaN()}, len(r.figures))
			}
			for i, v := range values {
				by[i][c.name] = append(by[i][c.name], v)
				if !math.IsNaN(v) && !math.IsInf(v, 0) {
					set.Add(r.figures[i].series, c.name, r.figures[i].unit, v*r.figures[i].base)
				}
			}
		}
		slices.Reverse(order) // who comes last meets a busier machine
	}
	for i, f := range r.figures {
		fmt.Fprintf(table, "%s\t", f.name)
		for _, c := range all {
			fmt.Fprint(table, figures.Text(f.format, by[i][c.name]), "\t")
		}
		fmt.Fprint(table, ratio(by[i]["msb"], by[i]["bare"]), "\t")
		if o.before != "" {
			fmt.Fprint(table, ratio(by[i]["before"], by[i]["bare"]), "\t", ratio(by[i]["msb"], by[i]["before"]), "\t")
		}
		fmt.Fprintln(table)
	}
	return table.Flush() // a run takes minutes: each row when it's there
}

func ratio(a, b []float64) string { return figures.Text("%.2f", figures.Ratios(a, b)) }

// withCPU adds the processor time, in microseconds, that the contestant took for each request of a load. It
// scatters less than the rate does on a machine that others use too.
func withCPU(c *contestant, length time.Duration, load func() (rate float64, err error)) ([]float64, error) {
	before, err := processorTime(c)
	if err != nil {
		return nil, err
	}
	rate, err := load()
	if err != nil {
		return nil, err
	}
	after, err := processorTime(c)
	return []float64{rate, float64((after - before).Microseconds()) / (rate * length.Seconds())}, err
}

// processorTime is what the contestant's process took so far, user and system.
func processorTime(c *contestant) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// utime and stime are the 12th and 13th behind the name, in hundredths of a second (proc_pid_stat(5)).
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(errUser, errSystem)
}

// client has connections of its own and doesn't verify: what is measured isn't
// its trust.
func client() *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		Protocols: &protocols, DisableCompression: true, MaxIdleConnsPerHost: 2000,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
	}}
}

func get(ctx context.Context, c *http.Client, to *contestant, path string) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+to.addr+path, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+to.token)
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return n, err
}

// check makes sure that the swap works before its speed is looked at.
func check(ctx context.Context, to *contestant) error {
	c := client()
	defer c.CloseIdleConnections()
	if _, err := get(ctx, c, to, "/"); err != nil {
		return fmt.Errorf("%s: %w", to.name, err)
	}
	return nil
}

// median of sequential requests on one kept HTTP/1.1 connection.
func median(ctx context.Context, to *contestant) (float64, error) {
	c := client()
	defer c.CloseIdleConnections()
	const requests = 2000
	times := make([]float64, 0, requests)
	for range requests {
		start := time.Now()
		if _, err := get(ctx, c, to, "/"); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start).Seconds()*1000)
	}
	return figures.Median(times), nil
}

// bulkTimeout is for three downloads. mitmproxy 8, which keeps whole bodies, takes more than a minute for each.
const bulkTimeout = 30 * time.Second

// bulk is the best of three downloads.
func bulk(ctx context.Context, to *contestant) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	best := 0.0
	for range 3 {
		c := client()
		start := time.Now()
		n, err := get(ctx, c, to, "/big")
		c.CloseIdleConnections()
		if err != nil || n != bigBody {
			return 0, fmt.Errorf("got %d bytes: %w", n, err)
		}
		best = max(best, float64(n)/1e6/time.Since(start).Seconds())
	}
	return best, nil
}

// idle is how much the server grows for each connection that made one request
// and then waits.
func idle(ctx context.Context, to *contestant) (float64, error) {
	const connections = 1000
	before, err := resident(to)
	if err != nil {
		return 0, err
	}
	clients := make([]*http.Client, connections)
	for i := range clients {
		clients[i] = client()
		if _, err := get(ctx, clients[i], to, "/"); err != nil {
			return 0, err
		}
	}
	after, err := resident(to)
	for _, c := range clients {
		c.CloseIdleConnections()
	}
	return float64(after-before) / 1024 / connections, err
}

// resident is the memory of the contestant's process in bytes.
func resident(c *contestant) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

func wrk(ctx context.Context, c *contestant, n int, length time.Duration) (float64, error) {
	return load(ctx, `Requests/sec:\s+([\d.]+)`, `Non-2xx`, "wrk", "-t", strconv.Itoa(min(n, 2)), "-c", strconv.Itoa(n),
		"-d", fmt.Sprintf("%.0fs", length.Seconds()), "-H", "Authorization: Bearer "+c.token, "https://"+c.addr+"/")
}

func h2loadHTTP1(ctx context.Context, c *contestant, n int, length time.Duration) (float64, error) {
	return h2loadWith(ctx, c, n, length, "--h1")
}

func h2load(ctx context.Context, c *contestant, n int, length time.Duration) (float64, error) {
	return h2loadWith(ctx, c, n, length, "-m", "10")
}

func h2loadWith(ctx context.Context, c *contestant, n int, length time.Duration, extra ...string) (float64, error) {
	args := append([]string{"-c", strconv.Itoa(n), "-t", strconv.Itoa(min(n, 2)), "-D", fmt.Sprintf("%.0f", length.Seconds()),
		"-H", "Authorization: Bearer " + c.token}, extra...)
	return load(ctx, `finished in .*?, ([\d.]+) req/s`, ` [1-9]\d* 4xx| [1-9]\d* 5xx`, "h2load", append(args, "https://"+c.addr+"/")...)
}

// patience is how long a load generator may take: h2load waits for every answer that is due, and a proxy may owe it one.
const patience = time.Minute

// load runs a load generator and reads its figure; failed is what its output
// holds if requests were answered with errors.
func load(ctx context.Context, figure, failed, name string, args ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", name, err, out)
	}
	if regexp.MustCompile(failed).Match(out) {
		return 0, fmt.Errorf("%s: requests failed: %s", name, out)
	}
	m := regexp.MustCompile(figure).FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s: no figure in %s", name, out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
