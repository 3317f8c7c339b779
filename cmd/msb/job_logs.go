package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox"
)

// logFlags say which part of an output is shown, and how, as in other container tools.
type logFlags struct {
	follow, timestamps, json bool
	since, tail, grep        string
	match                    *regexp.Regexp // nil for every line
}

func (f *logFlags) register(fl *pflag.FlagSet) {
	fl.BoolVarP(&f.follow, "follow", "f", false, "wait for more, until the command has ended")
	fl.StringVar(&f.since, "since", "", "leave out what is older than this `time`: 10m, 2026-01-31T12:00:00Z, or seconds since 1970")
	fl.StringVarP(&f.tail, "tail", "n", "all", "begin with the last `lines` that are there")
	fl.StringVar(&f.grep, "grep", "", "of these lines, show those that match a regular `expression`, such as 'error|fail'")
	fl.BoolVarP(&f.timestamps, "timestamps", "t", false, "put the time before each line")
	fl.BoolVar(&f.json, "json", false, "print an object a line: time, stream and text, or time and missing_bytes")
}

// options reads the flags. now is what an age counts from.
func (f *logFlags) options(now time.Time) (sandbox.LogOptions, error) {
	o := sandbox.LogOptions{Follow: f.follow}
	if f.json && f.timestamps {
		return o, errors.New("--timestamps with --json: each object has its time; leave it out")
	}
	if f.grep != "" {
		var err error
		if f.match, err = regexp.Compile(f.grep); err != nil {
			return o, fmt.Errorf("--grep: %w; write a regular expression such as 'error|fail'", err)
		}
	}
	if f.tail != "all" {
		n, err := strconv.Atoi(f.tail)
		if err != nil {
			return o, fmt.Errorf("--tail %q: give it a number of lines, or all", f.tail)
		}
		switch {
		case n == 0:
			o.Tail = -1
		case n > 0:
			o.Tail = n
		} // below 0 is all, as in docker
	}
	if f.since == "" {
		return o, nil
	}
	if d, err := time.ParseDuration(f.since); err == nil {
		o.Since = now.Add(-d)
		return o, nil
	}
	if s, err := strconv.ParseInt(f.since, 10, 64); err == nil {
		o.Since = time.Unix(s, 0)
		return o, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, f.since, time.Local); err == nil {
			o.Since = t
			return o, nil
		}
	}
	return o, fmt.Errorf("--since %q: give it an age such as 10m, or a time such as 2026-01-31T12:00:00Z", f.since)
}

func newJobLogsCommand(ui *ui) *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use:   "logs [flags] NAME JOB",
		Short: "Show a job's output",
		Long: `Prints what a job wrote, whether it and its sandbox run or not: its standard
output on standard output, its standard error on standard error. The newest 7
to 8 MiB are kept, and msb says how much is missing before them. Bytes come as the
job wrote them, terminal escapes included; --json escapes them.`,
		Example: `  msb job logs agent beat
  msb job logs -f -n 10 agent beat
  msb job logs --since 5m -t agent beat
  msb job logs --json agent beat`,
		Args: named(cobra.ExactArgs(2), jobRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			o, err := f.options(time.Now())
			if err != nil {
				return &usageError{err: err, help: "msb job logs --help"}
			}
			return untilSignalled(c.Context(), func(ctx context.Context) error {
				j, err := home.Job(args[0], args[1])
				if err != nil {
					return err
				}
				return f.show(ctx, ui, j, o)
			})
		},
	}
	f.register(c.Flags())
	return c
}

// show prints a job's output.
func (f *logFlags) show(ctx context.Context, ui *ui, j *sandbox.Job, o sandbox.LogOptions) error {
	log, err := j.Logs(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // it was only read
	for {
		e, err := log.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && (f.match == nil || e.Missing > 0 || f.match.Match(e.Data)) {
			err = f.print(ui, &e)
		}
		if errors.Is(err, syscall.EPIPE) {
			return exitCode(exitSignalled(syscall.SIGPIPE)) // whoever read the output has what they wanted
		}
		if err != nil {
			return err
		}
	}
}

// logLine is an entry as programs read it.
type logLine struct {
	Time    time.Time `json:"time"`
	Stream  string    `json:"stream,omitempty"`
	Text    *string   `json:"text,omitempty"`
	Missing int64     `json:"missing_bytes,omitempty"`
}

func (f *logFlags) print(ui *ui, e *sandbox.LogEntry) error {
	if f.json {
		line := logLine{Time: e.Time.UTC(), Missing: e.Missing}
		if e.Missing == 0 {
			text := strings.ToValidUTF8(string(e.Data), "\ufffd")
			line.Text, line.Stream = &text, "stdout"
			if e.Stderr {
				line.Stream = "stderr"
			}
		}
		b, err := json.Marshal(line)
		if err != nil {
			return err
		}
		return ui.print(string(audit.AppendPrintable(nil, b)) + "\n")
	}
	if e.Missing > 0 {
		ui.note("%d bytes of output are missing here: they are older than what is kept, or the disk was full", e.Missing)
		return nil
	}
	to := ui.out
	if e.Stderr {
		to = ui.err
	}
	text := e.Data
	if f.timestamps {
		text = append([]byte(e.Time.UTC().Format("2006-01-02T15:04:05.000000000Z ")), text...)
	}
	_, err := to.Write(text)
	return err
}
