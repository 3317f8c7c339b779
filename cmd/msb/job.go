package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

const jobRemedy = "name the sandbox and the job; `msb job ls NAME` lists a sandbox's jobs"

const jobLong = `A job is a command that msb exec -d left running in a sandbox. The newest 7
to 8 MiB of its output are kept on this machine until the job, or the sandbox, is
removed. A sandbox has up to 64 jobs, those that have ended included.

A job is running, exited (with its code), killed (by a signal), or lost: its
sandbox was stopped or ended under it. The output to that point is there.`

func newJobCommand(ui *ui) *cobra.Command {
	c := onlyGroups(&cobra.Command{
		Use:   "job",
		Short: "Look at, wait for, and end commands that run detached",
		Long:  jobLong,
		Example: `  msb exec -d --job beat agent -- sh -c 'while sleep 1; do date; done'
  msb job ls agent
  msb job logs -n 5 agent beat
  msb job kill agent beat
  msb job wait agent beat                  # prints 137, the exit code
  msb job rm agent beat`,
	})
	c.AddCommand(newJobListCommand(ui), newJobLogsCommand(ui), newJobInputCommand(ui), newJobWaitCommand(ui), newJobKillCommand(ui), newJobRemoveCommand(ui))
	return c
}

func newJobListCommand(ui *ui) *cobra.Command {
	var flags listFlags
	c := &cobra.Command{
		Use:     "ls [flags] NAME",
		Aliases: []string{"list", "ps"},
		Short:   "List a sandbox's jobs, oldest first",
		Example: `  msb job ls agent`,
		Args:    named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			all, err := home.Jobs(args[0])
			if err != nil {
				return err
			}
			listed := make([]listedJob, 0, len(all))
			for i := range all {
				listed = append(listed, listJob(&all[i]))
			}
			return printList(ui, c, &flags, listed, func(j *listedJob) string { return j.Name },
				func([]listedJob) [][]string { return jobRows(all, time.Now()) })
		},
	}
	flags.register(c)
	return c
}

// listedJob is what `msb job ls --json` prints of a job.
type listedJob struct {
	sandbox.JobStatus
	// Code is the exit code of a job that has one: 0 would say that a job which runs has ended well.
	Code *int `json:"exit_code,omitempty"`
}

func listJob(s *sandbox.JobStatus) listedJob {
	j := listedJob{JobStatus: *s}
	if s.State == sandbox.JobExited || s.State == sandbox.JobKilled {
		j.Code = &s.Code
	}
	return j
}

func jobRows(all []sandbox.JobStatus, now time.Time) [][]string {
	rows := make([][]string, 1, 1+len(all))
	rows[0] = []string{"JOB", "STATE", "STARTED", "OUTPUT", "COMMAND"}
	for i := range all {
		s := &all[i]
		started, output := "-", "-"
		if !s.Started.IsZero() {
			started = age(now.Sub(s.Started)) + " ago"
		}
		if s.Ended != nil {
			output = progressbar.Bytes(s.OutputBytes)
		}
		const most = 60
		command := []rune(audit.Printable(strings.Join(s.Command, " ")))
		if len(command) > most {
			command = append(command[:most-1], '…')
		}
		rows = append(rows, []string{s.Name, jobState(s), started, output, string(command)})
	}
	return rows
}

// jobState is a job's state in a few words.
func jobState(s *sandbox.JobStatus) string {
	text := string(s.State)
	if s.State == sandbox.JobExited {
		text += " " + strconv.Itoa(s.Code)
	}
	if s.State == sandbox.JobKilled {
		text += " " + cmp.Or(unix.SignalName(unix.Signal(s.Signal)), "by signal "+strconv.Itoa(s.Signal))
	}
	switch {
	case s.OOMKilled:
		text += ", out of memory"
	case s.TimedOut:
		text += ", timed out"
	}
	return text
}

func newJobWaitCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:     "wait NAME JOB...",
		Short:   "Wait until jobs have ended, and print their exit codes",
		Example: `  msb job wait agent beat                  # prints its exit code`,
		Args:    named(cobra.MinimumNArgs(2), jobRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return forJobs(c.Context(), args, func(ctx context.Context, j *sandbox.Job) error {
				st, err := j.Wait(ctx)
				if err != nil {
					return startError(ctx, err)
				}
				return ui.print(strconv.Itoa(st.Code) + "\n")
			})
		},
	}
}

func newJobKillCommand(ui *ui) *cobra.Command {
	var signal string
	c := &cobra.Command{
		Use:   "kill [-s SIGNAL] NAME JOB...",
		Short: "Send jobs a signal",
		Example: `  msb job kill agent beat
  msb job kill -s TERM agent beat`,
		Args: named(cobra.MinimumNArgs(2), jobRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			sig, err := parseSignal(signal)
			if err != nil {
				return &usageError{err: err, help: "msb job kill --help"}
			}
			return forJobs(c.Context(), args, func(ctx context.Context, j *sandbox.Job) error {
				if err := j.Kill(ctx, sig); err != nil {
					return startError(ctx, err)
				}
				return ui.print(j.Name() + "\n")
			})
		},
	}
	c.Flags().StringVarP(&signal, "signal", "s", "KILL", "the `signal`, by name or number")
	return c
}

// parseSignal reads TERM, SIGTERM, sigterm or 15.
func parseSignal(text string) (agentclient.Signal, error) {
	const highest = 64 // SIGRTMAX
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	n := int(unix.SignalNum(name))
	if n == 0 {
		n, _ = strconv.Atoi(text)
	}
	if n < 1 || n > highest {
		return 0, fmt.Errorf("--signal %q: give it a name such as TERM, or a number from 1 to %d", text, highest)
	}
	return agentclient.Signal(n), nil
}

func newJobRemoveCommand(ui *ui) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:     "rm [--force] NAME JOB...",
		Aliases: []string{"remove"},
		Short:   "Remove jobs that have ended, and their output",
		Example: `  msb job rm agent beat
  msb job rm --force agent beat`,
		Args: named(cobra.MinimumNArgs(2), jobRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return forJobs(c.Context(), args, func(ctx context.Context, j *sandbox.Job) error {
				err := j.Remove(ctx)
				if force && errors.Is(err, sandbox.ErrJobRunning) {
					err = killAndRemove(ctx, j, killedWait)
				}
				if err != nil {
					return startError(ctx, err)
				}
				return ui.print(j.Name() + "\n")
			})
		},
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "kill those that run first")
	return c
}

// killedWait is how long a guest may take to report the end of a killed job.
const killedWait = 30 * time.Second

// killable is a job, but in tests.
type killable interface {
	Name() string
	Kill(ctx context.Context, sig agentclient.Signal) error
	Wait(ctx context.Context) (sandbox.JobStatus, error)
	Remove(ctx context.Context) error
}

var _ killable = (*sandbox.Job)(nil)

func killAndRemove(ctx context.Context, j killable, limit time.Duration) error {
	if err := j.Kill(ctx, agentclient.SIGKILL); err != nil && !errors.Is(err, sandbox.ErrJobEnded) {
		return err
	}
	waited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := j.Wait(waited)
	switch {
	case err != nil && waited.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: job %s was killed and its end was not reported within %s; msb stop ends the sandbox with all its jobs", sandbox.ErrJobRunning, j.Name(), limit)
	case err != nil && !errors.Is(err, sandbox.ErrJobLost):
		return err
	}
	return j.Remove(ctx)
}

// forJobs calls do for each job named after a sandbox's name, and continues after an error.
func forJobs(ctx context.Context, args []string, do func(context.Context, *sandbox.Job) error) error {
	home, err := sandbox.OpenHome("")
	if err != nil {
		return err
	}
	return untilSignalled(ctx, func(ctx context.Context) error {
		return forEach(args[1:], func(name string) error {
			j, err := home.Job(args[0], name)
			if j == nil || err != nil && !errors.Is(err, sandbox.ErrState) { // a job that is damaged can be removed
				return err
			}
			return do(ctx, j)
		})
	})
}
