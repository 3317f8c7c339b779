package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// prepared is a program that can be run.
type prepared struct {
	argv, env  []string
	cwd, stdin string
	limit      time.Duration
}

func (p *program) prepare() (*prepared, error) {
	argv, err := p.words()
	if err != nil {
		return nil, err
	}
	env, err := p.environ()
	if err != nil {
		return nil, err
	}
	if size := len(strings.Join(env, " ")); size > maxWords {
		return nil, wrong("env: %d bytes; at most %d, so write what is long into a file with fs_write", size, maxWords)
	}
	limit, err := p.timeout()
	if err != nil {
		return nil, err
	}
	if p.Cwd != "" {
		if err := guestPath(p.Cwd); err != nil {
			return nil, err
		}
	}
	return &prepared{argv: argv, env: env, cwd: p.Cwd, stdin: p.Stdin, limit: limit}, nil
}

// outcome is what came of a program.
type outcome struct {
	status         sandbox.ExitStatus
	stdout, stderr capture
	limit          time.Duration
	cwd            string
	argv           []string
}

// timeoutGrace is how long the guest may take to end a program after its timeout. Then the host ends the call, since the
// guest may not.
const timeoutGrace = 10 * time.Second

// run runs a program. room, for sandboxes that stay, is where the complete output is kept until the outcome is closed, as
// far as it fits.
func (p *prepared) run(ctx context.Context, m machine, room *atomic.Int64) (*outcome, error) {
	o := &outcome{limit: p.limit, cwd: p.cwd, argv: p.argv}
	if room != nil {
		o.stdout.rest, o.stderr.rest = &spool{room: room}, &spool{room: room}
	}
	ctx, cancel := context.WithTimeout(ctx, p.limit+timeoutGrace)
	defer cancel()
	opts := sandbox.ExecOptions{Argv: p.argv, Env: p.env, Dir: p.cwd, Timeout: p.limit, Stdout: &o.stdout, Stderr: &o.stderr}
	if p.stdin != "" {
		opts.Stdin = strings.NewReader(p.stdin)
	}
	var err error
	o.status, err = m.Exec(ctx, opts)
	return o, err
}

func (o *outcome) close() {
	o.stdout.rest.close()
	o.stderr.rest.close()
}

// text is the result of a program: a line about its end, then its output. Output that it doesn't show is written to a file
// in the sandbox to, unless that is nil. The result of a failed program is a toolFailure.
func (o *outcome) text(ctx context.Context, note string, to files) (string, error) {
	var b strings.Builder
	st := &o.status
	switch {
	case st.StartError != agentclient.Started:
		b.WriteString(notStarted(st, o.cwd, o.argv))
	case st.TimedOut:
		fmt.Fprintf(&b, "ended after %s, its timeout; give a longer timeout, or start it with job\n", o.limit)
	case st.OOMKilled:
		fmt.Fprintf(&b, "exit code %d: the sandbox ran out of memory; make one with a larger memory_mb\n", st.Code)
	case st.Signal != 0:
		fmt.Fprintf(&b, "exit code %d (signal %d)\n", st.Code, st.Signal)
	default:
		fmt.Fprintf(&b, "exit code %d\n", st.Code)
	}
	b.WriteString(note)
	stderr, allErr := o.stderr.shown("stderr", stderrBudget)
	stdout, allOut := o.stdout.shown("stdout", outputBudget-min(len(stderr), stderrBudget))
	switch {
	case allErr && allOut:
	case to == nil:
		b.WriteString("the rest of the output is gone with the sandbox; sandbox_exec keeps it as a file\n")
	default:
		if !allOut {
			b.WriteString(o.stdout.keep(ctx, to, "stdout"))
		}
		if !allErr {
			b.WriteString(o.stderr.keep(ctx, to, "stderr"))
		}
	}
	b.WriteString(stdout)
	b.WriteString(stderr)
	if st.Code != 0 || st.TimedOut {
		return "", &toolFailure{text: b.String()}
	}
	return b.String(), nil
}

// notStarted says why a program was not started.
func notStarted(st *sandbox.ExitStatus, cwd string, argv []string) string {
	line := fmt.Sprintf("not started (exit code %d)", st.Code)
	switch {
	case len(argv) == 1 && strings.ContainsAny(argv[0], " \t"):
		line += "; argv has one element with blanks: give each argument an element of its own, or the line as command"
	case st.StartError == agentclient.NotFound && cwd == "": // otherwise the directory may be missing
		line += "; check_installed says which programs there are"
	}
	return line + "\n" + marked("why it was not started", st.Message, maxSentence)
}

// execTools are the tools that run programs.
type execTools struct{ *server }

// execIn runs a program in a named sandbox and says what was denied meanwhile.
func (s execTools) execIn(ctx context.Context, m machine, in *sandbox.Status, p *prepared) (string, error) {
	watch, watchErr := s.only(in).WatchDenied(in.Name) // without it, the note is left out
	if watchErr == nil {
		defer func() { _ = watch.Close() }() // it was only read
	}
	out, err := p.run(ctx, m, &s.spools)
	defer out.close()
	if err != nil {
		return "", err
	}
	note := ""
	if watchErr == nil {
		if d, err := watch.Next(); err == nil {
			note = deniedNote(&d, in.Name)
		}
	}
	return out.text(ctx, note, m.Files())
}

func (s execTools) sandboxExec(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		Sandbox string `json:"sandbox"`
		program
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	return s.execOne(ctx, a.Sandbox, &a.program)
}

// execOne runs one program in a sandbox, which it starts or makes if need be.
func (s execTools) execOne(ctx context.Context, in string, a *program) (string, error) {
	p, err := a.prepare()
	if err != nil {
		return "", err
	}
	m, st, err := s.useWithin(ctx, in, p.limit)
	if err != nil {
		return "", err
	}
	defer func() { _ = m.Close() }() // the session's
	return s.execIn(ctx, m, st, p)
}

// languages are the programs that run code, of which the first that the image has is used, and the ending of the code's
// file.
var languages = map[string]struct {
	ending string
	argv   [][]string
}{
	"python": {".py", [][]string{{"python3"}, {"python"}}},
	"node":   {".js", [][]string{{"node"}}},
	"sh":     {".sh", [][]string{{"/bin/sh"}}},
	"bash":   {".sh", [][]string{{"bash"}}},
	"ruby":   {".rb", [][]string{{"ruby"}}},
	"perl":   {".pl", [][]string{{"perl"}}},
	"php":    {".php", [][]string{{"php"}}},
	"lua":    {".lua", [][]string{{"lua"}}},
	"go":     {".go", [][]string{{"go", "run"}}},
}

// otherNames are further names of languages.
var otherNames = map[string]string{"py": "python", "javascript": "node", "js": "node", "shell": "sh"}

// maxSteps bounds the steps of one call.
const maxSteps = 16

type step struct {
	Language string `json:"language"`
	Code     string `json:"code"`
}

func (s execTools) sandboxRunCode(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		Sandbox string   `json:"sandbox"`
		Steps   []step   `json:"steps"`
		Cwd     string   `json:"cwd"`
		Timeout *float64 `json:"timeout"`
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	if len(a.Steps) < 1 || len(a.Steps) > maxSteps {
		return "", wrong("%d steps; give 1 to %d", len(a.Steps), maxSteps)
	}
	first, err := (&program{Command: "true", Cwd: a.Cwd, Timeout: a.Timeout}).prepare()
	if err != nil {
		return "", err
	}
	m, st, err := s.useWithin(ctx, a.Sandbox, first.limit)
	if err != nil {
		return "", err
	}
	defer func() { _ = m.Close() }() // the session's
	var all strings.Builder
	for i := range a.Steps {
		text, err := s.runStep(ctx, m, st, &a.Steps[i], &program{Cwd: a.Cwd, Timeout: a.Timeout})
		var failed *toolFailure
		if errors.As(err, &failed) {
			text = failed.text
		}
		fmt.Fprintf(&all, "step %d of %d (%s): %s", i+1, len(a.Steps), a.Steps[i].Language, text)
		switch {
		case failed != nil:
			return "", &toolFailure{text: all.String()}
		case err != nil:
			return "", fmt.Errorf("step %d of %d: %w", i+1, len(a.Steps), err)
		case all.Len() > outputBudget && i+1 < len(a.Steps):
			fmt.Fprintf(&all, "stopped before step %d: the output is long enough; call again with the rest\n", i+2)
			return all.String(), nil
		}
	}
	return all.String(), nil
}

func (s execTools) runStep(ctx context.Context, m machine, in *sandbox.Status, st *step, p *program) (string, error) {
	lang := languages[cmp.Or(otherNames[st.Language], st.Language)]
	file := "/tmp/msb-" + rand.Text() + lang.ending
	if err := m.Files().Mkdir(ctx, "/tmp", agentclient.MkdirOptions{Mode: 0o777, Parents: true}); err != nil {
		return "", err
	}
	if _, err := m.Files().WriteFile(ctx, file, strings.NewReader(st.Code), agentclient.WriteOptions{Mode: 0o600}); err != nil {
		return "", err
	}
	defer func() { // the guest's own disk
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cleanup)
		defer cancel()
		_ = m.Files().Remove(ctx, file, false)
	}()
	for i, argv := range lang.argv {
		p.Argv = append(slices.Clone(argv), file)
		call, err := p.prepare()
		if err != nil {
			return "", err
		}
		if i+1 < len(lang.argv) {
			out, err := call.run(ctx, m, &s.spools)
			defer out.close()
			if err != nil {
				return "", err
			}
			if out.status.StartError == agentclient.NotFound {
				continue
			}
			return out.text(ctx, "", m.Files())
		}
		return s.execIn(ctx, m, in, call)
	}
	return "", nil
}

// cleanupWait is how long a guest may take to remove a call's files: a cancelled call waits for that, and a guest may never
// answer.
const cleanupWait = 2 * time.Second

// maxPrograms bounds what one call looks for.
const maxPrograms = 64

func (s execTools) checkInstalled(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		Sandbox  string   `json:"sandbox"`
		Programs []string `json:"programs"`
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	if len(a.Programs) < 1 || len(a.Programs) > maxPrograms {
		return "", wrong("%d programs; give 1 to %d", len(a.Programs), maxPrograms)
	}
	for _, p := range a.Programs {
		if p == "" || len(p) > 255 || strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+") != "" || p[0] == '-' {
			return "", wrong("program %q: give a program's name, such as python3", printed(p))
		}
	}
	return s.execOne(ctx, a.Sandbox, &program{Argv: append([]string{"/bin/sh", "-c", lookFor, "sh"}, a.Programs...)})
}

// lookFor prints the paths of programs. For a built-in command a shell prints the name alone.
const lookFor = `for p in "$@"; do
w=$(command -v "$p") || w="not installed"
if [ "$w" = "$p" ]; then
w="built into the shell"
IFS=:; for d in $PATH; do [ -x "$d/$p" ] && w=$d/$p && break; done
fi
echo "$p: $w"; done`
