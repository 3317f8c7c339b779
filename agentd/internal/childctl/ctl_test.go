package childctl

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/msb-project/msb/agentd/agentpb"
)

func TestArgumentsBecomeRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.toml")
	if err := os.WriteFile(file, []byte("version = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "version = 1\n"
	for line, want := range map[string]*agentpb.ChildRequest{
		"ping": {Verb: "ping"}, "list": {Verb: "list"}, "destroy a": {Verb: "destroy", Name: "a"},
		"exec a -- ls -l": {Verb: "exec", Name: "a", Argv: []string{"ls", "-l"}},
		"exec a ls":       {Verb: "exec", Name: "a", Argv: []string{"ls"}},
		"run --cpus 2 --memory-mib=128 --image x -- ls -l": {Verb: "run", CPUs: 2, MemoryMiB: 128, Image: "x", Argv: []string{"ls", "-l"}},
		"spawn --allow a --allow b:1":                      {Verb: "spawn", Allow: []string{"a", "b:1"}},
		"spawn --no-network":                               {Verb: "spawn", NoNetwork: true},
		"spawn --policy " + file:                           {Verb: "spawn", Policy: &text},
		"":                                                 nil, "x": nil, "exec": nil, "exec a": nil, "exec --": nil, "run": nil, "run --": nil, "ping x": nil, "list -x": nil, "destroy": nil, "destroy a b": nil, "destroy -a": nil, "exec -a -- ls": nil,
		"spawn x": nil, "spawn --cpus x": nil, "spawn --policy /none": nil, "ping --cpus 1": nil, "-h": nil,
	} {
		got, err := parse(strings.Fields(line))
		if got != nil && len(got.Argv) == 0 {
			got.Argv = nil
		}
		if (err != nil) != (want == nil) || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
}

// TestAnswersArePassedOn has a supervisor that answers each request with lines.
func TestAnswersArePassedOn(t *testing.T) {
	t.Parallel()
	for want, lines := range map[string][]agentpb.ChildReply{
		`0 "name\n" ""`:                     {{Result: ptr("name")}},
		`0 "" ""`:                           {{Result: ptr("")}},
		`7 "ab" "c"`:                        {{Stdout: []byte("a")}, {Stderr: []byte("c")}, {Stdout: []byte("b")}, {Exit: ptr(7)}},
		`125 "a" "msb-ctl: no\n"`:           {{Stdout: []byte("a")}, {Error: "no"}},
		`125 "" "msb-ctl: no answer: too m`: nil,
	} {
		socket := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			line, _ := bufio.NewReader(c).ReadString('\n')
			var r agentpb.ChildRequest
			if json.Unmarshal([]byte(line), &r) != nil || r.Verb != "list" {
				return
			}
			for i := range lines {
				_ = json.NewEncoder(c).Encode(&lines[i])
			}
		}()
		var out, errs strings.Builder
		code := Run([]string{"list"}, socket, &out, &errs)
		if got := fmt.Sprintf("%d %q %q", code, out.String(), errs.String()); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
		l.Close()
	}
	var out, errs strings.Builder
	if code := Run([]string{"ping"}, "/none", &out, &errs); code != exitFailed || !strings.Contains(errs.String(), "only with a budget") {
		t.Errorf("%d, %s", code, errs.String())
	}
	if code := Run(nil, "/none", &out, &errs); code != exitUsage {
		t.Errorf("%d", code)
	}
}

// TestUsageIsShown with what is wrong, and alone where it is asked for.
func TestUsageIsShown(t *testing.T) {
	t.Parallel()
	for line, first := range map[string]string{"": "usage:", "-h": `msb-ctl: there is no verb "-h"`, "spawn -h": "usage:", "spawn --none": "msb-ctl: flag provided but not defined: -none", "exec": "msb-ctl: exec wants a child's name", "list a": `msb-ctl: list takes no "a"`} {
		var out, errs strings.Builder
		code := Run(strings.Fields(line), "/none", &out, &errs)
		if code != exitUsage || out.String() != "" || !strings.HasPrefix(errs.String(), first) || !strings.HasSuffix(errs.String(), usage) {
			t.Errorf("%q: %d, %q, %s", line, code, out.String(), errs.String())
		}
	}
}

// TestI11_RequestsAreBoundedExactly: the longest request arrives, and one byte more is not sent.
func TestI11_RequestsAreBoundedExactly(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan int, 2)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			got <- len(line)
			_ = json.NewEncoder(c).Encode(&agentpb.ChildReply{Exit: ptr(0)})
			_ = c.Close()
		}
	}()
	bare, err := json.Marshal(&agentpb.ChildRequest{Verb: "exec", Name: "a", Argv: []string{""}})
	if err != nil {
		t.Fatal(err)
	}
	for more, want := range []int{0, exitFailed} {
		var out, errs strings.Builder
		long := strings.Repeat("x", agentpb.MaxChildRequest-1-len(bare)+more)
		if code := Run([]string{"exec", "a", "--", long}, socket, &out, &errs); code != want || want != 0 && !strings.Contains(errs.String(), "give at most 131071") {
			t.Errorf("%d bytes too many: %d, %s", more, code, errs.String())
		}
	}
	if n := <-got; n != agentpb.MaxChildRequest || len(got) != 0 {
		t.Errorf("%d bytes arrived, and %d requests more", n, len(got))
	}
}

// full is a place where nothing can be written.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, os.ErrClosed }

// TestAnswersThatCantBeWrittenFail, wherever they belong.
func TestAnswersThatCantBeWrittenFail(t *testing.T) {
	t.Parallel()
	for what, reply := range map[string]agentpb.ChildReply{"result": {Result: ptr("name")}, "stdout": {Stdout: []byte("a")}, "stderr": {Stderr: []byte("a")}} {
		socket := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = bufio.NewReader(c).ReadString('\n')
			_ = json.NewEncoder(c).Encode(&reply)
			_ = json.NewEncoder(c).Encode(&agentpb.ChildReply{Exit: ptr(0)})
		}()
		if code := Run([]string{"list"}, socket, full{}, full{}); code != exitFailed {
			t.Errorf("%s: %d", what, code)
		}
		l.Close()
	}
}

func ptr[T any](v T) *T { return &v }
