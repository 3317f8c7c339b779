package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/miekg/dns"

	"github.com/msb-project/msb/sandbox"
)

// trial is a user with a state directory, and a policy file that somebody else wrote.
type trial struct {
	dir, policy, ran string
	env              []string
}

// newTrial writes a policy whose secret comes from a command that leaves a trace.
func newTrial(t *testing.T) *trial {
	t.Helper()
	dir := t.TempDir()
	tr := &trial{dir: dir, policy: filepath.Join(dir, "theirs", "policy.toml"), ran: filepath.Join(dir, "ran")}
	tr.env = []string{sandbox.EnvHome + "=" + filepath.Join(dir, "home"), "TAKEN=a-value-of-the-host"}
	if err := os.Mkdir(filepath.Dir(tr.policy), 0o700); err != nil {
		t.Fatal(err)
	}
	tr.write(t, "policy.toml", tr.text("a.example"))
	return tr
}

const trialHead = "version = 1\n[[egress.allow]]\nname = \"web\"\nhosts = [\"a.example\"]\n[hosts]\n\"a.example\" = \"builtin:echo\"\n"

func (tr *trial) text(host string) string {
	return trialHead + fmt.Sprintf("[secrets.T]\nfrom = [\"command:sh\", \"-c\", \"echo ran >> %s; echo value-of-a-command\"]\nhosts = [%q]\nin = [\"basic\"]\n", tr.ran, host)
}

func (tr *trial) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(tr.policy), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// gateway starts a gateway that ends at once for want of a socket, having read its secrets.
func (tr *trial) gateway(t *testing.T, args ...string) result {
	t.Helper()
	return msb(t, tr.env, append([]string{"gateway", "--listen", "fd:99"}, args...)...)
}

// runs counts how often the command ran.
func (tr *trial) runs(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(tr.ran)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("ran"))
}

// refused fails the test unless msb ended before it took anything, with the way to approve it.
func (tr *trial) refused(t *testing.T, got result, words ...string) {
	t.Helper()
	for _, w := range append(words, "msb policy trust ") {
		if got.code != exitPolicyInvalid || !strings.Contains(got.err, w) || got.out != "" {
			t.Errorf("exit %d, printed %q and said %q; want %d and %q", got.code, got.out, got.err, exitPolicyInvalid, w)
		}
	}
}

// cameUp fails the test unless the gateway came to its socket.
func cameUp(t *testing.T, got result) {
	t.Helper()
	if got.code != exitOther || !strings.Contains(got.err, "fd:99") {
		t.Errorf("exit %d, said %q; want a gateway that lacks its socket", got.code, got.err)
	}
}

func TestI15_AnUnapprovedPolicyTakesNothing(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	tr.refused(t, tr.gateway(t, "--policy", tr.policy), tr.policy, "value-of-a-command", "a.example")
	tr.refused(t, msb(t, tr.env, "run", "--policy", tr.policy, "--", "true"))
	tr.refused(t, msb(t, tr.env, "create", "--policy", tr.policy, "web"))
	for _, args := range [][]string{
		{"policy", "check", tr.policy}, {"policy", "show", tr.policy}, {"policy", "diff", tr.policy, tr.policy},
		{"policy", "explain", tr.policy, "--to", "a.example:443"},
	} {
		if got := msb(t, tr.env, args...); got.code != 0 {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if n := tr.runs(t); n != 0 {
		t.Errorf("the command ran %d times", n)
	}
	// The twin: approved, it runs.
	cameUp(t, tr.gateway(t, "--trust", "--policy", tr.policy))
	if n := tr.runs(t); n != 1 {
		t.Errorf("under --trust the command ran %d times", n)
	}
	tr.refused(t, tr.gateway(t, "--policy", tr.policy)) // --trust was for once
}

func TestI15_ApprovalIsOfTheGrants(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	got := msb(t, tr.env, "policy", "trust", tr.policy)
	if got.code != 0 || !strings.Contains(got.out, "value-of-a-command") || tr.runs(t) != 0 {
		t.Fatalf("%+v, the command ran %d times", got, tr.runs(t))
	}
	cameUp(t, tr.gateway(t, "--policy", tr.policy))
	link := filepath.Join(tr.dir, "link.toml")
	if err := os.Symlink(tr.policy, link); err != nil {
		t.Fatal(err)
	}

	// Rules are edited freely.
	tr.write(t, "policy.toml", strings.Replace(tr.text("a.example"), "name = \"web\"", "name = \"the web\"\nports = [443, 8443]", 1))
	cameUp(t, tr.gateway(t, "--policy", tr.policy))

	// One grant more, and only that one is shown.
	tr.write(t, "policy.toml", tr.text("a.example")+"[secrets.U]\nfrom = \"env:TAKEN\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\nplaceholder = \"u_{20}\"\n")
	runs := tr.runs(t)
	got = tr.gateway(t, "--policy", tr.policy)
	tr.refused(t, got, "variable TAKEN")
	if strings.Contains(got.err, "value-of-a-command") && !strings.Contains(got.err, "secret U") || tr.runs(t) != runs {
		t.Errorf("said %q, the command ran %d times", got.err, tr.runs(t)-runs)
	}

	// Another file with the same text is another policy; approval can be taken back.
	tr.refused(t, tr.gateway(t, "--policy", tr.write(t, "copy.toml", tr.text("a.example"))))
	tr.write(t, "policy.toml", tr.text("a.example"))
	if err := os.Remove(filepath.Join(filepath.Dir(tr.policy), "copy.toml")); err != nil {
		t.Fatal(err)
	}
	if got := msb(t, tr.env, "policy", "trust", "--forget", tr.policy); got.code != 0 {
		t.Error(got)
	}
	tr.refused(t, tr.gateway(t, "--policy", tr.policy))

	files, err := filepath.Glob(filepath.Join(tr.dir, "home/trust/*"))
	if err != nil || len(files) != 0 {
		t.Errorf("%q, %v", files, err)
	}
}

func TestI15_FlagsNeedNoApproval(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	plain := tr.write(t, "plain.toml", "version = 1\n")
	got := msb(t, tr.env, "run", "--policy", plain, "--allow", "10.20.0.5:5432/tcp+private", "dir:/nosuch", "--", "true")
	if got.code != exitImageUnknown {
		t.Errorf("flags are asked about: %+v", got)
	}
	got = msb(t, tr.env, "run", "--policy", plain, "--add-host", "db.internal=127.0.0.1:5432", "--secret", "T=file:"+plain+"@b.example", "dir:/nosuch", "--", "true")
	if got.code != exitImageUnknown {
		t.Errorf("a secret and a host of flags are asked about: %+v", got)
	}
	// Those of a file beside them are.
	tr.refused(t, msb(t, tr.env, "run", "--policy", tr.policy, "--allow", "10.20.0.5:5432/tcp+private", "--", "true"))
}

func TestI15_FloorsAllowWhatTheyName(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	floor := filepath.Join(filepath.Dir(tr.policy), "floor.toml")
	writeFloor := func(text string) {
		t.Helper()
		if err := os.WriteFile(floor, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeFloor(trialHead)
	for _, approve := range [][]string{{"--trust"}, nil} {
		if approve == nil {
			if got := msb(t, tr.env, "policy", "trust", tr.policy, floor); got.code != 0 {
				t.Fatal(got)
			}
		}
		got := tr.gateway(t, append(approve, "--policy", tr.policy, "--floor", floor)...)
		if got.code != exitPolicyInvalid || !strings.Contains(got.err, "floor names no secret") || tr.runs(t) != 0 {
			t.Errorf("approved by %q: %+v, the command ran %d times", approve, got, tr.runs(t))
		}
	}
	// Named by the floor it runs, once the policy or the floor is approved.
	for _, file := range []string{tr.policy, floor} {
		writeFloor(tr.text("a.example"))
		if got := msb(t, tr.env, "policy", "trust", "--forget", tr.policy, floor); got.code != 0 {
			t.Fatal(got)
		}
		before := tr.runs(t)
		tr.refused(t, tr.gateway(t, "--policy", tr.policy, "--floor", floor))
		if tr.runs(t) != before {
			t.Error("it ran unapproved")
		}
		if got := msb(t, tr.env, "policy", "trust", file); got.code != 0 {
			t.Fatal(got)
		}
		cameUp(t, tr.gateway(t, "--policy", tr.policy, "--floor", floor))
		if tr.runs(t) != before+1 {
			t.Errorf("%s approved: the command didn't run", file)
		}
	}
}

// TestI15_FloorCommandsStayInTheirTree: a policy that repeats what an approved floor says would run its own
// writer's files by it.
func TestI15_FloorCommandsStayInTheirTree(t *testing.T) {
	t.Parallel()
	for _, from := range []string{
		`["command:sh", "./get-token"]`, `["command:sh", "-c", ". ./get-token"]`, `"command:make -s token"`, `"command:env -S ./get-token"`, `"command:./get-token"`,
	} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			tr := newTrial(t)
			ours := filepath.Join(tr.dir, "ours")
			if err := os.Mkdir(ours, 0o700); err != nil {
				t.Fatal(err)
			}
			text := trialHead + "[secrets.T]\nfrom = " + from + "\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"
			for dir, mark := range map[string]string{ours: "their-token", filepath.Dir(tr.policy): "planted; echo ran >> " + tr.ran} {
				for name, b := range map[string]string{
					"policy.toml": text, "get-token": "#!/bin/sh\necho a-value-of-" + mark + "\n", "Makefile": "token:\n\t@sh ./get-token\n",
				} {
					if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o700); err != nil {
						t.Fatal(err)
					}
				}
			}
			floor := filepath.Join(ours, "policy.toml")
			if got := msb(t, tr.env, "policy", "trust", floor); got.code != 0 {
				t.Fatal(got)
			}
			got := tr.gateway(t, "--policy", tr.policy, "--floor", floor)
			if got.code != exitPolicyInvalid || tr.runs(t) != 0 {
				t.Errorf("%+v, the other tree's file ran %d times", got, tr.runs(t))
			}
			// The twin: the floor over itself runs its own.
			if got := tr.gateway(t, "--policy", floor, "--floor", floor); got.code != exitOther || tr.runs(t) != 0 {
				t.Errorf("in the floor's tree: %+v", got)
			}
		})
	}
}

func TestReadableSecretFilesAreNamed(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	token := tr.write(t, "token", "value-of-a-file")
	tr.write(t, "policy.toml", trialHead+"[secrets.T]\nfrom = \"file:token\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n")
	for mode, told := range map[os.FileMode]bool{0o600: false, 0o644: true, 0o640: true} {
		if err := os.Chmod(token, mode); err != nil {
			t.Fatal(err)
		}
		if got := tr.gateway(t, "--trust", "--policy", tr.policy); strings.Contains(got.err, "chmod 600") != told {
			t.Errorf("mode %v: %q", mode, got.err)
		}
	}
}

// A floor that only reports doesn't let through what it denies under a policy that enforces.
func TestAReportingFloorLoosensNothing(t *testing.T) {
	t.Parallel()
	const open = "[egress]\ndefault = \"public\"\n"
	policy := write(t, "p.toml", "version = 1\n"+open)
	reporting := write(t, "r.toml", "version = 1\n[egress]\nmode = \"report\"\n[[egress.deny]]\nhosts = [\"evil.example\"]\n")
	both := write(t, "b.toml", "version = 1\n[egress]\nmode = \"report\"\n")
	explain := func(policy string) int {
		return msb(t, nil, "policy", "explain", "--floor", reporting, policy, "--to", "evil.example:443").code
	}
	if code := explain(policy); code != exitDenied {
		t.Errorf("enforced over a floor that reports: exit %d", code)
	}
	if code := explain(both); code != 0 {
		t.Errorf("both report: exit %d", code)
	}
}

// A guest that can write its own policy file gains nothing by it.
func TestI15_ReloadsGrantNothingUnapproved(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	log := filepath.Join(tr.dir, "audit.jsonl")
	plain := trialHead + "[secrets.U]\nfrom = \"env:GATEWAY_TEST_TOKEN\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"
	tr.write(t, "policy.toml", plain)
	startGatewayIn(t, tr.env, "--policy", tr.policy, "--listen", "unix://"+filepath.Join(tr.dir, "s"), "--audit", log)
	await := func(words string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			b, _ := os.ReadFile(log) // it is there soon
			if bytes.Contains(b, []byte(words)) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%q is not in the log:\n%s", words, b)
			}
		}
	}
	for i, text := range []string{
		strings.Replace(plain, "env:GATEWAY_TEST_TOKEN", "env:TAKEN", 1),
		strings.Replace(tr.text("a.example"), "secrets.T", "secrets.V", 1),
		trialHead + "\"x.internal\" = \"127.0.0.1:1\"\n",
		plain + "[dns]\nservers = [\"udp://10.9.8.7\"]\n",
		plain + "[[egress.allow]]\ncidrs = [\"10.9.0.0/16\"]\nports = [22]\nprivate = true\n",
	} {
		tr.write(t, "policy.toml", text)
		await([]string{"variable TAKEN", "value-of-a-command", "x.internal at 127.0.0.1:1", "10.9.8.7", "10.9.0.0/16"}[i])
	}
	if msb(t, tr.env, "policy", "trust", tr.policy).code != 0 || tr.runs(t) != 0 {
		t.Errorf("the command ran %d times", tr.runs(t))
	}
	tr.write(t, "policy.toml", strings.Replace(plain, "name = \"web\"", "name = \"edited\"", 1))
	await("a new policy is in force")
}

// At a terminal the new grants are shown, and the answer decides.
func TestI15_AnswersAtTerminalsDecide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer string
		runs   int
	}{{"n\n", 0}, {"\n", 0}, {"y\n", 1}, {"yes please\n", 0}} {
		tr := newTrial(t)
		tr.write(t, "policy.toml", strings.Replace(tr.text("a.example"), "value-of-a-command", "value-of-a-command # \\u001b[2J", 1))
		cmd := command(t, tr.env, "gateway", "--listen", "fd:99", "--policy", tr.policy)
		screen := atTerminal(t, cmd, "[y/N] ", c.answer)
		if got := tr.runs(t); got != c.runs || !strings.Contains(screen, "value-of-a-command") || strings.Contains(screen, "\x1b") {
			t.Errorf("%q: the command ran %d times\n%s", c.answer, got, screen)
		}
		if code := cmd.ProcessState.ExitCode(); c.runs == 0 && code != exitPolicyInvalid {
			t.Errorf("%q: exit %d", c.answer, code)
		}
		if c.runs == 1 { // once is enough
			cameUp(t, tr.gateway(t, "--policy", tr.policy))
		}
	}
}

// atTerminal runs cmd at a terminal of its own, answers its question, and returns all that it showed.
func atTerminal(t *testing.T, cmd *exec.Cmd, question, answer string) string {
	t.Helper()
	master, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = master.Close() }()
	stop := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	var screen bytes.Buffer
	buffer := make([]byte, 4096)
	for answered := false; ; {
		n, err := master.Read(buffer)
		screen.Write(buffer[:n])
		if !answered && strings.Contains(screen.String(), question) {
			answered = true
			if _, err := master.WriteString(answer); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil { // EIO: nobody has the other end any more
			break
		}
	}
	_ = cmd.Wait()
	return screen.String()
}

// countingResolver is a DNS server on loopback that counts what it is asked.
func countingResolver(t *testing.T) (addr string, asked *atomic.Int64) {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked = new(atomic.Int64)
	started := make(chan struct{})
	srv := &dns.Server{PacketConn: pc, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, m *dns.Msg) {
		asked.Add(1)
		_ = w.WriteMsg(new(dns.Msg).SetReply(m))
	})}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.ActivateAndServe() })
	<-started
	t.Cleanup(func() { _ = srv.Shutdown(); wg.Wait() })
	return pc.LocalAddr().String(), asked
}

func TestI15_DNSAsksNoUnapprovedResolver(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	addr, asked := countingResolver(t)
	tr.write(t, "policy.toml", "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n[dns]\nservers = [\"udp://"+addr+"\"]\n")
	query := []string{"dns", "a.example", "--policy", tr.policy}
	tr.refused(t, msb(t, tr.env, query...), "resolver", addr)
	// Under a floor that names it, approval of the floor does.
	floor := filepath.Join(tr.dir, "floor.toml")
	if err := os.WriteFile(floor, []byte("version = 1\n[[egress.allow]]\nhosts = [\"*.example\"]\n[dns]\nservers = [\"udp://"+addr+"\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	under := append(query, "--floor", floor)
	tr.refused(t, msb(t, tr.env, under...), "resolver", addr)
	if n := asked.Load(); n != 0 {
		t.Errorf("a resolver that nobody approved was asked %d times", n)
	}
	if got := msb(t, tr.env, "policy", "trust", floor); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for _, args := range [][]string{under, append(query, "--trust")} { // the twin: approved, it is asked
		before := asked.Load()
		if got := msb(t, tr.env, args...); got.code != 0 || asked.Load() == before {
			t.Errorf("%v: %+v, asked %d times", args, got, asked.Load()-before)
		}
	}
}

// TestI15_GatewaysManualNeedsNoMore runs what docs/gateway.md does with the policy that it writes.
func TestI15_GatewaysManualNeedsNoMore(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(manual), "<<'POLICY'\n")
	text, rest, ended := strings.Cut(text, "POLICY\n")
	before, _, runs := strings.Cut(rest, "\nmsb gateway --policy policy.toml ")
	if !found || !ended || !runs {
		t.Fatal("docs/gateway.md has no such example any more")
	}
	tr := newTrial(t)
	tr.env = append(tr.env, "TOKEN=the-real-value-0123456789")
	tr.write(t, "policy.toml", text)
	tr.refused(t, tr.gateway(t, "--policy", tr.policy), "variable TOKEN")
	if strings.Contains(before, "\nmsb policy trust policy.toml ") {
		if got := msb(t, tr.env, "policy", "trust", tr.policy); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	cameUp(t, tr.gateway(t, "--policy", tr.policy))
}

// What is approved can be looked at without approving it, file by file and all of it, and what is taken back is said.
func TestI15_ApprovalsCanBeLookedAt(t *testing.T) {
	t.Parallel()
	tr := newTrial(t)
	trust := func(args ...string) result {
		t.Helper()
		return msb(t, tr.env, append([]string{"policy", "trust"}, args...)...)
	}
	says := func(got result, code int, words ...string) {
		t.Helper()
		for _, w := range words {
			if got.code != code || !strings.Contains(got.out+got.err, w) {
				t.Errorf("%+v, want exit %d and %q", got, code, w)
			}
		}
	}
	plain := tr.write(t, "plain.toml", "version = 1\n")
	says(trust("--list"), 0, "nothing was approved")
	says(trust("--forget", tr.policy), 0, "nothing was approved")
	says(trust("--show", tr.policy), exitDenied, ":\nnot approved:\n", "value-of-a-command")
	says(trust("--show", plain), 0, "takes nothing")
	tr.refused(t, tr.gateway(t, "--policy", tr.policy)) // --show approved nothing
	says(trust("--show", plain, filepath.Join(tr.dir, "nosuch.toml"), tr.policy), exitPolicyMissing, "takes nothing", "nosuch.toml", "not approved:\n")

	says(trust(tr.policy), 0, "approved")
	says(trust("--show", tr.policy), 0, ":\napproved:\n", "value-of-a-command")
	says(trust("--list"), 0, tr.policy+"\n", "value-of-a-command")
	one := trialHead + "[secrets.T]\nfrom = \"env:GIVEN\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\nplaceholder = \"t_{20}\"\n"
	tr.write(t, "policy.toml", one)
	says(trust(tr.policy), 0, "GIVEN")
	more := one + "[secrets.U]\nfrom = \"env:TAKEN\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\nplaceholder = \"u_{20}\"\n"
	tr.write(t, "policy.toml", more)
	got := trust("--show", tr.policy)
	if have, lacks, ok := strings.Cut(got.out, "not approved:"); got.code != exitDenied || !ok || !strings.Contains(have, "GIVEN") || !strings.Contains(lacks, "TAKEN") {
		t.Errorf("what is new is not told from what is approved: %s", got.out)
	}
	if got := trust("--list"); strings.Contains(got.out, "TAKEN") {
		t.Errorf("--list shows what nobody approved: %+v", got)
	}
	if err := os.Remove(tr.policy); err != nil {
		t.Fatal(err)
	}
	says(trust("--list"), 0, "the file is gone")
	says(trust("--forget", tr.policy), 0, "no longer approved", "GIVEN")
	says(trust("--list"), 0, "nothing was approved")
	if n := tr.runs(t); n != 0 {
		t.Errorf("the command ran %d times", n)
	}
	for _, args := range [][]string{nil, {"--list", tr.policy}, {"--show", "--forget", tr.policy}, {"--show"}} {
		says(trust(args...), exitOther, "msb policy trust --help")
	}
}
