package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// program is one of those under bench. Its arguments are those of a whole run, or those of a quick one.
type program struct {
	name        string
	argv        []string
	full, quick string
}

// programs are all of them. Each takes -out.
var programs = []program{
	{"boot", []string{"scripts/bench-boot"}, "-n 10 -inner-n 5 -execs 30 -many 20 -beside 50", "-n 2 -execs 9 -many 0 -only here"},
	{"sandboxes", []string{"scripts/bench-boot"}, "-many 1 -beside 50 -only many", "-many 2 -beside 5 -only many"},
	{"net", []string{"bin/bench/net", "-gvproxy", "bin/gvproxy"}, "-rounds 5 -seconds 2",
		"-rounds 1 -seconds 0.3 -only copy~relay,msb~sandbox~(mtu~65520),gvproxy,slirp4netns"},
	{"flows", []string{"bin/bench/net", "-gvproxy", "bin/gvproxy", "-grow"}, "-rounds 3 -seconds 2 -only copy~relay,msb~sandbox~(mtu~65520),slirp4netns",
		"-rounds 1 -seconds 0.3 -most 1000 -only copy~relay,msb~sandbox~(mtu~65520)"},
	{"ports", []string{"bin/bench/ports", "-gvproxy", "bin/gvproxy", "-qemu", "qemu-system-x86_64"}, "-rounds 5", "-rounds 1 -seconds 0.3 -many 200"},
	{"guest", []string{"bin/bench/guest"}, "", "-rounds 1 -n 50"},
	{"life", []string{"bin/bench/life"}, "-rounds 5", "-rounds 1 -recorded 1000 -data 64"},
	{"dns", []string{"bin/bench/dns", "-gvproxy", "bin/gvproxy"}, "-rounds 5", "-rounds 1 -seconds 1 -names 5000"},
	{"names", []string{"bin/bench/dns", "-gvproxy", "bin/gvproxy", "-grow"}, "-rounds 3 -names 1000000", "-rounds 1 -seconds 1 -names 10000"},
	{"proxy", []string{"bin/bench/proxy"}, "-rounds 5", "-rounds 1 -seconds 1 -rows wrk,~10~conns|idle"},
	{"capture", []string{"bin/bench/capture"}, "", "-rounds 1 -seconds 0.3 -mtu 65520 -msb="},
	{"growth", []string{"bin/bench/growth"}, "", "-rounds 1 -flows 10000"},
	{"mcp", []string{"scripts/bench-mcp"}, "", "-starts 3 -execs 10 -runs 1"},
}

// arguments are those of a run; none where the program has nothing to do in it. A tilde stands for a space.
func (p program) arguments(quick bool) []string {
	text := p.full
	if quick {
		text = p.quick
	}
	args := strings.Fields(text)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "~", " ")
	}
	return args
}

// measure runs the programs one after the other. One that can't measure does not stop the others.
func (o options) measure(ctx context.Context) error {
	wanted, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.results(), 0o755); err != nil {
		return err
	}
	var failed error
	for _, p := range programs {
		if !wanted.MatchString(p.name) {
			continue
		}
		out := filepath.Join(o.results(), p.name+".txt")
		if p.name == "sandboxes" && !o.quick && wanted.MatchString("boot") { // which measures them too
			failed = errors.Join(failed, os.RemoveAll(out))
			continue
		}
		argv := append(append(append([]string{}, p.argv...), p.arguments(o.quick)...), "-out", out)
		fmt.Fprintf(os.Stderr, "\n== %s (load %s)\n", strings.Join(argv, " "), load())
		if err := os.RemoveAll(out); err != nil {
			return err
		}
		start := time.Now()
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = o.root, os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", p.name, err))
		}
		fmt.Fprintf(os.Stderr, "== %s took %s (load %s)\n", p.name, time.Since(start).Round(time.Second), load())
	}
	return failed
}

// load is the machine's load average of one minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
