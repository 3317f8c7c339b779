package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox"
)

// parsed is a command line of `msb run`, read as msb does.
func parsed(t *testing.T, args ...string) (*runFlags, sandbox.Config, []string, error) {
	t.Helper()
	var f runFlags
	c := &cobra.Command{}
	f.register(c)
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	f.cpusSet, f.removeSet = c.Flags().Changed("cpus"), c.Flags().Changed("rm")
	cfg, argv, err := f.config(newUI(io.Discard, io.Discard), c.Flags().Args(), c.Flags().ArgsLenAtDash())
	return &f, cfg, argv, err
}

// text is v for a comparison: what a pointer leads to counts.
func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFlagsReachTheSandbox: each flag of msb run changes the fields of the sandbox that it is for, and no other.
func TestFlagsReachTheSandbox(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.toml")
	floor := filepath.Join(dir, "floor.toml")
	pcap := filepath.Join(dir, "c")
	for path, text := range map[string]string{
		policy: "version = 1\n[sandbox]\nimage = \"alpine:3.20\"\ncpus = 3\nmemory = \"2G\"\ncommand = [\"of\", \"the policy\"]\n",
		floor:  "version = 1\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const named = "--name=web"
	_, plain, _, err := parsed(t)
	if err != nil {
		t.Fatal(err)
	}
	_, withName, _, err := parsed(t, named)
	if err != nil {
		t.Fatal(err)
	}
	mode := uint32(0o700)
	type fields map[string]any
	for flags, want := range map[string]fields{
		"alpine":                    {"Image": "alpine"},
		"--policy=" + policy:        {"Policy": nil, "PolicyFile": policy, "Image": "alpine:3.20", "PolicyImage": true, "CPUs": 3, "Memory": int64(2 << 30)},
		"--policy=" + policy + " x": {"Policy": nil, "PolicyFile": policy, "Image": "x", "CPUs": 3, "Memory": int64(2 << 30)}, // the user's own image
		"--policy=" + policy + " --cpus=2 -m=1G --allow=example.com:443": {"Policy": nil, "Image": "alpine:3.20", "PolicyImage": true, "CPUs": 2, "Memory": int64(1 << 30)}, // a later version of the file lacks the rule
		"--allow=example.com:443": {"Policy": nil},
		"--floor=" + floor:        {"Floor": nil},
		"--trust":                 {"Trust": true},
		"--vm=qemu":               {"Backend": "qemu"},
		"--cold":                  {"Cold": true},
		"--hostname=box":          {"Hostname": "box"},
		"--cpus=4":                {"CPUs": 4},
		"--memory=1G":             {"Memory": int64(1 << 30)},
		"-m=96M":                  {"Memory": int64(96 << 20)},
		"--disk=10G":              {"Disk": int64(10 << 30)},
		"-p=127.0.0.1:8080:80":    {"Ports": mustPorts(t, "127.0.0.1:8080:80")},
		"-v=/usr:/work:rw -v=data:/d:ro": {
			"Directories": []sandbox.Directory{{Host: "/usr", Guest: "/work", Writable: true}},
			"Volumes":     []sandbox.Volume{{Name: "data", Guest: "/d", ReadOnly: true}},
		},
		"--cache=npm,pip": {"Caches": []string{"npm", "pip"}},
		"--hide=.env --hide=*.pem": {
			"Hide": []string{".env", "*.pem"},
		},
		"--hide-credentials": {"HideCredentials": true},
		"--tmpfs=/t:size=8M,mode=700,exec --tmpfs=/u:noexec": {"Tmpfs": []sandbox.Tmpfs{{Path: "/t", Size: 8 << 20, Mode: &mode, Exec: true}, {Path: "/u"}}},
		"--read-only":              {"ReadOnly": true},
		"--max-duration=2h":        {"Lifetime": 2 * time.Hour},
		"--idle-timeout=5m":        {"IdleStop": 5 * time.Minute},
		"--no-net":                 {"NoNet": true},
		"--http-proxy":             {"HTTPProxy": true},
		"--pull=never":             {"Pull": image.PullNever},
		"--audit=/tmp/audit":       {"Audit": "/tmp/audit"},
		"--learn=/tmp/learned":     {"Learn": "/tmp/learned"},
		"--rm=false":               {"Keep": true},
		"--rm":                     {},
		"-u=1000:7":                {"DirectoryUser": "1000:7"},
		"-e=A=b":                   {}, // of the one command
		"-w=/x -i --timeout=3s -q": {},
		"--pcap=" + pcap + " --pcap-off --pcap-size=2M --pcap-age=1h --pcap-keep=7": {"Pcap": pcap, "PcapOptions": sandbox.PcapOptions{Off: true, MaxBytes: 2 << 20, MaxAge: time.Hour, Keep: 7}},
		named + " -l=team=web -l=x":          {"Labels": map[string]string{"team": "web", "x": ""}},
		named + " -d --restart=on-failure:3": {"Restart": mustRestart(t, "on-failure:3")},
		named + " -e=A=b":                    {"Env": []string{"A=b"}},
		named + " --rm":                      {"AutoRemove": true, "Attached": true},
		named + " -d --rm":                   {"AutoRemove": true},
		named + " -d":                        {},
		named + " --rm=false":                {},
	} {
		_, got, _, err := parsed(t, strings.Fields(flags)...)
		if err != nil {
			t.Errorf("%s: %v", flags, err)
			continue
		}
		of := plain
		if strings.HasPrefix(flags, named) {
			of = withName
		}
		for i := range reflect.TypeFor[sandbox.Config]().NumField() {
			field := reflect.TypeFor[sandbox.Config]().Field(i)
			if !field.IsExported() || field.Name == "Notice" || field.Name == "Progress" {
				continue
			}
			before, after := text(t, reflect.ValueOf(of).Field(i).Interface()), text(t, reflect.ValueOf(got).Field(i).Interface())
			wanted, has := want[field.Name]
			switch {
			case has && wanted == nil: // any other value
				if after == before {
					t.Errorf("%s: %s is %s still", flags, field.Name, after)
				}
			case has && after != text(t, wanted):
				t.Errorf("%s: %s is %s, want %s", flags, field.Name, after, text(t, wanted))
			case !has && after != before:
				t.Errorf("%s: %s is %s, and was %s", flags, field.Name, after, before)
			}
		}
	}
	// The command of the policy is that of its image alone.
	for flags, want := range map[string][]string{"": {"of", "the policy"}, " x": nil, " -- y": {"y"}, " x -- y z": {"y", "z"}, " x y z": {"y", "z"}} {
		if _, _, argv, err := parsed(t, strings.Fields("--policy="+policy+flags)...); err != nil || !slices.Equal(argv, want) {
			t.Errorf("--policy=FILE%s: command %q, %v; want %q", flags, argv, err, want)
		}
	}
}

func mustPorts(t *testing.T, texts ...string) []sandbox.Port {
	t.Helper()
	ports, err := parsePorts(texts)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

func mustRestart(t *testing.T, text string) sandbox.Restart {
	t.Helper()
	r, err := sandbox.ParseRestart(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestContradictionsAreRefused: flags that would be without effect, or mean two things.
func TestContradictionsAreRefused(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"--pull=sometimes": "--pull", "--vm=xen": "--vm", "--cpus=0": "--cpus", "--cpus=-1": "--cpus", "--no-net --allow=a:1": "--no-net", "--no-net --pcap=f": "--no-net", "--no-net --learn=f": "--no-net",
		"--no-net --http-proxy": "--no-net", "-l=a=b": "--label", "--name=web --learn=f": "--learn", "--max-duration=-1s": "--max-duration", "--idle-timeout=-1s": "--idle-timeout",
		"-w=x": "--workdir", "--timeout=-1s": "--timeout", "--restart=always": "--restart", "--name=web --rm --restart=always": "--restart", "--restart=maybe": "--restart",
		"--memory=512": "--memory", "--memory=65535": "--memory", "--disk=10": "--disk", "--disk=x": "--disk", "--pcap-off": "--pcap", "--pcap-size=1023K": "--pcap-size", "--pcap-age=999ms": "--pcap-age",
		"--pcap-age=-1s": "--pcap-age", "--pcap-keep=0": "--pcap-keep", "--pcap-keep=1001": "--pcap-keep", "--name=web -l==b": "--label",
	} {
		_, _, _, err := parsed(t, strings.Fields(flags)...)
		var usage *usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a usage error about %s", flags, err, want)
		}
	}
	for _, flags := range []string{"--cpus=1", "--timeout=1ns", "--memory=65536", "--pcap=f --pcap-size=1M --pcap-age=1s --pcap-keep=1", "--pcap=f --pcap-keep=1000", "--name=web --restart=no", "--no-net"} {
		if _, _, _, err := parsed(t, strings.Fields(flags)...); err != nil {
			t.Errorf("%s: %v", flags, err)
		}
	}
}

// TestFlagsReachTheCommand: what msb run and msb exec pass on of one command.
func TestFlagsReachTheCommand(t *testing.T) {
	t.Setenv("MSB_TEST_PASSED", "on")
	files := write(t, "env", "A=of the file\nB=b\n")
	of := image.Config{Entrypoint: []string{"entry"}, Cmd: []string{"cmd"}, WorkingDir: "/image", User: "someone"}
	run := sandbox.ExecOptions{Argv: []string{"entry", "x"}, Dir: "/image", MakeDir: true, User: "someone"}
	with := func(change func(*sandbox.ExecOptions)) sandbox.ExecOptions {
		o := run
		change(&o)
		return o
	}
	for flags, want := range map[string]sandbox.ExecOptions{
		"":                  run,
		"-w=/mine":          with(func(o *sandbox.ExecOptions) { o.Dir = "/mine" }),
		"-u=7:8":            with(func(o *sandbox.ExecOptions) { o.User = "7:8" }),
		"--timeout=3s":      with(func(o *sandbox.ExecOptions) { o.Timeout = 3 * time.Second }),
		"-t":                with(func(o *sandbox.ExecOptions) { o.TTY = true }),
		"-i":                with(func(o *sandbox.ExecOptions) { o.Stdin = os.Stdin }),
		"--entrypoint=mine": with(func(o *sandbox.ExecOptions) { o.Argv = []string{"mine", "x"} }),
		"--entrypoint=":     with(func(o *sandbox.ExecOptions) { o.Argv = []string{"x"} }),
		"--ulimit=nofile=1:2 --ulimit=core=-1": with(func(o *sandbox.ExecOptions) {
			o.Rlimits = []agentclient.Rlimit{{Name: "nofile", Soft: 1, Hard: 2}, {Name: "core", Soft: 1<<64 - 1, Hard: 1<<64 - 1}}
		}),
		"-e=A=own -e=MSB_TEST_PASSED -e=MSB_TEST_MISSING --env-file=" + files: with(func(o *sandbox.ExecOptions) {
			o.Env = []string{"A=of the file", "B=b", "A=own", "MSB_TEST_PASSED=on"} // the last one counts
		}),
	} {
		f, _, _, err := parsed(t, strings.Fields(flags)...)
		if err != nil {
			t.Errorf("%s: %v", flags, err)
			continue
		}
		got := execOptions(of, f, []string{"x"})
		if got.Stdout != os.Stdout || got.Stderr != os.Stderr || got.Stdin != want.Stdin {
			t.Errorf("%s: streams %v, %v, %v", flags, got.Stdin, got.Stdout, got.Stderr)
		}
		got.Stdin, got.Stdout, got.Stderr, want.Stdin = nil, nil, nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", flags, got, want)
		}
	}
	// msb exec: the command is all, and a directory of the user's must be there.
	for dir, makes := range map[string]bool{"": true, "/mine": false} {
		if got := execOptions(of, &runFlags{plain: true, workdir: dir}, []string{"x"}); !slices.Equal(got.Argv, []string{"x"}) || got.MakeDir != makes {
			t.Errorf("exec in %q: %q, made: %t", dir, got.Argv, got.MakeDir)
		}
	}
	if got := commandOf(image.Config{}, entrypoint{}, nil); !slices.Equal(got, []string{"/bin/sh"}) {
		t.Errorf("of an image without a command: %q", got)
	}
}

// TestGuestsEnforceTimeoutsFirst: they send SIGTERM, then SIGKILL; msb ends the wait for one that doesn't, and none without --timeout.
func TestGuestsEnforceTimeoutsFirst(t *testing.T) {
	t.Parallel()
	for d, bounded := range map[time.Duration]bool{time.Minute: true, 0: false} {
		ctx, cancel := withTimeout(t.Context(), d)
		at, has := ctx.Deadline()
		if left := time.Until(at) - d; has != bounded || has && (left < 10*time.Second || left > time.Minute) {
			t.Errorf("--timeout %v: until %v, %t", d, at, has)
		}
		cancel()
	}
}

// TestI11_EnvFilesAreBounded: a device has no end.
func TestI11_EnvFilesAreBounded(t *testing.T) {
	t.Parallel()
	line := "A=" + strings.Repeat("x", 1021) + "\n"
	for n, ok := range map[int]bool{maxEnvFile / 1024: true, maxEnvFile/1024 + 1: false} {
		var all []string
		if err := (envFiles{&all}).Set(write(t, "env", strings.Repeat(line, n))); (err == nil) != ok {
			t.Errorf("%d KiB: %v", n, err)
		}
	}
}
