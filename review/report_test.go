package review_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

// caseOf is a capture of the suite.
func caseOf(t *testing.T, name string) (c pcapgen.Case, file []byte) {
	t.Helper()
	all := pcapgen.Cases()
	i := slices.IndexFunc(all, func(c pcapgen.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %s", name)
	}
	file, _ = all[i].Capture()
	return all[i], file
}

func policy(t *testing.T, text string) *policies.Policy {
	t.Helper()
	p, err := policies.Parse("test.toml", []byte("version = 1\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func read(t *testing.T, file []byte, o review.Options) *review.Report {
	t.Helper()
	r, err := review.Read(t.Context(), "test", bytes.NewReader(file), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTwoPoliciesSideBySide(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "npm")
	r := read(t, file, review.Options{Policy: policy(t, "[egress]\ndefault = \"public\"\n"), Against: policyOf(t, &c)})
	var changed []string
	for _, row := range r.Rows(true)[1:] {
		changed = append(changed, strings.Join([]string{row[3], row[6], row[7]}, " "))
	}
	if got := strings.Join(changed, ", "); got != "telemetry.example deny allow, telemetry.example deny allow" {
		t.Errorf("changed: %s", got)
	}
	if r.Count(review.Loosened) != 2 || r.Count(review.Tightened) != 0 {
		t.Errorf("loosened %d, tightened %d", r.Count(review.Loosened), r.Count(review.Tightened))
	}
}

func TestAllowedPrivateIsFound(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"private-rule": 1, "hosts-mapped": 0, "addr-private": 0, "addr-metadata-by-range": 1} {
		c, file := caseOf(t, name)
		if n := read(t, file, review.Options{Policy: policyOf(t, &c)}).Count(review.AllowedPrivate); n != want {
			t.Errorf("%s: %d flows are let out to addresses that are not public, want %d", name, n, want)
		}
	}
}

// TestPrivateRulesJudgeByAddress: a target of [hosts] is the operator's choice, also where a rule
// narrows it. A rule that is called like one is not.
func TestPrivateRulesJudgeByAddress(t *testing.T) {
	t.Parallel()
	_, mapped := caseOf(t, "hosts-mapped")
	narrowed := policy(t, "[[egress.allow]]\nname = \"reads\"\nhosts = [\"registry.internal\"]\nprotocol = \"http\"\nports = [80]\nmethods = [\"GET\"]\n[hosts]\n\"registry.internal\" = \"127.0.0.1:5000\"\n")
	r := read(t, mapped, review.Options{Policy: narrowed})
	if n := r.Count(review.AllowedPrivate); n != 0 || len(r.Requests) == 0 {
		t.Errorf("a narrowed target of [hosts]: %d, want 0 of several: %q", n, r.Rows(false))
	}
	_, private := caseOf(t, "private-rule")
	named := policy(t, "[[egress.allow]]\nname = \"hosts of db\"\ncidrs = [\"10.0.0.0/8\"]\nports = [\"1-65535\"]\nprotocol = \"tcp\"\nprivate = true\n")
	r = read(t, private, review.Options{Policy: named})
	if n := r.Count(review.AllowedPrivate); n == 0 {
		t.Errorf("a private rule that is called hosts of db isn't counted: %q", r.Rows(false))
	}
}

func TestConditionsAreParsed(t *testing.T) {
	t.Parallel()
	all, err := review.ParseConditions(" changed, allowed-private ,")
	if err != nil || !slices.Equal(all, []review.Condition{review.IsChanged, review.AllowedPrivate}) {
		t.Errorf("got %v, %v", all, err)
	}
	if _, err := review.ParseConditions("chnaged"); err == nil || !strings.Contains(err.Error(), "allowed-private") {
		t.Errorf("an unknown condition: %v; want the known ones named", err)
	}
}

// TestLearnedPolicyLetsTheCaptureThrough learns from captures and judges them again.
func TestLearnedPolicyLetsTheCaptureThrough(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"apt", "pip", "npm", "git-https", "ssh", "curl-h1", "dual-stack", "udp-allowed"} {
		_, file := caseOf(t, name)
		learned := read(t, file, review.Options{Policy: policies.Default(), Learn: true}).Learned()
		p, err := policies.Parse("learned.toml", learned, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, learned)
		}
		r := read(t, file, review.Options{Policy: p})
		if n := r.Count(review.Denied) + r.Count(review.IsUndecided); n != 0 {
			t.Errorf("%s: under what was learned %d are not let out: %q\n%s", name, n, r.Rows(false), learned)
		}
	}
}

func TestDamageDoesNotStopAReview(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "pip")
	whole := read(t, file, review.Options{Policy: policyOf(t, &c)})
	cut := read(t, file[:len(file)*2/3], review.Options{Policy: policyOf(t, &c)})
	var e *capture.Error
	if len(cut.Damage) != 1 || !errors.As(cut.Damage[0].Err, &e) || e.Offset == 0 || !errors.Is(e, capture.ErrTruncated) {
		t.Errorf("damage: %v", cut.Damage)
	}
	if cut.Len() == 0 || cut.Len() > whole.Len() || cut.Count(review.Unreadable) == 0 {
		t.Errorf("%d flows of %d, unreadable %d", cut.Len(), whole.Len(), cut.Count(review.Unreadable))
	}
	for _, row := range cut.Rows(false)[1:3] {
		if row[7] != "allow" {
			t.Errorf("a row of the readable part: %q", row)
		}
	}
	text := strings.Join(cut.Summary(), "\n")
	if !strings.Contains(text, "at offset") {
		t.Errorf("the summary does not name the place: %s", text)
	}
	if r := read(t, nil, review.Options{Policy: policies.Default()}); len(r.Damage) != 1 || !errors.Is(r.Damage[0].Err, review.ErrEmpty) {
		t.Errorf("nothing at all: %v", r.Damage)
	}
	if r := read(t, []byte("no capture at all"), review.Options{Policy: policies.Default()}); len(r.Damage) != 1 || r.Len() != 0 {
		t.Errorf("a foreign file: %v", r.Damage)
	}
}

func TestFilesAreReadInTurn(t *testing.T) {
	t.Parallel()
	r, err := review.Run(t.Context(), review.Options{
		Policy:   policy(t, "include = [\"pypi\", \"npm\"]\n"),
		Captures: []string{filepath.Join(directory, "pip.pcapng"), filepath.Join(directory, "npm.pcapng")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Count(review.Denied) != 2 || r.Len() != 8 { // npm's lookup of a name that isn't allowed, and its flow; both captures have the same ports
		t.Errorf("%d denied of %d flows: %q", r.Count(review.Denied), r.Len(), r.Rows(false))
	}
	if _, err := review.Run(t.Context(), review.Options{Policy: policies.Default()}); !errors.Is(err, review.ErrNothing) {
		t.Errorf("without a capture: %v", err)
	}
	missing, err := review.Run(t.Context(), review.Options{Policy: policies.Default(), Captures: []string{"/does/not/exist"}})
	if err != nil || len(missing.Damage) != 1 || !errors.Is(missing.Damage[0].Err, os.ErrNotExist) || missing.Unread() != 1 {
		t.Errorf("a missing file: %+v, %v", missing, err)
	}
}

// TestPipesAreReadBesideOtherFiles: a pipe can be read once, so that nobody may look into it to sort it.
func TestPipesAreReadBesideOtherFiles(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "ssh")
	dir := t.TempDir()
	pipe, plain := filepath.Join(dir, "pipe"), filepath.Join(dir, "plain.pcap")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plain, file, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, file, 0o600) }()
	r, err := review.Run(t.Context(), review.Options{Captures: []string{plain, pipe}, Policy: policyOf(t, &c)})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	if len(r.Damage) != 0 || r.Bytes != 2*int64(len(file)) {
		t.Errorf("%d bytes, want both files' %d: %v", r.Bytes, 2*len(file), r.Damage)
	}
}

func TestJSONHoldsEverything(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "curl-h1")
	r := read(t, file, review.Options{Policy: policyOf(t, &c)})
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Packets  int64
		Lookups  []review.Lookup
		Requests []review.Request
		Flows    []review.Flow
	}
	dec := json.NewDecoder(&b)
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Packets != r.Packets || len(got.Flows) != r.Len() || len(got.Lookups) != 1 || len(got.Requests) != 1 {
		t.Fatalf("got %+v", got)
	}
	if f := got.Flows[1]; f.Dst != netip.MustParseAddrPort("93.184.215.14:80") || f.Verdict.Action != "inspect" || f.Name != "good.example" {
		t.Errorf("got %+v", f)
	}
}

// TestRotatedFilesAreReadOldestFirst: the lookup is in the older file, the flow in the newer, which a
// shell names first.
func TestRotatedFilesAreReadOldestFirst(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "git-https")
	path := filepath.Join(t.TempDir(), "out.pcapng")
	at := splitAt(t, file, 4) // two questions with their answers
	for p, part := range map[string][]byte{path + ".1": file[:at], path: slices.Concat(headOf(file), file[at:])} {
		if err := os.WriteFile(p, part, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := review.Run(t.Context(), review.Options{Policy: policyOf(t, &c), Captures: []string{path, path + ".1"}})
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Count(review.Denied); n != 0 || r.Len() != 3 || len(r.Damage) != 0 {
		t.Errorf("%d denied of %d flows, %v: %q", n, r.Len(), r.Damage, r.Rows(false))
	}
}

// splitAt is the offset behind the n-th packet.
func splitAt(t *testing.T, file []byte, n int) int {
	t.Helper()
	r, err := capture.NewReader(bytes.NewReader(file))
	for ; err == nil && n > 0; n-- {
		_, err = r.Next()
	}
	if err != nil {
		t.Fatal(err)
	}
	return int(r.Offset())
}

// headOf is a capture's section header and interface.
func headOf(file []byte) []byte {
	at := 0
	for range 2 {
		at += int(binary.LittleEndian.Uint32(file[at+4:]))
	}
	return file[:at]
}

// TestHostAddressesComeFromOptions: a capture doesn't say which addresses the host had.
func TestHostAddressesComeFromOptions(t *testing.T) {
	t.Parallel()
	_, file := caseOf(t, "port-scan")
	p := policy(t, "[egress]\ndefault = \"public\"\n")
	if n := read(t, file, review.Options{Policy: p}).Count(review.Denied); n != 0 {
		t.Errorf("%d denied", n)
	}
	host := []netip.Addr{netip.MustParseAddr("45.33.32.156")}
	if n := read(t, file, review.Options{Policy: p, Host: host}).Count(review.Denied); n != 40 {
		t.Errorf("%d denied of flows to the host's own address, want 40", n)
	}
}

// TestBenchmarkRangeIsNotLearned: addresses of it stand for lines of [hosts], and only those. A guest that
// tries one must not put a rule into the policy that can never match, with which it can't be loaded.
func TestBenchmarkRangeIsNotLearned(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "addr-special4")
	learned := read(t, file, review.Options{Policy: policyOf(t, &c), Learn: true}).Learned()
	if rules := bytes.Count(learned, []byte("[[egress.allow]]")); rules != 0 {
		t.Errorf("%d rules were learned from addresses that no rule opens:\n%s", rules, learned)
	}
}

// TestI5_LearningKeepsWhatNarrowsHosts: a line of [hosts] lets everything through unless a rule speaks of its
// name. What is learned must not be wider than the policy for such a name, used or not.
func TestI5_LearningKeepsWhatNarrowsHosts(t *testing.T) {
	t.Parallel()
	const mapped = "[hosts]\n\"registry.internal\" = \"127.0.0.1:5000\"\n\"idle.internal\" = \"127.0.0.1:5001\"\n"
	const rules = "[[egress.allow]]\nname = \"reads\"\nhosts = [\"*.internal\"]\nprotocol = \"http\"\nports = [80]\nmethods = [\"GET\"]\npaths = [\"/v2/**\"]\n"
	_, file := caseOf(t, "hosts-mapped")
	for name, base := range map[string]*policies.Policy{"lines alone": policy(t, mapped), "narrowed": policy(t, rules+mapped)} {
		learned := read(t, file, review.Options{Policy: base, Learn: true}).Learned()
		p, err := policies.Parse("learned.toml", learned, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, learned)
		}
		if strings.Contains(string(learned), "198.18.") { // what the gateway gave out for the name means nothing later
			t.Errorf("%s: an address that stands for a line of [hosts] is in what was learned:\n%s", name, learned)
		}
		if !strings.Contains(string(learned), "registry.internal") || len(p.Hosts) != 2 {
			t.Errorf("%s: the name that was used is not in what was learned:\n%s", name, learned)
		}
		engine, err := egress.New(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"registry.internal", "idle.internal"} {
			f := egress.Flow{
				Proto: egress.TCP, Dst: netip.MustParseAddrPort("198.18.1.0:22"), Mapped: true, Pinned: []hostname.Name{hostname.MustParse(host)},
			}
			if v := engine.Decide(&f); v.Allowed() != (name == "lines alone") {
				t.Errorf("%s: %s, port 22, which the policy decides otherwise: %v\n%s", name, host, v.Action, learned)
			}
		}
		if alone := strings.Contains(string(learned), "registry.internal tcp 80: 1 flow") && strings.Contains(string(learned), "nothing used; take out what isn't needed:\n#   idle.internal"); alone != (name == "lines alone") {
			t.Errorf("%s: the comment on [hosts]:\n%s", name, learned)
		}
		r := read(t, file, review.Options{Policy: p})
		for f := range r.Flows() {
			if f.Dst.Addr().String() == "198.18.1.0" && f.Verdict.Action == "deny" {
				t.Errorf("%s: what was seen is denied under what was learned: %+v\n%s", name, f.Verdict, learned)
			}
		}
	}
}
