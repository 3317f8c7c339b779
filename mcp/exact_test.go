package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// many are n times a value as JSON has them.
func many(n int, v any) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = v
	}
	return all
}

// TestI11_BoundsOfArgumentsAreExact: what is at a bound is taken, and the next beyond it refused.
func TestI11_BoundsOfArgumentsAreExact(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools, o.CPUs, o.Memory, o.Sandboxes = []string{AllTools}, 3, 512<<20, 1000 })
	p.says(t, false, "sandbox_create", m{"name": "env"})
	made := 0
	create := func(key string, v any) m {
		made++
		return m{"name": fmt.Sprintf("s%d", made), key: v}
	}
	rules := func(n int) []any { return many(n, "a.example:443") }
	inPolicy := func(n int) string { return "version = 1\n#" + strings.Repeat("x", n-len("version = 1\n#")) }
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		tool    string
		args    func(over int) m // 0 or 1
		refused string
	}{
		{"sandbox_exec", func(n int) m { return m{"command": long(maxWords - len("/bin/sh -c ") + n)} }, "a command line of"},
		{"sandbox_exec", func(n int) m { return m{"argv": []string{long(maxWords - 2), long(n + 1)}} }, "a command line of"},
		{"sandbox_exec", func(n int) m { return m{"argv": []string{"x"}, "env": m{"A": long(maxWords - 2 + n)}} }, "env: 131073 bytes"},
		{"sandbox_exec", func(n int) m { return m{"command": "x", "timeout": 600 + float64(n)/1000} }, "at most 600 seconds"},
		{"sandbox_exec", func(n int) m { return m{"command": "x", "timeout": 0.001 * float64(1-n)} }, "more than 0"},
		{"sandbox_exec", func(n int) m { return m{"command": "x", "cwd": "/" + long(4094+n)} }, "write an absolute path"},
		{"fs_read", func(n int) m { return m{"path": "/" + long(4094+n)} }, "write an absolute path"},
		{"sandbox_create", func(n int) m { return create("cpus", 3+n) }, "cpus 4: give it 1 to 3"},
		{"sandbox_create", func(n int) m { return create("cpus", -n) }, "cpus -1: give it 1 to 3"},
		{"sandbox_create", func(n int) m { return create("memory_mb", 512+n) }, "give it 96 to 512"},
		{"sandbox_create", func(n int) m { return create("memory_mb", sandbox.MinMemory>>20-n) }, "give it 96 to 512"},
		{"sandbox_create", func(n int) m { return create("memory_mb", -n) }, "give it 96 to 512"},
		{"sandbox_create", func(n int) m { return create("policy", inPolicy(sandbox.MaxNarrowPolicy+n)) }, "a policy of 65537 bytes"},
		{"sandbox_create", func(n int) m { return create("allow", rules(sandbox.MaxNarrowAllow+n)) }, "257 allow rules"},
		{"sandbox_run_code", func(n int) m { return m{"steps": many(maxSteps+n, m{"language": "sh", "code": ""})} }, "17 steps; give 1 to 16"},
		{"sandbox_run_code", func(n int) m { return m{"steps": many(1-n, m{"language": "sh", "code": ""})} }, "0 steps; give 1 to 16"},
		{"check_installed", func(n int) m { return m{"programs": many(maxPrograms+n, "x")} }, "65 programs; give 1 to 64"},
		{"check_installed", func(n int) m { return m{"programs": many(1-n, "x")} }, "0 programs; give 1 to 64"},
		{"check_installed", func(n int) m { return m{"programs": []string{long(255 + n)}} }, "give a program's name"},
		{"sandbox_install", func(n int) m { return m{"packages": many(maxPackages+n, "x")} }, "65 packages; give 1 to 64"},
		{"sandbox_install", func(n int) m { return m{"packages": many(1-n, "x")} }, "0 packages; give 1 to 64"},
		{"sandbox_install", func(n int) m { return m{"packages": []string{long(255 + n)}} }, "give a package's name"},
		{"fs_write", func(n int) m { return m{"files": many(maxFiles+n, m{"path": "/x", "content": ""})} }, "257 files; give 1 to 256"},
		{"fs_write", func(n int) m { return m{"files": many(1-n, m{"path": "/x", "content": ""})} }, "0 files; give 1 to 256"},
		{"fs_read", func(n int) m { return m{"path": "/x", "offset": -n} }, "at least 0"},
		{"fs_read", func(n int) m { return m{"path": "/x", "length": -n} }, "at least 0"},
		{"fs_read", func(n int) m { return m{"path": "/x", "offset": int64(math.MaxInt64) - maxRead + int64(n)} }, "lie in a file"},
		{"sandbox_env", func(n int) m { return m{"sandbox": "env", "unset": many(maxEnv+n, "X")} }, "at most 256 variables"},
	} {
		for over := range 2 {
			args := c.args(over)
			text, failed := p.call(t, c.tool, args)
			refused := failed && strings.Contains(text, c.refused)
			if reads := c.tool == "fs_read" && over == 0 && failed; refused != (over == 1) || failed && !refused && !reads { // there are no files
				t.Errorf("%s, %d beyond a bound: %.300q, failed %v; want %q", c.tool, over, text, failed, c.refused)
			}
		}
	}
	for over, rule := range []string{"/" + long(sandbox.MaxNarrowRule-len("https://a.example//*")), "/" + long(sandbox.MaxNarrowRule)} { // whatever is said of the rule itself
		_, err := p.opts.policy(&machineArgs{Allow: []string{"https://a.example" + rule + "/*"}})
		if beyond := err != nil && strings.Contains(err.Error(), "a rule of more than 1024 bytes"); beyond != (over == 1) {
			t.Errorf("a rule, %d: %.100v", over, err)
		}
	}
	// Variables: at most 256 with those that are there, and so many bytes.
	set := func(from, n int, value string) m {
		all := m{}
		for i := range n {
			all[fmt.Sprintf("V%03d", from+i)] = value
		}
		return m{"sandbox": "env", "set": all}
	}
	p.says(t, false, "sandbox_env", set(0, maxEnv-1, ""), `"V254":""`)
	p.says(t, true, "sandbox_env", set(300, 2, ""), "at most 256 variables")
	p.says(t, false, "sandbox_env", set(300, 1, ""), `"V300":""`)
	p.says(t, true, "sandbox_env", set(301, 1, ""), "at most 256 variables")
	p.says(t, false, "sandbox_create", m{"name": "bytes"})
	one := func(n int) m { return m{"sandbox": "bytes", "set": m{"V": long(maxWords - 2 + n)}} }
	p.says(t, true, "sandbox_env", one(1), "131072 bytes together")
	p.says(t, true, "sandbox_exec", m{"command": "x", "env": m{"A": "\x00"}}, "NUL")
	if text, failed := p.call(t, "sandbox_env", one(0)); failed && strings.Contains(text, "131072 bytes together") {
		t.Errorf("as many bytes as may be: %.200s", text)
	}
}

// TestI11_BoundsOfMessagesAreExact on the wire of standard input.
func TestI11_BoundsOfMessagesAreExact(t *testing.T) {
	t.Parallel()
	l := onLine(t, false, time.Hour)
	padded := func(id string, size int) string {
		head, tail := `{"jsonrpc":"2.0","id":`+id+`,"method":"ping","params":{"_meta":{"x":"`, `"}}}`
		return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
	}
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	with := func(meta string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"x":` + meta + `}}}`
	}
	commas := strings.Count(with("1"), ",") + strings.Count(with("1"), "{")
	id := func(n int) string { return `"` + strings.Repeat("i", n-2) + `"` }
	for what, c := range map[string]struct {
		text func(over int) string
		id   string // of the refusal
	}{
		"bytes":                {func(n int) string { return padded("1", maxLine-1+n) }, "1"}, // a line has its end
		"levels":               {func(n int) string { return with(nested(maxDepth - 3 + n)) }, "1"},
		"values":               {func(n int) string { return with("[" + strings.Repeat("0,", maxValues-commas-1+n) + "0]") }, "1"},
		"an id":                {func(n int) string { return ping(id(maxID + n)) }, "null"},
		"a number":             {func(n int) string { return ping(fmt.Sprint(1<<53 - 1 + n)) }, "9007199254740992"},
		"a number below 0":     {func(n int) string { return ping(fmt.Sprint(-1<<53 + 1 - n)) }, "-9007199254740992"},
		"a number with a rest": {func(n int) string { return ping("3" + strings.Repeat(".5", n)) }, "3.5"},
	} {
		for over := range 2 {
			text := c.text(over)
			go l.put(t, text)
			if r := l.answer(t); (r.Error != nil) != (over == 1) || over == 1 && (string(r.ID) != c.id || r.Error.Code != jsonrpc.CodeInvalidRequest) {
				t.Errorf("%s, %d beyond its bound: %.200s", what, over, l.out.Text())
			}
			go l.put(t, ping("99"))
			if r := l.answer(t); r.Error != nil || string(r.ID) != "99" {
				t.Fatalf("behind it: %.200s", l.out.Text())
			}
		}
	}
	batch := func(n int) string {
		return "[" + strings.Repeat(`{"jsonrpc":"2.0","method":"x"},`, n-1) + ping("5") + "]"
	}
	for over := range 2 {
		go l.put(t, batch(maxInflight+over))
		if r := l.answer(t); (r.Error != nil) != (over == 1) {
			t.Errorf("a batch, %d beyond its bound: %.200s", over, l.out.Text())
		}
	}
	// An id is found at the end of a line that is skipped, wherever its pieces end.
	for cut := range 40 {
		text := `{"method":"ping","x":"` + strings.Repeat("x", maxLine+cut) + `","id":"` + strings.Repeat("n", 64) + `"}`
		go l.put(t, text)
		if r := l.answer(t); r.Error == nil || len(r.ID) != 66 {
			t.Fatalf("%d bytes: %.200s", len(text), l.out.Text())
		}
		if cut == 1 {
			break // each is 8 MiB
		}
	}
}

// TestI11_EndlessLinesEndAtTheirBound, and not before it.
func TestI11_EndlessLinesEndAtTheirBound(t *testing.T) {
	t.Parallel()
	skipped := func(size int64) error {
		rest := io.MultiReader(bytes.NewReader(make([]byte, size-maxLine-1)), strings.NewReader("\n"))
		c := &conn{transport: &transport{}, in: bufio.NewReaderSize(rest, 64<<10), out: make(chan outgoing, 1)}
		return c.skip(make([]byte, maxLine), false)
	}
	if err := skipped(maxSkipped); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	if err := skipped(maxSkipped + 1); !errors.Is(err, errEndless) {
		t.Errorf("beyond it: %v", err)
	}
}

// TestI11_NotificationsAreTakenToTheirBound.
func TestI11_NotificationsAreTakenToTheirBound(t *testing.T) {
	t.Parallel()
	id, err := jsonrpc.MakeID("one")
	if err != nil {
		t.Fatal(err)
	}
	padded := func(text string, size int) json.RawMessage {
		return json.RawMessage(strings.Replace(text, "~", strings.Repeat("x", size-len(text)+1), 1))
	}
	for over := range 2 {
		c := &conn{open: map[jsonrpc.ID]*inflight{}}
		if why := c.admit(id, 1); why != "" {
			t.Fatal(why)
		}
		if got := c.wanted(&jsonrpc.Request{Method: "notifications/cancelled", Params: padded(`{"requestId":"one","reason":"~"}`, 1<<16+over)}); got == (over == 1) {
			t.Errorf("cancelled, %d beyond: %v", over, got)
		}
		if got := c.wanted(&jsonrpc.Request{Method: "notifications/initialized", Params: padded(`{"_meta":"~"}`, maxID+over)}); got == (over == 1) {
			t.Errorf("initialized, %d beyond: %v", over, got)
		}
	}
}

// TestI15_BoundsOfTheFileAreExact: flags may ask for what the file allows and less, and what it leaves open is theirs.
func TestI15_BoundsOfTheFileAreExact(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	for _, b := range []struct {
		name string
		unit int64
		file func(*policies.Agent, int64)
		flag func(*Options) *int64
		def  int64
	}{
		{"max-memory", 1 << 20, func(a *policies.Agent, n int64) { a.Memory = n }, func(o *Options) *int64 { return &o.Memory }, DefaultMemory},
		{"max-disk", 1 << 20, func(a *policies.Agent, n int64) { a.Disk = n }, func(o *Options) *int64 { return &o.Disk }, DefaultDisk},
		{"idle-stop", int64(time.Second), func(a *policies.Agent, n int64) { a.IdleStop = time.Duration(n) }, func(o *Options) *int64 { return (*int64)(&o.IdleStop) }, 0},
		{"lifetime", int64(time.Second), func(a *policies.Agent, n int64) { a.Lifetime = time.Duration(n) }, func(o *Options) *int64 { return (*int64)(&o.Lifetime) }, 0},
		{"max-sandboxes", 1, func(a *policies.Agent, n int64) { a.Sandboxes = int(n) }, nil, DefaultSandboxes},
		{"max-cpus", 1, func(a *policies.Agent, n int64) { a.CPUs = int(n) }, nil, DefaultCPUs},
	} {
		for _, c := range []struct{ file, flag, want int64 }{
			{3, 3, 3}, {3, 2, 2}, {3, 0, 3}, {0, 4, 4}, {0, 0, -1}, {3, 4, -2}, {0, -1, -2},
		} {
			o := Options{Home: home, Floor: policy(t, "")}
			o.Floor.Agent = &policies.Agent{}
			b.file(o.Floor.Agent, c.file*b.unit)
			value := func() int64 {
				switch b.name {
				case "max-sandboxes":
					return int64(o.Sandboxes)
				case "max-cpus":
					return int64(o.CPUs)
				}
				return *b.flag(&o)
			}
			switch b.name {
			case "max-sandboxes":
				o.Sandboxes = int(c.flag)
			case "max-cpus":
				o.CPUs = int(c.flag)
			default:
				*b.flag(&o) = c.flag * b.unit
			}
			want := c.want * b.unit
			if c.want == -1 {
				want = b.def
			}
			_, err := o.Check()
			if err == nil {
				err = o.fill()
			}
			if c.want == -2 {
				if err == nil || c.flag > 0 && !strings.Contains(err.Error(), "--"+b.name+" ") || c.flag < 0 && !strings.Contains(err.Error(), "below 0") {
					t.Errorf("%s: file %d, flag %d: %v", b.name, c.file, c.flag, err)
				}
				continue
			}
			if err != nil || value() != want {
				t.Errorf("%s: file %d, flag %d: %d, %v; want %d", b.name, c.file, c.flag, value(), err, want)
			}
		}
	}
}

// TestI15_TheOperatorsPolicyIsUnchanged: [agent] leaves secrets out of what a server uses, not of what it was given.
func TestI15_TheOperatorsPolicyIsUnchanged(t *testing.T) {
	t.Parallel()
	o := Options{Home: newHome(t), Floor: policy(t, "[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.A]\nfrom = \"env:MSB_TEST_UNSET\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"+
		"[secrets.B]\nfrom = \"env:MSB_TEST_UNSET\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n")}
	given := o.Floor
	given.Agent = &policies.Agent{Secrets: []string{"B"}}
	if err := o.agent(given.Agent); err != nil {
		t.Fatal(err)
	}
	if len(o.Floor.Secrets) != 1 || o.Floor.Secrets[0].Name != "B" || len(given.Secrets) != 2 || given.Secrets[0].Name != "A" || given.Secrets[1].Name != "B" {
		t.Errorf("used %+v, given %+v", o.Floor.Secrets, given.Secrets)
	}
	images := []string{"x", "y"}
	o = Options{Home: o.Home, Floor: policy(t, "[sandbox]\nimage = \"own.example/x:1\"\n"), Images: images[:1]}
	if _, err := o.config(&machineArgs{}); err != nil || images[1] != "y" {
		t.Errorf("the operator's images are %q now, %v", images, err)
	}
}

// TestI12_NonTextBytesAreCounted exactly, at either end and between.
func TestI12_NonTextBytesAreCounted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\xffb":                   "because 1 of these bytes",
		"\xff":                     "because 1 of these bytes",
		"\xc3":                     "because 1 of these bytes", // nothing follows
		"\xff\xfe\xfd":             "because 3 of these bytes",
		"é\xe2\x82":                "because 2 of these bytes",
		"\uFFFD\xff":               "because 1 of these bytes",
		"\uFFFDa":                  "bytes]\n\uFFFDa\n[end", // a character as any other
		"a\u00a0b":                 "bytes]\na\u00a0b\n[end",
		"\x1b[31m\u202e\u2800\r":   `bytes]` + "\n" + `\x1b[31m\u202e\u2800\r` + "\n[end",
		"\U000e0041\ufe0f\u3164\a": `\U000e0041\ufe0f\u3164\a`,
	} {
		if got := show(t, text); !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestI11_OutputsFillTheirBudget: what fits is whole, one byte more is cut and says of how many bytes, and text of several
// bytes and escapes are not cut in two.
func TestI11_OutputsFillTheirBudget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		left int // out
	}{
		{strings.Repeat("a", outputBudget), 0},
		{strings.Repeat("a", outputBudget+1), 1},
		{strings.Repeat("a", 2*outputBudget), outputBudget},
		{strings.Repeat("a", 2*outputBudget+1), outputBudget + 1},
		{strings.Repeat("a", 3*outputBudget), 2 * outputBudget},
		{strings.Repeat("a", 3*outputBudget+1), 2*outputBudget + 1},
		{strings.Repeat("é", outputBudget/2), 0},
		{strings.Repeat("é", outputBudget/2+1), 2},
		{strings.Repeat("\x01", outputBudget/4), 0},
		{strings.Repeat("\x01", outputBudget/4+1), 1},
		{strings.Repeat("\x01", outputBudget/4) + "a", 1 + 0},
	} {
		for _, step := range []int{1 << 20, 1000, outputBudget, outputBudget + 1} {
			var whole capture
			for rest := []byte(c.text); len(rest) > 0; {
				n := min(step, len(rest))
				_, _ = whole.Write(rest[:n])
				rest = rest[n:]
			}
			got, all := whole.shown("stdout", outputBudget)
			want := fmt.Sprintf("… %d bytes left out …", c.left)
			if all != (c.left == 0) || strings.Contains(got, want) == all || cap(whole.tail) > 4*outputBudget {
				t.Errorf("%d bytes of %q in pieces of %d: all %v, %d held; want %q", len(c.text), c.text[:2], step, all, cap(whole.tail), want)
			}
			body := got[strings.Index(got, "\n")+1 : strings.LastIndex(got, "\n[end")]
			if first := strings.Split(body, "\n[…")[0]; len(body) > outputBudget+40 || !all && len(first) < outputBudget/2-4 {
				t.Errorf("%d bytes of %q are shown as %d, the first part %d", len(c.text), c.text[:2], len(body), len(first))
			}
		}
	}
	// As base64, 3 bytes are 4.
	for over := range 2 {
		blob := bytes.Repeat([]byte{0xff}, outputBudget/2/4*3+over)
		var c capture
		_, _ = c.Write(blob)
		got, all := c.shown("stdout", outputBudget)
		if all != (over == 0) || strings.Contains(got, "bytes left out") == all {
			t.Errorf("%d bytes that are no text: all %v: %.100q", len(blob), all, got)
		}
	}
}
