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
		"":                                                 nil, "x": nil, "exec": nil, "exec a": nil, "exec --": nil, "run": nil, "run --": nil, "ping x": nil, "list -x": nil, "destroy": nil, "destroy a b": nil,
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

func ptr[T any](v T) *T { return &v }
