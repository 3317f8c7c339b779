package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/sandbox/internal/supervisor"
)

// childCalls answers what programs of one sandbox ask for, in its supervisor. Everything that a guest asks for goes the way
// that an agent's child_spawn goes: Narrow, and Children of that sandbox alone.
type childCalls struct {
	home   *Home
	parent string
	made   time.Time    // of the sandbox: another that has its name since is none of its
	stderr io.Writer    // the supervisor's log
	logged atomic.Int64 // a guest can't make it wrap
}

// newChildCalls is supervisor.Hooks.Children.
func newChildCalls(p *state.Plan) (supervisor.ChildCall, error) {
	h, err := OpenHome(p.Home)
	if err != nil {
		return nil, err
	}
	st, err := loadStored(h, p.Name)
	if err != nil {
		return nil, err
	}
	return (&childCalls{home: h, parent: p.Name, made: st.Created, stderr: os.Stderr}).answer, nil
}

func (c *childCalls) children() Children { return c.home.Only(c.made).Children() }

// childRefused is an error in words that a guest may read.
type childRefused struct{ error }

// Unwrap gives the cause.
func (e childRefused) Unwrap() error { return e.error }

func refuse(format string, args ...any) error { return childRefused{fmt.Errorf(format, args...)} }

// ofChildren tells the guest of a budget, whose words are this package's own.
func ofChildren(err error) error {
	if errors.Is(err, ErrChildren) {
		return childRefused{err}
	}
	return err
}

// childSentence is what a guest learns of an error: no path of this machine, and nothing of sandboxes that are not below
// its own.
func childSentence(err error) string {
	var refused childRefused
	var narrow *NarrowError
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case errors.As(err, &narrow):
		return narrow.Error()
	case errors.Is(err, image.ErrNotCached), errors.Is(err, image.ErrReference):
		return "the image is not in the cache of the host"
	case errors.Is(err, ErrNotRunning):
		return "the child does not run"
	}
	return "it could not be done; the supervisor's log on the host says why"
}

// answer is a supervisor.ChildCall.
func (c *childCalls) answer(ctx context.Context, request []byte, out io.Writer) (e audit.Event) {
	w := &childWriter{out: out}
	result, err := c.do(ctx, request, w, &e)
	switch {
	case err != nil:
		c.log(err)
		e.Message = childSentence(err)
		w.send(&agentpb.ChildReply{Error: e.Message})
	case e.ExitCode != nil:
		w.send(&agentpb.ChildReply{Exit: e.ExitCode})
	default:
		w.send(&agentpb.ChildReply{Result: &result})
	}
	return e
}

// maxChildLog bounds the lines of the supervisor's log that a guest can cause, and maxChildLine one of them, in characters.
const (
	maxChildLog  = 100
	maxChildLine = 1000
)

// log has in the supervisor's log what the guest doesn't learn of.
func (c *childCalls) log(err error) {
	var refused childRefused
	var narrow *NarrowError
	if !errors.As(err, &refused) && !errors.As(err, &narrow) && c.logged.Add(1) <= maxChildLog {
		_, _ = fmt.Fprintf(c.stderr, "a program of the guest asked for a child: %.*s\n", maxChildLine, err)
	}
}

// do carries a request out, and says in e what it did.
func (c *childCalls) do(ctx context.Context, request []byte, w *childWriter, e *audit.Event) (result string, err error) {
	r, err := readChildRequest(request)
	if err != nil {
		return "", err
	}
	e.Verb, e.Child = r.Verb, r.Name
	if len(r.Argv) > 0 {
		e.Program = r.Argv[0]
	}
	switch r.Verb {
	case agentpb.ChildPing, agentpb.ChildList:
		result, err = c.list(r.Verb == agentpb.ChildPing)
	case agentpb.ChildSpawn:
		result, err = c.spawn(ctx, r)
		e.Child = result
	case agentpb.ChildDestroy:
		err = c.destroy(ctx, r.Name)
	case agentpb.ChildExec:
		e.ExitCode, err = c.exec(ctx, r.Name, r.Argv, w)
	case agentpb.ChildRun:
		err = c.run(ctx, r, w, e)
	default:
		err = refuse("there is no verb %.20q", r.Verb)
	}
	return result, err
}

// readChildRequest reads a request strictly: a slip in a name must not be taken for a default.
func readChildRequest(line []byte) (*agentpb.ChildRequest, error) {
	r := new(agentpb.ChildRequest)
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, refuse("the request is no JSON of a request")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, refuse("there is something behind the request")
	}
	makes, runs := r.Verb == agentpb.ChildSpawn || r.Verb == agentpb.ChildRun, r.Verb == agentpb.ChildExec || r.Verb == agentpb.ChildRun
	names := r.Verb == agentpb.ChildExec || r.Verb == agentpb.ChildDestroy
	switch {
	case runs != (len(r.Argv) > 0) || names != (r.Name != ""),
		!makes && (r.Image != "" || r.CPUs != 0 || r.MemoryMiB != 0 || r.Policy != nil || r.Allow != nil || r.NoNetwork),
		r.NoNetwork && (r.Policy != nil || r.Allow != nil):
		return nil, refuse("the request's fields are not those of its verb")
	case r.MemoryMiB < 0 || r.MemoryMiB > 1<<30:
		return nil, refuse("%d MiB are no size of memory", r.MemoryMiB)
	}
	return r, nil
}

// childRow is what a guest learns of a child.
type childRow struct {
	Name      string    `json:"name"`
	Parent    string    `json:"parent"`
	Image     string    `json:"image"`
	Running   bool      `json:"running"`
	CPUs      int       `json:"cpus"`
	MemoryMiB int64     `json:"memory_mib"`
	Created   time.Time `json:"created"`
}

func (c *childCalls) list(ping bool) (string, error) {
	have, err := c.children().List(c.parent)
	if err != nil {
		return "", ofChildren(err)
	}
	rows := make([]childRow, 0, len(have.Children))
	for i := range have.Children {
		s := &have.Children[i]
		rows = append(rows, childRow{s.Name, s.Parent, s.Image, s.Running, s.CPUs, s.Memory >> 20, s.Created})
	}
	answer := any(rows)
	if ping {
		answer = struct {
			Sandbox  string       `json:"sandbox"`
			Children int          `json:"children"`
			Made     int          `json:"made"`
			Budget   *ChildBudget `json:"budget"`
		}{c.parent, len(rows), have.Made, have.Budget}
	}
	text, err := json.Marshal(answer)
	return string(text), err
}

// spawn makes and starts a child. The guest doesn't choose its name, by which it would learn whether another sandbox of the
// host has it. One that does not start does not stay.
func (c *childCalls) spawn(ctx context.Context, r *agentpb.ChildRequest) (string, error) {
	o := ChildOptions{Image: r.Image, CPUs: r.CPUs, Memory: r.MemoryMiB << 20, Pull: image.PullNever}
	if r.Policy != nil || r.Allow != nil || r.NoNetwork {
		above, err := c.home.Only(c.made).Policy(c.parent)
		if err != nil {
			return "", err
		}
		if o.Policy, err = c.home.Trust().Narrow(above, r.Policy, r.Allow); err != nil {
			return "", err
		}
	}
	name, err := c.children().Make(ctx, c.parent, o)
	if err != nil {
		return "", ofChildren(err)
	}
	sb, err := startNamed(ctx, c.home, name, StartOptions{})
	if err == nil {
		err = errors.Join(sb.Close(), ctx.Err())
	}
	if err != nil {
		return "", errors.Join(err, c.destroy(context.WithoutCancel(ctx), name))
	}
	return name, nil
}

// errNoChild is the answer for every other name: who asks learns of no other sandbox.
var errNoChild = childRefused{errors.New("this sandbox has no child of that name; list shows those that there are")}

// find is the child of that name.
func (c *childCalls) find(name string) (*Status, error) {
	have, err := c.children().List(c.parent)
	if err != nil {
		return nil, ofChildren(err)
	}
	i := slices.IndexFunc(have.Children, func(s Status) bool { return s.Name == name })
	if i < 0 {
		return nil, errNoChild
	}
	return &have.Children[i], nil
}

func (c *childCalls) destroy(ctx context.Context, name string) error {
	if _, err := c.find(name); err != nil {
		return err
	}
	return c.children().Remove(ctx, c.parent, name)
}

func (c *childCalls) exec(ctx context.Context, name string, argv []string, w *childWriter) (*int, error) {
	st, err := c.find(name)
	if err != nil {
		return nil, err
	}
	sb, err := c.home.Only(st.Created).Connect(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sb.Close() }() // the session's
	config := sb.Image().Config
	ended, err := sb.Exec(ctx, ExecOptions{Argv: argv, Dir: config.WorkingDir, MakeDir: true, User: config.User, Stdout: w.stream(false), Stderr: w.stream(true)})
	if err != nil {
		return nil, err
	}
	code := ended.Code
	if ended.Message != "" {
		_, _ = w.stream(true).Write([]byte(ended.Message + "\n"))
	}
	return &code, nil
}

func (c *childCalls) run(ctx context.Context, r *agentpb.ChildRequest, w *childWriter, e *audit.Event) (err error) {
	if e.Child, err = c.spawn(ctx, r); err != nil {
		return err
	}
	e.ExitCode, err = c.exec(ctx, e.Child, r.Argv, w)
	return errors.Join(err, c.destroy(context.WithoutCancel(ctx), e.Child))
}

// childWriter writes replies, from any goroutine. It waits while the guest doesn't read.
type childWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *childWriter) send(r *agentpb.ChildReply) {
	line, err := json.Marshal(r)
	if err != nil {
		return // no reply can fail to be JSON
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.out.Write(append(line, '\n')) // a guest that has gone has ended ctx
}

// stream is a program's output in the replies.
func (w *childWriter) stream(stderr bool) io.Writer {
	return writerFunc(func(b []byte) (int, error) {
		for rest := b; len(rest) > 0; {
			part := rest[:min(len(rest), agentpb.ChunkBytes)]
			rest = rest[len(part):]
			if stderr {
				w.send(&agentpb.ChildReply{Stderr: part})
			} else {
				w.send(&agentpb.ChildReply{Stdout: part})
			}
		}
		return len(b), nil
	})
}

type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
