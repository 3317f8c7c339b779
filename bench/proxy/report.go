package main

import (
	"context"
	"crypto/tls"
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
)

func report(ctx context.Context, out io.Writer, all []*contestant, length time.Duration, quick bool) error {
	for _, c := range all {
		if err := check(ctx, c); err != nil {
			return err
		}
	}
	counts := []int{1, 10, 100}
	if quick {
		counts = []int{10, 100}
	}
	table := tabwriter.NewWriter(out, 11, 8, 1, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%36s\t", "")
	for _, c := range all {
		fmt.Fprintf(table, "%s\t", c.name)
	}
	fmt.Fprintln(table, "msb/bare\t")
	// First: after load, a process has room of its own for more connections.
	fmt.Fprintf(table, "%36s\t", "KiB for each of 1000 idle conns")
	if err := row(table, all, "%.1f", func(c *contestant) (float64, error) { return idle(ctx, c) }); err != nil {
		return err
	}
	type tool struct {
		name string
		run  func(context.Context, *contestant, int, time.Duration) (float64, error)
	}
	for _, t := range []tool{{"req/s HTTP/1.1 wrk", wrk}, {"req/s HTTP/1.1 h2load", h2loadHTTP1}, {"req/s HTTP/2 h2load", h2load}} {
		for _, n := range counts {
			fmt.Fprintf(table, "%36s\t", fmt.Sprintf("%s, %d conns", t.name, n))
			if err := row(table, all, "%.0f", func(c *contestant) (float64, error) {
				if !c.http2 && strings.Contains(t.name, "HTTP/2") {
					return math.NaN(), nil
				}
				return t.run(ctx, c, n, length)
			}); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(table, "%36s\t", "p50 of one connection, ms")
	if err := row(table, all, "%.3f", func(c *contestant) (float64, error) { return median(ctx, c) }); err != nil {
		return err
	}
	fmt.Fprintf(table, "%36s\t", "100 MB body, MB/s")
	if err := row(table, all, "%.0f", func(c *contestant) (float64, error) { return bulk(ctx, c) }); err != nil {
		return err
	}
	return nil
}

// row measures every contestant and adds the ratio of msb to the bare proxy.
func row(table *tabwriter.Writer, all []*contestant, format string, measure func(*contestant) (float64, error)) error {
	by := make(map[string]float64)
	for _, c := range all {
		v, err := measure(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		by[c.name] = v
		fmt.Fprintf(table, format+"\t", v)
	}
	fmt.Fprintf(table, "%.2f\t\n", by["msb"]/by["bare"])
	return table.Flush() // a run takes minutes: each row when it's there
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
	slices.Sort(times)
	return times[len(times)/2], nil
}

// bulk is the best of three downloads.
func bulk(ctx context.Context, to *contestant) (float64, error) {
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

// load runs a load generator and reads its figure; failed is what its output
// holds if requests were answered with errors.
func load(ctx context.Context, figure, failed, name string, args ...string) (float64, error) {
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
