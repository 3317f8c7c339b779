package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// jobTools are the tool "job", for jobs and background calls.
type jobTools struct {
	*boxes
	calls *calls
}

func (t jobTools) job(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		Action  string            `json:"action"`
		Sandbox string            `json:"sandbox"`
		Job     string            `json:"job"`
		Cursor  int64             `json:"cursor"`
		Force   bool              `json:"force"`
		Command string            `json:"command"`
		Argv    []string          `json:"argv"`
		Cwd     string            `json:"cwd"`
		Env     map[string]string `json:"env"`
		Stdin   bool              `json:"stdin"`
		Data    string            `json:"data"`
		EOF     bool              `json:"eof"`
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	if a.Job != "" {
		if err := sandbox.CheckJobName(a.Job); err != nil {
			return "", err
		}
	}
	if strings.HasPrefix(a.Job, callPrefix) {
		return t.callAction(ctx, a.Action, a.Job)
	}
	if a.Action == "start" {
		return t.startJob(ctx, a.Sandbox, a.Job, &program{Command: a.Command, Argv: a.Argv, Cwd: a.Cwd, Env: a.Env}, a.Stdin)
	}
	st, err := t.own(a.Sandbox, false)
	if unnamed := a.Sandbox == "" || a.Sandbox == defaultName; a.Action == "list" && unnamed && errors.Is(err, sandbox.ErrNoSandbox) {
		return t.listJobs(nil)
	}
	if err != nil {
		return "", err
	}
	if a.Action == "list" {
		jobs, err := t.only(st).Jobs(st.Name)
		if err != nil {
			return "", err
		}
		return t.listJobs(jobs)
	}
	if a.Job == "" {
		return "", wrong("name the job; the action list shows them")
	}
	j, err := t.only(st).Job(st.Name, a.Job)
	if err != nil {
		return "", err
	}
	switch a.Action {
	case "logs":
		return jobLogs(j, a.Cursor)
	case "wait":
		return t.waitForJob(ctx, j)
	case "input":
		return jobInput(ctx, j, a.Data, a.EOF)
	case "kill":
		sig := agentclient.SIGTERM
		if a.Force {
			sig = agentclient.SIGKILL
		}
		if err := j.Kill(ctx, sig); err != nil {
			return "", err
		}
		return fmt.Sprintf("signal %d sent to job %s; list shows whether it ended", sig, a.Job), nil
	case "remove":
		if err := j.Remove(ctx); err != nil {
			return "", err
		}
		return "job " + a.Job + " removed", nil
	}
	return "", wrong("action %q", printed(a.Action))
}

// listJobs lists the jobs of a sandbox and the background calls of all sandboxes, bounded. The reason why a job was lost
// may be the guest's words.
func (t jobTools) listJobs(jobs []sandbox.JobStatus) (string, error) {
	type job struct {
		sandbox.JobStatus
		Code *int `json:"exit_code,omitempty"` // of one that has ended
	}
	all := struct {
		Jobs  []job      `json:"jobs"`
		Calls []callInfo `json:"calls,omitempty"`
	}{[]job{}, t.calls.list()}
	for i := range jobs {
		j := job{JobStatus: jobs[i]}
		j.Command = []string{inShort(j.Command)}
		if hasEnded(j.State) {
			j.Code = &jobs[i].Code
		}
		all.Jobs = append(all.Jobs, j)
	}
	text, err := asJSON(all)
	if len(jobs) == 0 {
		return text, err
	}
	var c capture
	_, _ = c.Write([]byte(text)) // it never fails
	return c.untrusted("jobs"), err
}

// callAction acts on a background call.
func (t jobTools) callAction(ctx context.Context, action, name string) (string, error) {
	switch action {
	case "wait":
		return t.calls.wait(ctx, name)
	case "kill":
		return t.calls.kill(name)
	}
	return "", wrong("job %q: names that begin with %q are those of calls that go on, for the actions wait and kill", name, callPrefix)
}

// waitForJob waits for a job's end as long as a client waits.
func (t jobTools) waitForJob(ctx context.Context, j *sandbox.Job) (string, error) {
	inner, cancel := context.WithTimeout(ctx, t.calls.waiting)
	defer cancel()
	st, err := j.Wait(inner)
	if errors.Is(err, sandbox.ErrJobLost) {
		return "", &toolFailure{text: jobLine(&st) + "; the action logs shows its output to that point"}
	}
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return "", err
	}
	if err != nil {
		return jobLine(&st) + " still: wait again for its end, or see its output so far with logs", nil
	}
	return jobLine(&st) + "; the action logs shows its output", nil
}

// hasEnded reports whether a job has an exit code.
func hasEnded(s sandbox.JobState) bool { return s == sandbox.JobExited || s == sandbox.JobKilled }

// jobLine describes a job's state.
func jobLine(st *sandbox.JobStatus) string {
	if st.State == sandbox.JobLost {
		return fmt.Sprintf("job %s is lost: the sandbox ended under it, so that it has no exit code", printed(st.Name))
	}
	line := fmt.Sprintf("job %s: %s", printed(st.Name), printed(string(st.State)))
	if hasEnded(st.State) {
		line += fmt.Sprintf(", exit code %d", st.Code)
	}
	return line
}

func (t jobTools) startJob(ctx context.Context, in, job string, a *program, stdin bool) (string, error) {
	p, err := a.prepare()
	if err != nil {
		return "", err
	}
	m, st, err := t.use(ctx, in)
	if err != nil {
		return "", err
	}
	defer func() { _ = m.Close() }() // the session's
	started, err := m.StartJob(ctx, job, sandbox.ExecOptions{Argv: p.argv, Env: p.env, Dir: p.cwd, JobInput: stdin})
	var not *sandbox.NotStartedError
	if errors.As(err, &not) {
		return "", &toolFailure{text: notStarted(&not.Status, p.cwd, p.argv)}
	}
	if err != nil {
		return "", err
	}
	if sandbox.CheckJobName(started) != nil {
		return "", fmt.Errorf("%w: a job named %q", agentclient.ErrProtocol, printed(started))
	}
	return fmt.Sprintf("job %s started in sandbox %s; the action logs shows its output", started, st.Name), nil
}

// jobInput gives a job text on its standard input.
func jobInput(ctx context.Context, j jobWriter, data string, eof bool) (string, error) {
	if data == "" && !eof {
		return "", wrong("data: give the text, with the newline that ends a line, or eof: true to end the input")
	}
	n, err := j.Write(ctx, []byte(data), eof)
	if errors.Is(err, sandbox.ErrBusy) {
		return "", fmt.Errorf("%w; it has %d of these %d bytes, send the rest later", err, n, len(data))
	}
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("the job took %d bytes", n)
	if eof {
		text += " and the end of its input"
	}
	return text + "; the action logs shows what it answers", nil
}

// jobWriter is what jobInput uses of *sandbox.Job.
type jobWriter interface {
	Write(ctx context.Context, p []byte, eof bool) (int, error)
}

var _ jobWriter = (*sandbox.Job)(nil)

// jobLogs shows the output of a job from a cursor on. The cursor counts bytes; below 0 it counts from the end.
func jobLogs(j jobReader, cursor int64) (string, error) {
	status, err := j.Status()
	if err != nil {
		return "", err
	}
	size, err := j.OutputSize()
	if err != nil {
		return "", err
	}
	from := cursor
	switch {
	case cursor > size:
		return "", wrong("cursor %d: the job has written %d bytes so far", cursor, size)
	case cursor < 0:
		from = max(0, size+cursor)
	}
	out, err := j.Output(from, outputBudget)
	if err != nil {
		return "", err
	}
	if cursor < 0 && from > 0 {
		out.Data = trimStart(out.Data)
	}
	var c capture
	_, _ = c.Write(out.Data) // it never fails
	if len(out.Data) == outputBudget {
		out.Next -= c.cut()
	}
	head := jobLine(&status) + fmt.Sprintf("; next cursor %d of %d bytes", out.Next, max(size, out.Next))
	if out.Missing > 0 {
		head += fmt.Sprintf("; %d bytes before are no longer kept", out.Missing)
	}
	return head + "\n" + c.untrusted("job output"), nil
}

// jobReader is what jobLogs uses of *sandbox.Job.
type jobReader interface {
	Status() (sandbox.JobStatus, error)
	OutputSize() (int64, error)
	Output(from int64, most int) (sandbox.JobOutput, error)
}

var _ jobReader = (*sandbox.Job)(nil)
