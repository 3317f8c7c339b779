package mcp

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// ofKind is an error of that kind, as a supervisor passes it on: as text.
type ofKind sandbox.Kind

func (ofKind) Error() string   { return "boom" }
func (k ofKind) Unwrap() error { return &sandbox.Failure{Kind: sandbox.Kind(k)} }

// TestKindsHaveTheirOwnSentences, and what a model can do about them.
func TestKindsHaveTheirOwnSentences(t *testing.T) {
	t.Parallel()
	const image, host, operator, again = "the image can't be used", "this machine can't start sandboxes", "tell the operator to run msb doctor", "call again: a sandbox that ended starts again, with its files"
	for kind, want := range map[sandbox.Kind][2]string{
		sandbox.KindImageUnknown:  {image, "leave image out, or take one that sandbox_list shows"},
		sandbox.KindImagePlatform: {image, ""},
		sandbox.KindImageRefused:  {image, ""},
		sandbox.KindNoBackend:     {host, operator},
		sandbox.KindKVMPermission: {host, operator},
		sandbox.KindNoSpace:       {"there is no space left", "remove sandboxes with sandbox_stop (remove: true), or tell the operator that the disk is full"},
		sandbox.KindGuestMemory:   {"the sandbox ran out of memory", "make a sandbox with a larger memory_mb"},
		sandbox.KindGuestPanic:    {"the sandbox's kernel panicked", again},
		sandbox.KindAgent:         {"the sandbox ended, or does not answer", again},
		sandbox.KindSecret:        {"the policy ended the sandbox", ""},
		sandbox.KindLifetime:      {"the sandbox ended", ""},
		sandbox.KindIdle:          {"the sandbox ended", ""},
		sandbox.KindOther:         {"the call failed", ""},
		sandbox.KindSandbox:       {"the call failed", ""},
	} {
		text := sentence(ofKind(kind))
		first, _, _ := strings.Cut(text, "\n")
		_, next, _ := strings.Cut(text, "\nNext: ")
		if first != want[0] || next != want[1] || !strings.Contains(text, "\nboom\n[end ") {
			t.Errorf("%s: %q, want %q", kind, text, want)
		}
	}
	for err, want := range map[error]string{
		sandbox.ErrNoJob: "the action list shows the jobs", sandbox.ErrJobExists: "choose another name, or remove it", sandbox.ErrJobRunning: "end it with the action kill first",
		sandbox.ErrJobLimit: "remove one that has ended", sandbox.ErrJobInput: "start a job with stdin: true", sandbox.ErrNotRunning: "start it with sandbox_exec", sandbox.ErrNoSandbox: "",
	} {
		if _, next, _ := strings.Cut(sentence(fmt.Errorf("%w: x", err)), "\nNext: "); !strings.HasPrefix(next, want) || (next == "") != (want == "") {
			t.Errorf("%v: %q, want %q", err, next, want)
		}
	}
}

// TestI12_OldOutputsAreRemovedAlone: a long output takes the place of the oldest, and no other file of the guest's goes.
func TestI12_OldOutputsAreRemovedAlone(t *testing.T) {
	t.Parallel()
	const oldest = "stdout-ZZZZZZZZ.txt" // the last by name
	for n, want := range map[int]string{maxOutputs - 1: "", maxOutputs: "remove " + outputDir + "/" + oldest + " false\n"} {
		names := []string{"aaa.txt", oldest}
		for i := range n - 1 {
			names = append(names, fmt.Sprintf("stderr-AAAAAAA%c.txt", 'A'+i))
		}
		listed, err := dialNamed(t, names...).Files().ReadDir(t.Context(), outputDir)
		if err != nil {
			t.Fatal(err)
		}
		p := serve(t, nil)
		r := recording{mu: &sync.Mutex{}, calls: new([]string), listed: append([]agentclient.FileInfo(nil), listed...)}
		p.runner = recordingRunner{p.fake, r}
		p.fake.exec = longOutput
		p.says(t, false, "sandbox_exec", m{"command": "x"}, "all of stdout is in "+outputDir)
		if got := strings.Join(*r.calls, "\n"); !strings.HasPrefix(got, "mkdir "+outputDir+" 755 true\nlist "+outputDir+"\n"+want+"write "+outputDir) {
			t.Errorf("with %d outputs there: %q", n, got)
		}
	}
}

// TestI11_HistoryHoldsShortNames, and no call to what can be no sandbox.
func TestI11_HistoryHoldsShortNames(t *testing.T) {
	t.Parallel()
	var h history
	for name, want := range map[string]int{"": 1, "web": 1, defaultName: 1, "No Name": 0, strings.Repeat("a", maxWhat): 0} {
		h.calls = nil
		h.add(recall(time.Now(), "x", []byte(`{"sandbox":"`+name+`"}`)), false)
		if len(h.calls) != want {
			t.Errorf("%.20q: %d calls, want %d", name, len(h.calls), want)
		}
	}
	if got := recall(time.Now(), "x", []byte(`{"sandbox":"`+strings.Repeat("a", 1<<20)+`"}`)); len(got.sandbox) != maxWhat {
		t.Errorf("%d bytes are held of a name while the call goes on", len(got.sandbox))
	}
	blank := strings.Repeat(" ", 2*maxWhat-1)
	for want, words := range map[string][]string{"x": {blank + "x"}, "…": {blank + " x"}, "y…": {blank + " x", "y"}, "x y": {blank + "x", "y"}, strings.Repeat("x", maxWhat): {strings.Repeat("x", maxWhat)},
		strings.Repeat("x", maxWhat) + "…": {strings.Repeat("x", maxWhat+1)}} {
		if got := inShort(words); got != want {
			t.Errorf("%d words: %q, want %q", len(words), got, want)
		}
	}
}

// gated is a writer that waits for its gate.
type gated struct {
	gate chan struct{}
	got  chan string
}

func (g gated) Write(b []byte) (int, error) {
	<-g.gate
	g.got <- string(b)
	return len(b), nil
}

// TestLogsKeepTheirLines, though slog uses its buffer again before a slow client has read them.
func TestLogsKeepTheirLines(t *testing.T) {
	t.Parallel()
	g := gated{make(chan struct{}), make(chan string)}
	l := NewLog(g)
	line := make([]byte, 4)
	for _, text := range []string{"one\n", "two\n"} {
		copy(line, text)
		if n, err := l.Write(line); n != len(line) || err != nil {
			t.Error(n, err)
		}
	}
	close(g.gate)
	for _, want := range []string{"one\n", "two\n"} {
		if got := <-g.got; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
