package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// A program that starts sandboxes is its own supervisor and VMM: MaybeRun comes before anything else in
// main, and in TestMain.
func ExampleMaybeRun() {
	sandbox.MaybeRun()
	// … the program
}

// One sandbox, one command in it.
func ExampleStart() {
	ctx := context.Background()
	policy, err := policies.Parse("in code", []byte(`
version = 1

[[egress.allow]]
hosts    = ["echo.msb.internal"]
protocol = "https"

[hosts]
"echo.msb.internal" = "builtin:echo"
`), nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // each fault with line, column and remedy
		return
	}
	sb, err := sandbox.Start(ctx, sandbox.Config{Policy: policy, Audit: "audit.jsonl"})
	if err != nil {
		fmt.Fprintln(os.Stderr, sandbox.KindOf(err), err)
		return
	}
	defer func() { _ = sb.Close() }()
	status, err := sb.Exec(ctx, sandbox.ExecOptions{
		Argv:    []string{"/bin/sh", "-c", "uname -r; nc -w 5 10.0.0.1 80"},
		Timeout: 30 * time.Second,
		Stdout:  os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println("exit code", status.Code, "under", sb.Info().Backend)
}

// A job runs on when the session ends, and its output is kept.
func ExampleSandbox_StartJob() {
	ctx := context.Background()
	home, err := sandbox.OpenHome("")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	sb, err := home.Connect(ctx, "agent")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = sb.Close() }()
	job, err := sb.StartJob(ctx, "build", sandbox.ExecOptions{Argv: []string{"make", "-C", "/src"}})
	if errors.Is(err, sandbox.ErrJobExists) {
		job, err = sb.Job("build")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	log, err := job.Logs(ctx, sandbox.LogOptions{Follow: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = log.Close() }()
	if _, err := io.Copy(os.Stdout, log); err != nil { // until the job has ended
		fmt.Fprintln(os.Stderr, err)
		return
	}
	status, err := job.Wait(ctx) // ErrJobLost if the sandbox ended under it
	fmt.Println(status.State, status.Code, err)
}

// What a guest changed in a directory that it has copied on write is applied where nothing speaks against it.
func ExampleSandbox_Changes() {
	ctx := context.Background()
	home, err := sandbox.OpenHome("")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	sb, err := home.Review(ctx, "agent", sandbox.StartOptions{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer sb.Close()
	changed, err := sb.Changes(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for _, d := range changed {
		defer d.Close()
		for _, c := range d.ApplyOrder(nil) {
			if len(c.Refusals) == 0 {
				err = errors.Join(err, d.Apply(ctx, c, nil))
			}
		}
	}
	fmt.Println(err)
}
