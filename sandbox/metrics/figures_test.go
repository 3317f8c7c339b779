package metrics

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// whole has a figure in each field, and another one in each.
func whole() sandbox.Usage {
	return sandbox.Usage{
		Name: "web", Started: time.Unix(101, 0), Running: 102 * time.Second, CPUs: 103, CPU: 104 * time.Second, Resident: 105, Memory: 106,
		DiskUsed: 107, Disk: 108, Jobs: 109,
		Guest: &sandbox.GuestUsage{MemoryUsed: 110, Processes: 111, OOMKills: 112},
		Gateway: &sandbox.GatewayUsage{
			BytesUp: 113, BytesDown: 114, FramesUp: 115, FramesDown: 116, FramesDropped: map[string]int64{"sh\xffort": 117}, Limits: map[string]int64{"pings": 118},
			Flows: 119, Clients: 120, Opened: 121, WouldDeny: 122, Denied: []sandbox.DeniedUsage{{Kind: "flow.open", Reason: "no_rule", Count: 123}},
			DNS:      sandbox.DNSUsage{Queries: 124, Cached: 125, Refused: 126, Rebinding: 127, Failed: 128, Limited: 129},
			Requests: 130, Swaps: 131, Masked: 132, Violations: 133, EgressBytes: 134, EgressLimit: 135, SecretMemory: 136, Full: 137,
		},
	}
}

// TestFiguresAreNotMixedUp compares all of them, each with another value, and their kinds.
func TestFiguresAreNotMixedUp(t *testing.T) {
	t.Parallel()
	_, text := scrape(t, &fixed{all: []sandbox.Usage{whole()}}, "127.0.0.1", openMetrics)
	got, kinds := map[string]string{}, map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if family, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(family, " ")
			if _, twice := kinds[name]; twice {
				t.Errorf("two families of metrics are called %s", name)
			}
			kinds[name] = kind
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		got[line[:at]] = line[at+1:]
	}
	want := map[string]string{
		`msb_sandbox_up{sandbox="web"}`:                                             "1.0",
		`msb_sandbox_start_time_seconds{sandbox="web"}`:                             "101.0",
		`msb_sandbox_cpus{sandbox="web"}`:                                           "103.0",
		`msb_sandbox_cpu_seconds_total{sandbox="web"}`:                              "104.0",
		`msb_sandbox_memory_resident_bytes{sandbox="web"}`:                          "105.0",
		`msb_sandbox_memory_limit_bytes{sandbox="web"}`:                             "106.0",
		`msb_sandbox_disk_used_bytes{sandbox="web"}`:                                "107.0",
		`msb_sandbox_disk_limit_bytes{sandbox="web"}`:                               "108.0",
		`msb_sandbox_jobs{sandbox="web"}`:                                           "109.0",
		`msb_guest_memory_used_bytes{sandbox="web"}`:                                "110.0",
		`msb_guest_processes{sandbox="web"}`:                                        "111.0",
		`msb_guest_oom_kills_total{sandbox="web"}`:                                  "112.0",
		`msb_gateway_link_bytes_total{direction="up",sandbox="web"}`:                "113.0",
		`msb_gateway_link_bytes_total{direction="down",sandbox="web"}`:              "114.0",
		`msb_gateway_link_frames_total{direction="up",sandbox="web"}`:               "115.0",
		`msb_gateway_link_frames_total{direction="down",sandbox="web"}`:             "116.0",
		`msb_gateway_link_dropped_frames_total{reason="sh?ort",sandbox="web"}`:      "117.0",
		`msb_gateway_limits_total{limit="pings",sandbox="web"}`:                     "118.0",
		`msb_gateway_flows{sandbox="web"}`:                                          "119.0",
		`msb_gateway_port_clients{sandbox="web"}`:                                   "120.0",
		`msb_gateway_flows_opened_total{sandbox="web"}`:                             "121.0",
		`msb_gateway_would_deny_total{sandbox="web"}`:                               "122.0",
		`msb_gateway_denied_total{kind="flow.open",reason="no_rule",sandbox="web"}`: "123.0",
		`msb_gateway_dns_queries_total{sandbox="web"}`:                              "124.0",
		`msb_gateway_dns_outcomes_total{outcome="cached",sandbox="web"}`:            "125.0",
		`msb_gateway_dns_outcomes_total{outcome="refused",sandbox="web"}`:           "126.0",
		`msb_gateway_dns_outcomes_total{outcome="rebinding",sandbox="web"}`:         "127.0",
		`msb_gateway_dns_outcomes_total{outcome="failed",sandbox="web"}`:            "128.0",
		`msb_gateway_dns_outcomes_total{outcome="limited",sandbox="web"}`:           "129.0",
		`msb_gateway_requests_total{sandbox="web"}`:                                 "130.0",
		`msb_gateway_secret_swaps_total{sandbox="web"}`:                             "131.0",
		`msb_gateway_secrets_masked_total{sandbox="web"}`:                           "132.0",
		`msb_gateway_secret_violations_total{sandbox="web"}`:                        "133.0",
		`msb_gateway_egress_bytes_total{sandbox="web"}`:                             "134.0",
		`msb_gateway_egress_limit_bytes{sandbox="web"}`:                             "135.0",
		`msb_gateway_proxy_memory_bytes{sandbox="web"}`:                             "136.0",
		`msb_gateway_proxy_memory_full_total{sandbox="web"}`:                        "137.0",
	}
	if !maps.Equal(got, want) {
		t.Errorf("the figures are\n%v\nwant\n%v", got, want)
	}
	for series := range want {
		name, _, _ := strings.Cut(series, "{")
		family, counts := strings.CutSuffix(name, "_total")
		if wants := map[bool]string{true: "counter", false: "gauge"}[counts]; kinds[family] != wants {
			t.Errorf("%s is a %s, want a %s", name, kinds[family], wants)
		}
	}
}

// sourceFunc is a source of what it returns.
type sourceFunc func(ctx context.Context) ([]sandbox.Usage, error)

func (f sourceFunc) Usage(ctx context.Context, _ ...string) ([]sandbox.Usage, error) { return f(ctx) }

// TestI11_ScrapesAreBounded: four may be under way, each for a time, and one more is turned away.
func TestI11_ScrapesAreBounded(t *testing.T) {
	t.Parallel()
	const most = 4
	began, free, codes := make(chan struct{}), make(chan struct{}), make(chan int, most+1)
	h := handlerOf(&collector{from: sourceFunc(func(ctx context.Context) ([]sandbox.Usage, error) {
		if at, ok := ctx.Deadline(); !ok || time.Until(at) > collectWait {
			t.Errorf("a scrape has until %v (%v)", at, ok)
		}
		select {
		case began <- struct{}{}:
		case <-free:
		}
		<-free
		return nil, nil
	})})
	ask := func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil))
		codes <- w.Code
	}
	for range most {
		go ask()
		select {
		case <-began:
		case code := <-codes:
			t.Fatalf("one of %d is answered with %d", most, code)
		}
	}
	go ask()
	select {
	case <-began:
		t.Errorf("more than %d scrapes are under way", most)
	case code := <-codes:
		if code != http.StatusServiceUnavailable {
			t.Errorf("one too many is answered with %d", code)
		}
	}
	close(free)
	for range most {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("one of %d is answered with %d", most, code)
		}
	}
}

// TestOnlyFiguresAreServed at one path, and for reading.
func TestOnlyFiguresAreServed(t *testing.T) {
	t.Parallel()
	h := handlerOf(&collector{from: &fixed{}})
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/metrics", http.StatusOK}, {http.MethodPost, "/metrics", http.StatusMethodNotAllowed},
		{http.MethodGet, "/", http.StatusNotFound}, {http.MethodGet, "/metrics/more", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(c.method, "http://127.0.0.1"+c.path, nil)); w.Code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.want)
		}
	}
}

// TestWrittenFiguresEnd: a reader of OpenMetrics refuses what has no end.
func TestWrittenFiguresEnd(t *testing.T) {
	t.Parallel()
	home, err := sandbox.OpenHome(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, home); err != nil || out.String() != "# EOF\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
