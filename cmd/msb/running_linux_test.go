package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/joblog"
	"github.com/msb-project/msb/sandbox"
)

// TestCommandsAskTheirSandbox: what flags mean arrives in the sandbox, or at its supervisor.
func TestCommandsAskTheirSandbox(t *testing.T) {
	t.Parallel()
	env, g := runningSandbox(t, "web", "-e", "KEPT=1")
	env = append(env, "PASSED=on")
	variables := write(t, "variables", "FROM_FILE=1\nBOTH=file\n")
	const shell = `exec ["sh" "-c" "command -v bash >/dev/null && exec bash; exec sh"]`
	const home = ", in /root, making it" // as the image says
	for _, tt := range []struct {
		args  string
		input string
		out   string
		asked []string
	}{
		{args: "exec web true", asked: []string{`exec ["true"]` + home}},
		{args: "exec web -- true -x", asked: []string{`exec ["true" "-x"]` + home}},
		{args: "exec -e A=b -e PASSED -e NOT_SET_HERE -w /work -u app:app web env", asked: []string{`exec ["env"], env ["A=b" "PASSED=on"], in /work, as app:app`}},
		{args: "exec --env-file " + variables + " -e BOTH=flag web env", asked: []string{`exec ["env"], env ["FROM_FILE=1" "BOTH=file" "BOTH=flag"]` + home}},
		{args: "exec --timeout 90s --ulimit nofile=10 --ulimit core=0:1 web true", asked: []string{`exec ["true"]` + home + `, for 1m30s, limits ["nofile=10:10" "core=0:1"]`}},
		{args: "exec web cat", input: "text", asked: []string{`exec ["cat"]` + home}},
		{args: "exec -i web cat", input: "text", out: "text", asked: []string{`exec ["cat"]` + home + ", stdin"}},
		{args: "exec -t web true", asked: []string{`exec ["true"]` + home + ", tty"}},
		{args: "exec -d web true", out: "job-1\n", asked: []string{`start job "" ["true"]` + home}},
		{args: "exec -d --job beat -i -t -e A=b -w /work -u app --timeout 1s web cat", out: "beat\n", asked: []string{`start job "beat" ["cat"], env ["A=b"], in /work, as app, tty, stdin, for 1s`}},
		{args: "shell -u app -w /work -e A=b web", asked: []string{shell + `, env ["A=b"], in /work, as app, stdin`}},
		{args: "port add web 8080:80 0:81", out: "8080:80\n4000:81\n", asked: []string{"add port 8080:80", "add port 0:81"}},
		{args: "port rm web 8080:80 8081:81/udp", out: "8080:80\n9000:80\n8081:81/udp\n9000:80\n", asked: []string{"remove port 8080:80", "remove port 8081:81/udp"}},
		{args: "keep web", out: "web\n", asked: []string{`update {"keep":true}`}},
		{args: "pause web", out: "web\n", asked: []string{`update {"paused":true}`}},
		{args: "pause -a", out: "web\n", asked: []string{`update {"paused":true}`}},
		{args: "resume web", out: "web\n", asked: []string{`update {"paused":false}`}},
		{args: "resume -a"}, // it is not paused
		{args: "update --max-duration 0 web", out: "web\n", asked: []string{`update {"lifetime":0}`}},
		{args: "update --idle-timeout 30m web", out: "web\n", asked: []string{`update {"idle_stop":1800000000000}`}},
		{args: "update --cpus 2 -m 1G web", out: "web\n", asked: []string{`update {"cpus":2,"memory":1073741824}`}},
		{args: "update -l a=b -l c --label-rm d web", out: "web\n", asked: []string{`update {"labels":{"a":"b","c":""},"remove_labels":["d"]}`}},
		{args: "update --restart on-failure:3 web", out: "web\n", asked: []string{`update {"restart":{"when":"on-failure","most":3}}`}},
		{args: "start web", out: "web\n"}, // it runs already
		{args: "start --all"},             // those that are stopped
		{args: "stop --filter label=team"},
		{args: "keep --filter label=team"},
	} {
		cmd := command(t, env, strings.Fields(tt.args)...)
		cmd.Stdin = strings.NewReader(tt.input)
		if got := finish(t, cmd); got.code != 0 || got.out != tt.out {
			t.Errorf("msb %s: %+v, want %q", tt.args, got, tt.out)
		}
		g.wantAsked(t, tt.args, tt.asked...)
	}
}

// TestI13_RunningSandboxesKeepTheirState: what needs one that is stopped is refused, and changes nothing.
func TestI13_RunningSandboxesKeepTheirState(t *testing.T) {
	t.Parallel()
	env, g := runningSandbox(t, "web", "-e", "KEPT=1")
	for _, args := range []string{"env set web KEPT=2", "env unset web KEPT", "rename web shop", "rm web", "prune --stopped"} {
		if got := msb(t, env, strings.Fields(args)...); (got.code != exitSandbox && args != "prune --stopped") || strings.Contains(got.out, "web") {
			t.Errorf("msb %s: %+v", args, got)
		}
	}
	if got := msb(t, env, "env", "ls", "web"); got.out != "KEPT=1\n" {
		t.Errorf("%+v", got)
	}
	g.wantAsked(t, "refused changes")
}

// TestEndsOfCommandsAreExitCodes: those of msb exec, and what it says of them.
func TestEndsOfCommandsAreExitCodes(t *testing.T) {
	t.Parallel()
	env, g := runningSandbox(t, "web")
	for what, tt := range map[string]struct {
		end  *agentpb.Exit
		code int
		say  string
	}{
		"success":            {&agentpb.Exit{}, 0, ""},
		"its own code":       {&agentpb.Exit{Code: 7}, 7, ""},
		"a signal":           {&agentpb.Exit{Code: 143, Signal: 15}, 143, ""},
		"a timeout":          {&agentpb.Exit{Code: 143, Signal: 15, TimedOut: true}, exitTimeout, "(--timeout)"},
		"no memory":          {&agentpb.Exit{Code: 137, Signal: 9, OomKilled: true}, exitGuestMemory, "--memory"},
		"no memory of a son": {&agentpb.Exit{OomKilled: true}, 0, "the command itself succeeded"},
		"no program":         {&agentpb.Exit{Code: 127, StartError: agentpb.StartError_START_ERROR_NOT_FOUND, Message: "there is none"}, 127, "there is none"},
		"no executable":      {&agentpb.Exit{Code: 126, StartError: agentpb.StartError_START_ERROR_NOT_EXECUTABLE, Message: "it is text"}, 126, "it is text"},
	} {
		g.answer(answers{exit: tt.end})
		got := msb(t, env, "exec", "web", "command")
		if got.code != tt.code || !strings.Contains(got.err, tt.say) || (tt.say == "") != (got.err == "") {
			t.Errorf("%s: %+v, want %d and %q", what, got, tt.code, tt.say)
		}
	}
	none := agentclient.ExitStatus{Code: 127, StartError: agentclient.NotFound, Message: "there is none"}
	g.answer(answers{jobError: &agentclient.NotStartedError{Status: none}})
	if got := msb(t, env, "exec", "-d", "web", "command"); got.code != 127 || got.out != "" || !strings.Contains(got.err, "there is none") {
		t.Errorf("a job: %+v", got)
	}
}

// TestCopiesAreMadeAsTheFlagsSay: whose the files are, which links are followed, and what was left out.
func TestCopiesAreMadeAsTheFlagsSay(t *testing.T) {
	t.Parallel()
	env, g := runningSandbox(t, "web")
	here := t.TempDir()
	for name, text := range map[string]string{"file": "data", "tree/one": "1"} {
		path := filepath.Join(here, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": "file", "fold": "tree"} {
		if err := os.Symlink(to, filepath.Join(here, link)); err != nil {
			t.Fatal(err)
		}
	}
	input := string(archive("sent", 1234))
	const root, kept = "owner 0:0", "owner of the archive"
	for _, tt := range []struct {
		args  string
		asked string
	}{
		{"cp - web:/work", `unpack ["sent"] in /work, ` + root},
		{"cp -a - web:/work", `unpack ["sent"] in /work, ` + kept},
		{"cp file web:/work", `unpack ["file"] in /work, ` + root},
		{"cp -a file web:work", `unpack ["file"] in /work, ` + kept},
		{"cp file web:/work/other", `unpack ["other"] in /work, ` + root},
		{"cp tree web:/work", `unpack ["tree/" "tree/one"] in /work, ` + root},
		{"cp tree/. web:/work", `unpack ["./" "one"] in /work, ` + root},
		{"cp link web:/work", `unpack ["link->file"] in /work, ` + root},
		{"cp -L link web:/work", `unpack ["link"] in /work, ` + root},
		{"cp web:/work/file out1", "pack /work/file, follow false"},
		{"cp web:/work/link out2", "pack /work/link, follow false"},
		{"cp -L web:/work/link out3", "pack /work/link, follow true"},
		{"cp web:/work/file -", "pack /work/file, follow false"},
		{"cp -L web:/work/link -", "pack /work/link, follow true"},
		{"cp web:/work/. -", "pack /work, follow true"},
	} {
		cmd := command(t, env, strings.Fields(tt.args)...)
		cmd.Dir, cmd.Stdin = here, strings.NewReader(input)
		got := finish(t, cmd)
		if got.code != 0 {
			t.Errorf("msb %s: %+v", tt.args, got)
		}
		if fromGuest := strings.HasPrefix(tt.asked, "pack"); fromGuest != strings.Contains(got.err, "/work/pipe and 2 more") {
			t.Errorf("msb %s: %+v; want what was left out of the guest's files", tt.args, got)
		}
		if toArchive := strings.HasSuffix(tt.args, " -"); toArchive && !strings.Contains(got.out, "data") || !toArchive && got.out != "" {
			t.Errorf("msb %s: %q on standard output", tt.args, got.out)
		}
		g.wantAsked(t, tt.args, tt.asked)
	}
	cmd := command(t, env, "cp", "-q", "web:/work/file", "out4")
	cmd.Dir = here
	if got := finish(t, cmd); got.code != 0 || got.err != "" {
		t.Errorf("with --quiet: %+v", got)
	}
	for _, name := range []string{"out1", "out2", "out3", "out4"} {
		if b, err := os.ReadFile(filepath.Join(here, name)); err != nil || string(b) != "data" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	g.taken()
	for begin, hint := range map[string]string{"\x1f\x8b": "gunzip", "text": "no tar archive"} {
		cmd := command(t, env, "cp", "-", "web:/work")
		cmd.Stdin = strings.NewReader(begin + strings.Repeat("x", 1024))
		if got := finish(t, cmd); got.code != exitOther || !strings.Contains(got.err, hint) {
			t.Errorf("%q: %+v, want %q", begin, got, hint)
		}
	}
	for _, args := range []string{"cp none web:/work", "cp file web:/none/", "cp web:/none out5", "cp web:/work file"} {
		cmd := command(t, env, strings.Fields(args)...)
		cmd.Dir = here
		if got := finish(t, cmd); got.code == 0 {
			t.Errorf("msb %s: %+v", args, got)
		}
	}
	g.wantAsked(t, "copies that can't be made")
}

// TestI13_StoppedSandboxesAreNotStartedInVain: a copy to or from what only one that runs has is refused before a start.
func TestI13_StoppedSandboxesAreNotStartedInVain(t *testing.T) {
	t.Parallel()
	here := t.TempDir()
	env, _ := stopped(t, "web", "--tmpfs", "/memory", "-v", here+":/here")
	file := write(t, "file", "data")
	for _, args := range [][]string{{file, "web:/memory/x"}, {"web:/memory/x", file}, {file, "web:/here/x"}, {"web:here/x", "-"}} {
		got := msb(t, env, append([]string{"cp"}, args...)...)
		if got.code != exitOther || !strings.Contains(got.err, "does not have") || strings.Contains(got.err, "it is started") {
			t.Errorf("msb cp %q: %+v", args, got)
		}
	}
}

// TestJobsAreAskedOfTheirSupervisor: each signal, input and removal is for the job that was named.
func TestJobsAreAskedOfTheirSupervisor(t *testing.T) {
	t.Parallel()
	env, g := runningSandbox(t, "web")
	for _, name := range []string{"main", "beat"} {
		if err := storeJob(g.jobs, sandbox.JobStatus{Name: name, State: sandbox.JobRunning}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		args, input string
		out         string
		asked       []string
	}{
		{args: "kill web", out: "web\n", asked: []string{"signal 9 to job main"}},
		{args: "kill -s TERM web", out: "web\n", asked: []string{"signal 15 to job main"}},
		{args: "kill -s sighup -a", out: "web\n", asked: []string{"signal 1 to job main"}},
		{args: "kill -s 64 --filter label=team"},
		{args: "job kill web beat main", out: "beat\nmain\n", asked: []string{"signal 9 to job beat", "signal 9 to job main"}},
		{args: "job kill -s 10 web beat", out: "beat\n", asked: []string{"signal 10 to job beat"}},
		{args: "job rm web beat", out: "beat\n", asked: []string{"remove job beat"}},
		{args: "job rm -f web beat", out: "beat\n", asked: []string{"remove job beat"}}, // it was not running
		{args: "job input web beat", input: "text", asked: []string{`write "text" to job beat, end false`}},
		{args: "job input --eof web beat", input: "text", asked: []string{`write "text" to job beat, end false`, `write "" to job beat, end true`}},
		{args: "job input web beat"},
		{args: "job input --eof web beat", asked: []string{`write "" to job beat, end true`}},
	} {
		cmd := command(t, env, strings.Fields(tt.args)...)
		cmd.Stdin = strings.NewReader(tt.input)
		if got := finish(t, cmd); got.code != 0 || got.out != tt.out {
			t.Errorf("msb %s: %+v, want %q", tt.args, got, tt.out)
		}
		g.wantAsked(t, tt.args, tt.asked...)
	}
	g.answer(answers{jobError: sandbox.ErrJobEnded})
	for _, args := range []string{"kill web", "job kill web beat"} {
		if got := msb(t, env, strings.Fields(args)...); got.code != exitSandbox || got.out != "" {
			t.Errorf("msb %s of one that has ended: %+v", args, got)
		}
	}
}

// TestAttachmentsPassStreamsAndSignals: what is typed and a signal reach the command, unless a flag says otherwise, and its exit
// code is that of msb attach.
func TestAttachmentsPassStreamsAndSignals(t *testing.T) {
	t.Parallel()
	const typed, signalled = `write "text" to job main, end false`, "signal 15 to job main"
	for args, tt := range map[string]struct {
		input bool // of the command
		code  int
		asked []string
	}{
		"web":                     {true, 5, []string{typed, signalled}},
		"--no-stdin web":          {true, 5, []string{signalled}},
		" web":                    {false, 5, []string{signalled}},
		"--sig-proxy=false web":   {true, exitSignalled(syscall.SIGTERM), []string{typed}},
		"--detach-keys=x,t,e web": {true, 5, []string{typed, signalled}}, // without a terminal nobody typed them
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			env, g := runningSandbox(t, "web")
			st := sandbox.JobStatus{Name: sandbox.MainJob, State: sandbox.JobRunning, Input: tt.input}
			if err := storeJob(g.jobs, st); err != nil {
				t.Fatal(err)
			}
			wrote := make(chan struct{}, 1)
			g.answer(answers{onJob: func(string) {
				if asked := g.allAsked(); asked[len(asked)-1] == typed { // after which the command runs on
					wrote <- struct{}{}
					return
				}
				ended := st
				ended.State, ended.Code = sandbox.JobExited, tt.code
				if err := storeJob(g.jobs, ended); err != nil {
					t.Error(err)
				}
			}})
			cmd := command(t, env, append([]string{"attach"}, strings.Fields(args)...)...)
			cmd.Stdin = strings.NewReader("text")
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			showOutput(t, g.jobs, out)
			if slices.Contains(tt.asked, typed) {
				<-wrote
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != tt.code {
				t.Errorf("%s, want %d", cmd.ProcessState, tt.code)
			}
			g.wantAsked(t, args, tt.asked...)
		})
	}
}

// showOutput lets the job main write until it is read from out, since an attachment shows what comes after it.
func showOutput(t *testing.T, jobs string, out io.Reader) {
	t.Helper()
	shown := make(chan error, 1)
	go func() {
		_, err := out.Read(make([]byte, 1))
		shown <- err
	}()
	log := joblog.NewWriter(jobs, sandbox.MainJob)
	defer log.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := log.Stream(joblog.Stdout).Write([]byte("output\n")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-shown:
			if err != nil {
				t.Fatal(err)
			}
			return
		case <-tick.C:
		}
	}
}

// TestI13_RestartsKeepSandboxesThatCannotStart: one whose policy is wrong now is not asked to end. The twin with a policy that
// is right is, and the test's process is no supervisor that could be ended.
func TestI13_RestartsKeepSandboxesThatCannotStart(t *testing.T) {
	t.Parallel()
	policy := write(t, "policy.toml", "version = 1\n")
	env, _ := runningSandbox(t, "web", "--policy", policy)
	for _, tt := range []struct {
		text string
		code int
		say  string
	}{{"version = 1\n", exitOther, "supervisor"}, {"version = 1\n[wrong", exitPolicyInvalid, policy}} {
		if err := os.WriteFile(policy, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := msb(t, env, "restart", "web"); got.code != tt.code || got.out != "" || !strings.Contains(got.err, tt.say) {
			t.Errorf("%q: %+v, want %d and %q", tt.text, got, tt.code, tt.say)
		}
	}
}
