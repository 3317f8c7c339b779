//go:build !vmtest

package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/msb-project/msb/sandbox"
)

// A sandbox with a name, from its start to its removal. Its state is in a directory of its own here; "" is $MSB_HOME.
func ExampleStartNamed() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "msb")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cfg := sandbox.Config{Name: "agent", Home: dir, Labels: map[string]string{"team": "web"}}
	if err := sandbox.Create(ctx, cfg); err != nil {
		fmt.Println(err)
		return
	}
	sb, err := sandbox.StartNamed(ctx, "agent", sandbox.StartOptions{Home: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := sb.Exec(ctx, sandbox.ExecOptions{Argv: []string{"echo", "hello"}, Stdout: os.Stdout})
	fmt.Println("exit code", status.Code, err)
	fmt.Println(sb.Stop(ctx))

	home, err := sandbox.OpenHome(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	all, err := home.List()
	fmt.Println(len(all), all[0].Name, all[0].Labels, all[0].Running, err)
	fmt.Println(home.Remove(ctx, "agent"))
	// Output:
	// hello
	// exit code 0 <nil>
	// <nil>
	// 1 agent map[team:web] false <nil>
	// <nil>
}

// A job outlives the session that started it; what it wrote and how it ended can be read when its sandbox is stopped.
func ExampleHome_Job() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "msb")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sb, err := sandbox.Start(ctx, sandbox.Config{Name: "build", Home: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := sb.StartJob(ctx, "greet", sandbox.ExecOptions{Argv: []string{"echo", "done"}}); err != nil {
		fmt.Println(err)
		return
	}
	home, err := sandbox.OpenHome(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err := home.Job("build", "greet")
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := job.Wait(ctx)
	fmt.Println(status.State, status.Code, err)
	fmt.Println(sb.Stop(ctx))
	output, err := job.Output(0, 1<<10)
	fmt.Printf("%s%v\n", output.Data, err)
	// Output:
	// exited 0 <nil>
	// <nil>
	// done
	// <nil>
}

// Errors are for errors.Is; KindOf puts them into groups that have an exit code each.
func ExampleKindOf() {
	dir, err := os.MkdirTemp("", "msb")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	home, err := sandbox.OpenHome(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = home.Connect(context.Background(), "nosuch")
	fmt.Println(errors.Is(err, sandbox.ErrNoSandbox), errors.Is(err, sandbox.ErrNotRunning), sandbox.KindOf(err))
	// Output: true false sandbox
}
