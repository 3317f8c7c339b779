package review_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/review"
)

// browsersOwn are the hosts that Chromium asks for time and updates whatever it is told; here they end in
// a proxy that refuses everything.
var browsersOwn = regexp.MustCompile(`\.(google|googleapis)\.com(:\d+)?$`)

// chromium loads a page in a headless browser, with every name but the page's own led to a server that
// counts, and returns the page as its script left it. `scripts/setup --test` installs it.
func chromium(t *testing.T, page string) (dom string, requests int64) {
	t.Helper()
	var seen atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !browsersOwn.MatchString(r.Host) {
			seen.Add(1)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	var out, complaints bytes.Buffer
	c := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
		"--user-data-dir="+t.TempDir(), "--proxy-server="+proxy.URL, "--dump-dom", page)
	c.Stdout, c.Stderr = &out, &complaints
	if err := c.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, complaints.String())
	}
	return out.String(), seen.Load()
}

func writePage(t *testing.T, r *review.Report, title string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WriteHTML(f, title); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

var shownRows = regexp.MustCompile(`id="shown">([^<]*)<`)

func TestPageIsSearchableAndLoadsNothing(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "npm")
	page := writePage(t, read(t, file, review.Options{Policy: policyOf(t, &c)}), "npm & <friends>")
	all, requests := chromium(t, page)
	for _, want := range []string{"registry.npmjs.org", "telemetry.example", "no_rule", "npm &amp; &lt;friends&gt;", "<rect"} {
		if !strings.Contains(all, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if m := shownRows.FindStringSubmatch(all); m == nil || m[1] != "4 of 4 rows" {
		t.Errorf("the page's script says it shows %q, want all 4 rows", m)
	}
	found, more := chromium(t, page+"#q=telemetry+DENY")
	if m := shownRows.FindStringSubmatch(found); m == nil || m[1] != "1 of 4 rows" {
		t.Errorf("a search for the denied name shows %q, want 1 of 4", m)
	}
	for _, way := range []string{"http:", "https:", "//", " src=", "url(", "import", "fetch(", "XMLHttp"} {
		if text := strings.ReplaceAll(all, "text/javascript", ""); strings.Contains(text, way) {
			t.Errorf("the page holds %q, a way to load something", way)
		}
	}
	if requests+more != 0 {
		t.Errorf("the page made %d requests, want none", requests+more)
	}
}

// TestPageShowsHostileTextAsText: names and paths in a capture are the guest's.
func TestPageShowsHostileTextAsText(t *testing.T) {
	t.Parallel()
	_, file := caseOf(t, "apt")
	file = bytes.ReplaceAll(file, []byte("/debian/dists/trixie/InRelease"), []byte("/<script>alert(1)</script>/aaa"))
	p := policy(t, "[[egress.allow]]\nname = \"</script><script>document.title='owned'</script>\"\nhosts = [\"deb.debian.org\"]\nports = [80]\nprotocol = \"http\"\n")
	dom, _ := chromium(t, writePage(t, read(t, file, review.Options{Policy: p}), "</title><script>document.title='owned'</script>"))
	if strings.Contains(dom, "<title>owned") || strings.Count(dom, "<script>") != 1 {
		t.Errorf("text of the capture ran as script:\n%.2000s", dom)
	}
}

// TestPagesCountVerdictsAndNames: the tables above the flows say what the flows say, sums of bytes aside.
func TestPagesCountVerdictsAndNames(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "npm")
	r := read(t, file, review.Options{Policy: policyOf(t, &c)})
	flows, denied, byAction := map[string]int{}, map[string]int{}, map[string]int{}
	for f := range r.Flows() {
		if f.Verdict == nil {
			continue
		}
		name := cmp.Or(f.Name, strings.Join(f.Names, " "), f.Dst.Addr().String())
		flows[name]++
		byAction[f.Verdict.Action]++
		if f.Verdict.Action == "deny" {
			denied[name]++
		}
	}
	if len(flows) < 2 || len(byAction) < 2 {
		t.Fatalf("flows to %v with verdicts %v: the case has too little to count", flows, byAction)
	}
	var page bytes.Buffer
	if err := r.WriteHTML(&page, "npm"); err != nil {
		t.Fatal(err)
	}
	counted := map[string]int{}
	for _, row := range regexp.MustCompile(`<tr><td class="(\w+)">\w+</td><td>[^<]*</td><td>[^<]*</td><td class="n">(\d+)</td>`).FindAllStringSubmatch(page.String(), -1) {
		n, _ := strconv.Atoi(row[2])
		counted[row[1]] += n
	}
	if !maps.Equal(counted, byAction) {
		t.Errorf("verdicts are counted as %v, want %v", counted, byAction)
	}
	for name, n := range flows {
		row := fmt.Sprintf(`<tr><td>%s</td><td class="n">%d</td><td class="n">%d</td>`, name, n, denied[name])
		if !strings.Contains(page.String(), row) {
			t.Errorf("no row %s", row)
		}
	}
}

// TestPagesSayWhatTheyDontList: a guest that looks up, connects and asks very often hides nothing without a word. The twin
// is as much as a page lists.
func TestPagesSayWhatTheyDontList(t *testing.T) {
	t.Parallel()
	const flows, rows, names = 5000, 5000, 2000
	c, _ := caseOf(t, "npm")
	for _, beyond := range []int{0, 3} {
		r := read(t, pcapgen.Many(flows+beyond), review.Options{Policy: policyOf(t, &c)})
		r.Requests = nil
		for range rows + beyond {
			r.Requests = append(r.Requests, review.Request{Verdict: review.Verdict{Action: "allow"}})
		}
		for len(r.Lookups) < names+beyond {
			r.Lookups = append(r.Lookups, r.Lookups[0])
		}
		for _, uncounted := range []int64{0, 4} {
			r.MoreRequests = uncounted
			var page bytes.Buffer
			if err := r.WriteHTML(&page, "many"); err != nil {
				t.Fatal(err)
			}
			for what, n := range map[string]int{"requests are": beyond + int(uncounted), "flows are counted above but": beyond, "lookups are": beyond} {
				sentence := fmt.Sprintf("<p>%d more %s not listed", n, what)
				if got := strings.Contains(page.String(), "more "+what+" not listed"); got != (n > 0) || n > 0 && !strings.Contains(page.String(), sentence) {
					t.Errorf("%d beyond, %d uncounted: said %v, want %q", beyond, uncounted, got, sentence)
				}
			}
		}
	}
}
