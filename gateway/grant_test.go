package gateway_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/policies"
)

// granted is what a person approved: GET from one host.
func granted(t *testing.T, host string, methods ...string) policies.Rule {
	t.Helper()
	r, err := policies.RequestRule(nil, host, 443, methods)
	if err != nil {
		t.Fatal(err)
	}
	r.Name = "request 1"
	return r
}

// TestI15_GrantsOpenOneHost: a sandbox under a floor that allows nothing gets one host, for one method, over a reload of its
// policy, until that is taken back, which resets what is open.
func TestI15_GrantsOpenOneHost(t *testing.T) {
	t.Parallel()
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, ""), func(c *gateway.Config) { c.Floor = gatewaytest.Policy(t, "") })
	for _, host := range []string{"api.example.com", "other.example.com"} {
		w.Record(host + ". 60 IN A " + site)
	}
	hold := make(chan struct{})
	w.ServeHTTPS(site+":443", w.CA.Certificate("api.example.com", "other.example.com"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			_ = http.NewResponseController(rw).Flush()
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(rw, "answer")
	}))
	defer close(hold)
	if m := w.Resolve("api.example.com", dns.TypeA); m.Rcode == dns.RcodeSuccess {
		t.Fatalf("before: %v", m)
	}
	if err := w.Gateway.Grant([]policies.Rule{granted(t, "api.example.com", "GET")}); err != nil {
		t.Fatal(err)
	}
	if err := w.Gateway.Reload(gatewaytest.Policy(t, "# edited\n")); err != nil {
		t.Fatal(err)
	}
	client := w.Client()
	get := func(method, url string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, err
	}
	if code, err := get("GET", "https://api.example.com/"); code != 200 || err != nil {
		t.Fatalf("granted: %d, %v", code, err)
	}
	if code, err := get("POST", "https://api.example.com/"); code == 200 && err == nil {
		t.Error("a method that was not granted is let through")
	}
	if m := w.Resolve("other.example.com", dns.TypeA); m.Rcode == dns.RcodeSuccess {
		t.Errorf("another host is open: %v", m)
	}
	if e := w.Audit.Wait(t, audit.HTTPRequest, 1)[0]; e.Rule != "request 1" {
		t.Errorf("audit line %+v", e)
	}
	addr := w.Lookup("api.example.com")
	c, err := w.Dial(addr, 443)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	open := tls.Client(c, &tls.Config{ServerName: "api.example.com", InsecureSkipVerify: true})
	if _, err := io.WriteString(open, "GET /hold HTTP/1.1\r\nHost: api.example.com\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Read(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if err := w.Gateway.Grant(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, open); err == nil || errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(err.Error(), "timeout") {
		t.Errorf("a connection outlives what let it through: %v", err)
	}
	if m := w.Resolve("api.example.com", dns.TypeA); m.Rcode == dns.RcodeSuccess {
		t.Errorf("after: %v", m)
	}
	if c, err := w.Dial(addr, 443); err == nil {
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		if tls.Client(c, &tls.Config{ServerName: "api.example.com", InsecureSkipVerify: true}).Handshake() == nil {
			t.Error("its address is still open")
		}
		_ = c.Close()
	}
}

// TestI15_RefusedUsesSendNothing refuses uses of a rule: of a connection that is relayed, of one that is inspected, and of a
// request on one that another rule inspects. The twin refuses none.
func TestI15_RefusedUsesSendNothing(t *testing.T) {
	t.Parallel()
	const reads = "[[egress.allow]]\nname = \"reads\"\nhosts = [\"api.example.com\"]\nports = [443]\nprotocol = \"https\"\nmethods = [\"GET\"]\n"
	for name, c := range map[string]struct {
		policy  string
		methods []string
		other   int // answers to requests of the other rule
	}{"relayed": {"", nil, 0}, "inspected": {"", []string{"POST"}, 0}, "beside another rule": {reads, []string{"POST"}, 1}} {
		for _, refuses := range []bool{true, false} {
			var mu sync.Mutex
			uses := map[uint64]int{}
			w := gatewaytest.StartWith(t, gatewaytest.Policy(t, c.policy), func(cfg *gateway.Config) {
				cfg.Granted = []policies.Rule{granted(t, "api.example.com", c.methods...)}
				cfg.Use = func(flow uint64, rule string) error {
					if rule != "request 1" {
						return nil
					}
					mu.Lock()
					defer mu.Unlock()
					uses[flow]++
					if refuses {
						return errors.New("used up")
					}
					return nil
				}
			})
			w.Record("api.example.com. 60 IN A " + site)
			var posts atomic.Int32
			w.ServeHTTPS(site+":443", w.CA.Certificate("api.example.com"), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					posts.Add(1)
				}
			}))
			client := w.Client()
			answers := 0
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				r, err := http.NewRequestWithContext(t.Context(), method, "https://api.example.com/", nil)
				if err != nil {
					t.Fatal(err)
				}
				if answer, err := client.Do(r); err == nil {
					_ = answer.Body.Close()
					if answer.StatusCode == http.StatusOK {
						answers++
					}
				}
			}
			w.Close()
			mu.Lock()
			if len(uses) == 0 || uses[0] > 0 {
				t.Errorf("%s: uses by flow: %v", name, uses)
			}
			mu.Unlock()
			if refuses && (posts.Load() > 0 || answers != c.other) || !refuses && posts.Load() != 1 {
				t.Errorf("%s, refused %t: %d posts outside, %d answers", name, refuses, posts.Load(), answers)
			}
			if dialled := len(w.Dialled()); refuses && c.other == 0 && dialled > 0 {
				t.Errorf("%s: %d connections went outside", name, dialled)
			}
		}
	}
}

// TestI15_DenyRulesBeatGrants: what the floor denies, nobody grants, and a later version of the policy that denies it ends it.
func TestI15_DenyRulesBeatGrants(t *testing.T) {
	t.Parallel()
	const deny = "[[egress.deny]]\nhosts = [\"*.example.com\"]\n"
	rules := []policies.Rule{granted(t, "api.example.com")}
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, ""), func(c *gateway.Config) { c.Floor = gatewaytest.Policy(t, deny) })
	if err := w.Gateway.Grant(rules); err == nil {
		t.Error("a host that the floor denies was granted")
	}
	w = gatewaytest.StartWith(t, gatewaytest.Policy(t, ""), func(c *gateway.Config) { c.Granted = rules })
	w.Record("api.example.com. 60 IN A " + site)
	w.Serve(site+":443", func(c net.Conn) { _ = c.Close() })
	if m := w.Resolve("api.example.com", dns.TypeA); m.Rcode != dns.RcodeSuccess {
		t.Errorf("granted from the start: %v", m)
	}
	if err := w.Gateway.Reload(gatewaytest.Policy(t, deny)); err != nil {
		t.Fatal(err)
	}
	if m := w.Resolve("api.example.com", dns.TypeA); m.Rcode == dns.RcodeSuccess {
		t.Errorf("denied since: %v", m)
	}
}

// TestI12_FailedGrantsChangeNothing: a rule that can't be put in force is an error. What was granted before stays, and so
// does the way to another policy.
func TestI12_FailedGrantsChangeNothing(t *testing.T) {
	t.Parallel()
	const takesName = "[[egress.allow]]\nname = \"taken\"\nhosts = [\"web.example.com\"]\n"
	good, broken, taken := granted(t, "api.example.com", "GET"), granted(t, "other.example.com", "GET"), granted(t, "other.example.com")
	broken.Name, broken.CIDRs = "request 2", []netip.Prefix{netip.MustParsePrefix("93.184.216.0/24")} // hosts and cidrs: the engine refuses it
	taken.Name = "taken"
	for what, rule := range map[string]policies.Rule{"a rule that the engine refuses": broken, "a name that is taken": taken} {
		w := gatewaytest.StartWith(t, gatewaytest.Policy(t, takesName), func(c *gateway.Config) { c.Floor = gatewaytest.Policy(t, "[egress]\ndefault = \"public\"\n") })
		w.Record("api.example.com. 60 IN A "+site, "other.example.com. 60 IN A "+site)
		if err := w.Gateway.Grant([]policies.Rule{good}); err != nil {
			t.Fatal(err)
		}
		if err := w.Gateway.Grant([]policies.Rule{good, rule}); err == nil {
			t.Errorf("%s was granted", what)
		}
		if err := w.Gateway.Reload(gatewaytest.Policy(t, "# edited\n")); err != nil {
			t.Errorf("%s: a reload after it: %v", what, err)
		}
		for host, want := range map[string]int{"api.example.com": dns.RcodeSuccess, "other.example.com": dns.RcodeNameError} {
			if m := w.Resolve(host, dns.TypeA); m.Rcode != want {
				t.Errorf("%s: %s has the code %s, want %s", what, host, dns.RcodeToString[m.Rcode], dns.RcodeToString[want])
			}
		}
	}
}
