package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// fixed is a source of fixed figures.
type fixed struct {
	all []sandbox.Usage
	err error
}

func (f *fixed) Usage(context.Context, ...string) ([]sandbox.Usage, error) { return f.all, f.err }

func scrape(t *testing.T, from source, host, accept string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://"+host+"/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	handlerOf(&collector{from: from}).ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

const openMetrics = "application/openmetrics-text;version=1.0.0"

func TestFiguresBecomeOpenMetrics(t *testing.T) {
	t.Parallel()
	from := &fixed{all: []sandbox.Usage{
		{
			Name: "web", Started: time.Unix(1000, 0), CPU: 1500 * time.Millisecond, Memory: 512 << 20,
			Guest: &sandbox.GuestUsage{Processes: 7},
			Gateway: &sandbox.GatewayUsage{
				BytesUp: 10, BytesDown: 20, Denied: []sandbox.DeniedUsage{{Kind: "flow.open", Reason: "no_rule", Count: 3}},
				DNS: sandbox.DNSUsage{Queries: 5, Refused: 2}, EgressBytes: 9, EgressLimit: 100,
			},
		},
		{Name: "alone", Memory: 256 << 20},
		{Name: "hung", Problem: "it did not answer"},
	}}
	code, text := scrape(t, from, "127.0.0.1:9464", openMetrics)
	if code != http.StatusOK || !strings.HasSuffix(text, "# EOF\n") {
		t.Fatalf("%d:\n%s", code, text)
	}
	for _, want := range []string{
		`msb_sandbox_up{sandbox="web"} 1.0`, `msb_sandbox_up{sandbox="hung"} 0.0`, `msb_sandbox_cpu_seconds_total{sandbox="web"} 1.5`,
		`msb_guest_processes{sandbox="web"} 7.0`, `msb_gateway_link_bytes_total{direction="up",sandbox="web"} 10.0`,
		`msb_gateway_denied_total{kind="flow.open",reason="no_rule",sandbox="web"} 3.0`,
		`msb_gateway_dns_outcomes_total{outcome="refused",sandbox="web"} 2.0`, `msb_gateway_egress_limit_bytes{sandbox="web"} 100.0`,
		`msb_sandbox_memory_limit_bytes{sandbox="alone"} 2.68435456e+08`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, `sandbox="hung"`) && !strings.HasPrefix(line, "msb_sandbox_up") ||
			strings.Contains(line, `sandbox="alone"`) && (strings.HasPrefix(line, "msb_guest") || strings.HasPrefix(line, "msb_gateway")) {
			t.Errorf("a figure that was not given: %s", line)
		}
	}
}

func TestUnreadableHomesFailTheScrape(t *testing.T) {
	t.Parallel()
	if code, text := scrape(t, &fixed{err: errors.New("no directory")}, "127.0.0.1", openMetrics); code != http.StatusInternalServerError || !strings.Contains(text, "no directory") {
		t.Errorf("%d: %s", code, text)
	}
}

// TestScrapesByForeignNamesAreRefused guards against web pages that point a name of their own at 127.0.0.1. Its twins
// are the addresses, which are answered.
func TestScrapesByForeignNamesAreRefused(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]int{
		"evil.example:9464": http.StatusMisdirectedRequest, "localhost.evil.example": http.StatusMisdirectedRequest,
		"127.0.0.1:9464": http.StatusOK, "[::1]:9464": http.StatusOK, "[::1]": http.StatusOK, "localhost:9464": http.StatusOK, "LocalHost": http.StatusOK, "192.0.2.1": http.StatusOK,
	} {
		if code, _ := scrape(t, &fixed{}, host, openMetrics); code != want {
			t.Errorf("%s: %d, want %d", host, code, want)
		}
	}
}

func TestListenDefaultsToLoopback(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"9464": "127.0.0.1:9464", ":9464": "127.0.0.1:9464", "localhost:9464": "127.0.0.1:9464", "[::1]:9464": "[::1]:9464",
		"0.0.0.0:9464": "0.0.0.0:9464", "192.0.2.1:0": "192.0.2.1:0",
	} {
		if got, err := ParseListen(in); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "web:9464", "127.0.0.1", "127.0.0.1:http", "99999", "*:9464"} {
		if got, err := ParseListen(in); !errors.Is(err, errListen) {
			t.Errorf("%q: %s, %v", in, got, err)
		}
	}
}

var metricName = regexp.MustCompile(`\bmsb_[a-z_]+`)

func TestTheDashboardNamesMetricsThatExist(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &dashboard); err != nil || len(dashboard.Panels) == 0 {
		t.Fatal(err, "or no panels")
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			if metricName.FindString(target.Expr) == "" {
				t.Errorf("panel %q asks for no metric of msb: %s", p.Title, target.Expr)
			}
		}
	}
	for _, name := range metricName.FindAllString(string(raw), -1) {
		if !slices.Contains(metricNames(), name) {
			t.Errorf("there is no metric %s", name)
		}
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := metricName.FindAllString(string(page), -1)
	for _, name := range metricNames() {
		if !slices.Contains(documented, name) {
			t.Errorf("docs/metrics.md does not name %s", name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(metricNames(), name) {
			t.Errorf("docs/metrics.md names %s, which does not exist", name)
		}
	}
}

// metricNames are those of all metrics.
func metricNames() []string {
	all := make([]string, 0, len(figures))
	for i := range figures {
		all = append(all, figures[i].name)
	}
	return all
}
