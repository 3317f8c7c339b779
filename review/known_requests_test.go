package review_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/review"
)

// requestComment is a gateway's comment on a request to good.example.
func requestComment(v capture.Verdict) string {
	v.Kind, v.Flow, v.Scheme, v.Name = capture.KindRequest, 1, "http", "good.example"
	return v.String()
}

// TestI7_LongPathsAreJudgedWhole: no report keeps them. The request in the bytes is judged by its path; of one that only a comment
// is about, which has no room for it, nothing is decided.
func TestI7_LongPathsAreJudgedWhole(t *testing.T) {
	t.Parallel()
	path := func(n int) string { return "/open/" + strings.Repeat("a", n-6) }
	shut := "/shut/" + strings.Repeat("a", 3000)
	for name, c := range map[string]struct {
		path, comment string
		inBytes       bool
		want, listed  string
	}{
		"as long as is kept":       {path(2048), "", true, "allow rule", path(2048)},
		"longer":                   {path(2049), "", true, "allow rule", ""},
		"longer, shut":             {shut, "", true, "deny path_not_allowed", ""},
		"longer, with its comment": {shut, requestComment(capture.Verdict{Action: "deny", Reason: "path_not_allowed", Method: "GET"}), true, "deny path_not_allowed", ""},
		"in a comment only":        {"", requestComment(capture.Verdict{Action: "allow", Reason: "rule", Method: "GET"}), false, "undecided none", ""},
		"shut, in a comment only":  {"", requestComment(capture.Verdict{Action: "allow", Reason: "rule", Method: "DELETE"}), false, "undecided none", ""},
	} {
		l := newLink()
		l.tcp(40000, capture.SYN, 999, "")
		text := "GET " + c.path + goodHost + "\r\n"
		if !c.inBytes {
			text = ""
		}
		l.w.Packet(capture.FromGuest, segment(40000, capture.ACK, 1000, text), c.comment)
		r := l.review(t)
		if len(r.Requests) != 1 {
			t.Errorf("%s: %d requests", name, len(r.Requests))
			continue
		}
		q := r.Requests[0]
		if got := q.Verdict.Action + " " + q.Verdict.Reason; got != c.want || q.Path != c.listed || (q.Recorded != nil) != (c.comment != "") {
			t.Errorf("%s: %q, path of %d bytes, recorded %+v; want %q", name, got, len(q.Path), q.Recorded, c.want)
		}
		if cell := r.Rows(false)[2][2]; c.listed == "" && cell != "(a long path)" {
			t.Errorf("%s: the table says %q", name, cell)
		}
	}
}

// TestI7_EveryMethodOfAHeaderIsJudged: a request is denied for any of the methods that its headers ask for, whatever the others.
func TestI7_EveryMethodOfAHeaderIsJudged(t *testing.T) {
	t.Parallel()
	for overrides, want := range map[string]string{
		"": "allow rule", "POST": "allow rule", "DELETE": "deny method_not_allowed", "DELETE,POST": "deny method_not_allowed", "POST,DELETE": "deny method_not_allowed",
	} {
		l := newLink()
		comment := requestComment(capture.Verdict{Action: "allow", Reason: "rule", Method: "GET", Path: "/open/1", Overrides: overrides})
		l.w.Packet(capture.FromGuest, segment(40000, capture.SYN, 999, ""), comment)
		r := l.review(t)
		if got := r.Requests[0].Verdict.Action + " " + r.Requests[0].Verdict.Reason; got != want || len(r.Requests) != 1 {
			t.Errorf("%q: %s, want %s", overrides, got, want)
		}
	}
}

// TestI9_FixedDenialsStand: what a gateway refused whatever the rules say stays refused under every policy, with its request in the
// bytes and without. A policy's own denial does not.
func TestI9_FixedDenialsStand(t *testing.T) {
	t.Parallel()
	for reason, fixed := range map[string]bool{
		"host_mismatch": true, "unreadable": true, "invalid": true, "limit": true, "secret_violation": true,
		"path_not_allowed": false, "no_rule": false, "method_not_allowed": false,
	} {
		for _, inBytes := range []bool{true, false} {
			l := newLink()
			l.tcp(40000, capture.SYN, 999, "")
			text := ""
			if inBytes {
				text = "GET /open/1" + goodHost + "\r\n"
			}
			l.w.Packet(capture.FromGuest, segment(40000, capture.ACK, 1000, text), requestComment(capture.Verdict{Action: "deny", Reason: reason, Method: "GET", Path: "/open/1"}))
			if err := l.w.Close(); err != nil {
				t.Fatal(err)
			}
			want := []string{"deny " + reason, "deny " + reason}
			if !fixed {
				want = []string{"allow rule", "deny method_not_allowed"}
			}
			against := policy(t, strings.Replace(followPolicy, `"GET", `, "", 1))
			r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, followPolicy), Against: against, Learn: true})
			var got []string
			for _, q := range r.Requests {
				got = append(got, q.Verdict.Action+" "+q.Verdict.Reason, q.Against.Action+" "+q.Against.Reason)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, in the bytes %v: %q, want %q", reason, inBytes, got, want)
			}
			if learned := string(r.Learned()); strings.Contains(learned, "refused whatever the rules: "+reason) != fixed {
				t.Errorf("%s, in the bytes %v: learned\n%s", reason, inBytes, learned)
			}
		}
	}
}

// TestRequestsOfOnePolicyAreJudgedByConnection: a policy that does not look into a connection decides its requests as the
// connection, and what can't be followed is undecided under both.
func TestRequestsOfOnePolicyAreJudgedByConnection(t *testing.T) {
	t.Parallel()
	const public, shut = "[egress]\ndefault = \"public\"\n", ""
	for name, c := range map[string]struct {
		policy, against string
		want            []string
	}{
		"the other one looks":   {public, followPolicy, []string{"allow allow", "allow deny", "undecided undecided"}},
		"the first one looks":   {followPolicy, public, []string{"allow allow", "deny allow", "undecided undecided"}},
		"the first one is shut": {shut, followPolicy, []string{"deny allow", "deny deny", "undecided undecided"}},
		"both look":             {followPolicy, followPolicy, []string{"allow allow", "deny deny", "undecided undecided"}},
		"none looks":            {public, shut, nil},
	} {
		l := newLink()
		seq := l.says(40000, 1400, "GET /open/1"+goodHost+"\r\nGET /shut"+goodHost+"\r\n")
		l.tcp(40000, capture.ACK, seq+5, "behind a gap")
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, c.policy), Against: policy(t, c.against)})
		var got []string
		for _, q := range r.Requests {
			against := "-"
			if q.Against != nil {
				against = q.Against.Action
			}
			got = append(got, q.Verdict.Action+" "+against)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestI7_ProxiedRequestsAreOfTheNameAskedFor: an address may have other names, whose rules say nothing of what the gateway's proxy was
// asked for.
func TestI7_ProxiedRequestsAreOfTheNameAskedFor(t *testing.T) {
	t.Parallel()
	l := newLink()
	l.w.Names("other.example", []netip.Addr{netip.MustParseAddr("93.184.215.14")})
	l.w.Packet(capture.FromGuest, toProxy(capture.SYN, 999, ""), requestComment(capture.Verdict{
		Action: "deny", Reason: "path_not_allowed", Method: "GET", Path: "/shut", To: "93.184.215.14:80",
	}))
	if err := l.w.Close(); err != nil {
		t.Fatal(err)
	}
	const other = "[[egress.allow]]\nname = \"any\"\nhosts = [\"other.example\"]\nports = [80]\nprotocol = \"tcp\"\n"
	r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, other+followPolicy)})
	if got := verdictsOn(r); !slices.Equal(got, []string{"GET /shut deny path_not_allowed"}) {
		t.Errorf("%q, want it denied for its path", got)
	}
}
