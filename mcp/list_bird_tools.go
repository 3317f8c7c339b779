package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/sandbox"
)

// ensure makes the sandbox of that name if there is none, as the list's server does.
func (s birdTools) ensure(ctx context.Context, name string) error {
	if name == "" || name == defaultName {
		return nil // made by itself
	}
	_, err := s.own(name, false)
	if !errors.Is(err, sandbox.ErrNoSandbox) {
		return err
	}
	if err = s.create(ctx, name, &machineArgs{}); errors.Is(err, sandbox.ErrExists) {
		_, err = s.own(name, false) // another call made it, or it is somebody else's
	}
	return err
}

// birdIn calls one of our tools in a sandbox, which is made if need be.
func (s birdTools) birdIn(ctx context.Context, name string, call toolCall, args map[string]any) (string, error) {
	if err := s.ensure(ctx, name); err != nil {
		return "", err
	}
	if args == nil {
		args = map[string]any{}
	}
	args["sandbox"] = name
	return s.relay(ctx, call, args)
}

func (s birdTools) birdRun(ctx context.Context, a *birdArgs, argv ...string) (string, error) {
	if a.Workdir != "" {
		if err := guestPath(a.Workdir); err != nil {
			return "", err
		}
	}
	if a.Timeout == nil {
		limit := float64(birdTimeout)
		a.Timeout = &limit
	}
	args := append([]string{"/bin/sh", "-c", argv[0], "sh", cmp.Or(a.Workdir, birdDir)}, argv[1:]...)
	return s.birdIn(ctx, a.Sandbox, execTools(s).sandboxExec, map[string]any{"argv": args, "stdin": a.Stdin, "timeout": a.Timeout})
}

func (s birdTools) birdExec(ctx context.Context, a *birdArgs) (string, error) {
	return s.birdRun(ctx, a, birdShell, a.Command)
}

func (s birdTools) birdPython(ctx context.Context, a *birdArgs) (string, error) {
	a.Stdin = a.Code
	return s.birdRun(ctx, a, birdPython)
}

func (s birdTools) birdBatch(ctx context.Context, a *birdArgs) (string, error) {
	var all map[string]string
	if err := json.Unmarshal([]byte(a.Files), &all); err != nil {
		return "", wrong(`files: give a JSON object in a string, such as {"/workspace/main.py": "print(1)"}: %s`, printed(err.Error()))
	}
	files := make([]map[string]any, 0, len(all))
	for name, content := range all {
		files = append(files, map[string]any{"path": name, "content": content})
	}
	return s.birdIn(ctx, a.Sandbox, s.files.fsWrite, map[string]any{"files": files})
}

var envKey = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (s birdTools) birdEnv(ctx context.Context, a *birdArgs) (string, error) {
	line := ""
	switch cmp.Or(a.Action, "list") {
	case "list":
		return s.birdIn(ctx, a.Sandbox, execTools(s).sandboxExec, map[string]any{"argv": []string{"/bin/sh", "-c", "[ ! -e " + birdEnv + " ] || cat " + birdEnv}})
	case "set":
		line = "export " + a.Key + "='" + strings.ReplaceAll(a.Value, "'", `'\''`) + "'"
	case "unset":
	default:
		return "", wrong("action %q; it is set, unset or list", printed(a.Action))
	}
	if !envKey.MatchString(a.Key) || strings.ContainsAny(a.Value, "\n\x00") {
		return "", wrong("key %q: a variable's name has letters, digits and underscores, and its value is one line", printed(a.Key))
	}
	return s.birdIn(ctx, a.Sandbox, execTools(s).sandboxExec, map[string]any{"argv": []string{"/bin/sh", "-c", birdChangeEnv, "sh", a.Key, line}})
}

func (s birdTools) birdBg(ctx context.Context, a *birdArgs) (string, error) {
	if a.Workdir != "" {
		if err := guestPath(a.Workdir); err != nil {
			return "", err
		}
	}
	if err := s.ensure(ctx, a.Sandbox); err != nil {
		return "", err
	}
	return s.jobs.startJob(ctx, a.Sandbox, a.Name, &program{Argv: []string{"/bin/sh", "-c", birdShell, "sh", cmp.Or(a.Workdir, birdDir), a.Command}}, false)
}

// birdJob is a job of a sandbox that exists.
func (s birdTools) birdJob(a *birdArgs) (*sandbox.Job, error) {
	if err := sandbox.CheckJobName(a.Name); err != nil {
		return nil, err
	}
	st, err := s.own(a.Sandbox, false)
	if err != nil {
		return nil, err
	}
	return s.only(st).Job(st.Name, a.Name)
}

func (s birdTools) birdLogs(_ context.Context, a *birdArgs) (string, error) {
	tail := int64(50)
	if a.Tail != nil {
		tail = *a.Tail
	}
	if tail < 0 {
		return "", wrong("tail %d: give a number of lines, or 0 for all", tail)
	}
	j, err := s.birdJob(a)
	if err != nil {
		return "", err
	}
	return lastLines(j, tail)
}

// lastLines are the last lines of a job's output, at most what one result shows; 0 is all of that.
func lastLines(j jobReader, lines int64) (string, error) {
	st, err := j.Status()
	if err != nil {
		return "", err
	}
	size, err := j.OutputSize()
	if err != nil {
		return "", err
	}
	out, err := j.Output(max(0, size-outputBudget), outputBudget)
	if err != nil {
		return "", err
	}
	text := string(trimStart(out.Data))
	from := len(strings.TrimSuffix(text, "\n"))
	for n := int64(0); lines > 0 && n < lines && from >= 0; n++ {
		from = strings.LastIndexByte(text[:from], '\n')
	}
	if lines > 0 {
		text = text[from+1:]
	}
	var c capture
	_, _ = c.Write([]byte(text)) // it never fails
	return jobLine(&st) + "\n" + c.untrusted("job output"), nil
}

func (s birdTools) birdKill(ctx context.Context, a *birdArgs) (string, error) {
	j, err := s.birdJob(a)
	if err != nil {
		return "", err
	}
	if st, err := j.Status(); err == nil && !hasEnded(st.State) && st.State != sandbox.JobLost {
		if err := j.Kill(ctx, agentclient.SIGKILL); err != nil {
			return "", err
		}
		inner, cancel := context.WithTimeout(ctx, timeoutGrace)
		defer cancel()
		if _, err := j.Wait(inner); err != nil && !errors.Is(err, sandbox.ErrJobLost) {
			return "", err
		}
	}
	if err := j.Remove(ctx); err != nil {
		return "", err
	}
	return a.Name + " ended, and its output is gone", nil
}

func (s birdTools) birdList(ctx context.Context, _ *birdArgs) (string, error) {
	return s.sandboxList(ctx, nil)
}

func (s birdTools) birdHealth(ctx context.Context, _ *birdArgs) (string, error) {
	mine, err := s.mine()
	if err != nil {
		return "", err
	}
	var all []string
	for i := range mine {
		if mine[i].Label != s.label {
			continue
		}
		text, err := s.named(ctx, mine[i].Name, manageTools(s).sandboxHealth)
		if err != nil {
			return "", err
		}
		all = append(all, text)
	}
	return cmp.Or(strings.Join(all, "\n"), "there is no sandbox yet"), nil
}

// emptyDir succeeds if the directory $1 is missing or holds nothing.
const emptyDir = `[ -z "$(ls -A "$1" 2>/dev/null)" ]`

func (s birdTools) birdReset(ctx context.Context, a *birdArgs) (string, error) {
	name := cmp.Or(a.Sandbox, defaultName)
	if !a.Wipe {
		_, err := s.relay(ctx, execTools(s).sandboxExec, map[string]any{"sandbox": name, "argv": []string{"/bin/sh", "-c", emptyDir, "sh", birdDir}})
		var failed *toolFailure
		if errors.As(err, &failed) {
			return "", say("sandbox %s has files in %s, which would be gone: take what you need with download or read_file and give wipe_workspace: true", name, birdDir)
		}
		if err != nil {
			return "", err
		}
	}
	return s.named(ctx, name, manageTools(s).sandboxReset)
}

func (s birdTools) birdHistory(_ context.Context, a *birdArgs) (string, error) {
	limit := int64(20)
	if a.Limit != nil {
		limit = max(0, *a.Limit)
	}
	byDefault := s.defaultName()
	if a.Sandbox == defaultName {
		a.Sandbox = ""
	}
	all := s.history.of(cmp.Or(a.Sandbox, byDefault), byDefault)
	return asJSON(all[max(0, int64(len(all))-limit):])
}

func (s birdTools) birdUpload(ctx context.Context, a *birdArgs) (string, error) {
	to := cmp.Or(a.SandboxPath, birdDir)
	if _, err := s.files.shared(a.LocalPath, false); err != nil { // before anything is made
		return "", err
	}
	if err := guestPath(to); err != nil {
		return "", err
	}
	if _, err := s.birdIn(ctx, a.Sandbox, s.files.fsMkdir, map[string]any{"path": to}); err != nil {
		return "", err
	}
	return s.birdIn(ctx, a.Sandbox, s.files.fsUpload, map[string]any{"from": a.LocalPath, "to": to})
}

func (s birdTools) birdGitClone(ctx context.Context, a *birdArgs) (string, error) {
	if a.Token != "" {
		host, _, err := gitTools(s).repository(a.Repo)
		if err != nil {
			return "", err
		}
		return "", gitTools(s).tokenAdvice(host)
	}
	if err := s.ensure(ctx, a.Sandbox); err != nil {
		return "", err
	}
	return gitTools(s).gitClone(ctx, &gitArgs{Sandbox: a.Sandbox, Repo: a.Repo, Branch: a.Branch, Path: cmp.Or(a.Path, birdDir), Full: a.Shallow != nil && !*a.Shallow})
}

func (s birdTools) birdRestore(ctx context.Context, a *birdArgs) (string, error) {
	if _, err := s.own(a.Sandbox, false); errors.Is(err, sandbox.ErrNoSandbox) {
		return ownSnapshots{s.boxes}.clone(ctx, "", a.SnapshotName, cmp.Or(a.Sandbox, defaultName))
	}
	return ownSnapshots{s.boxes}.restore(ctx, a.SnapshotName, a.Sandbox)
}

func (s birdTools) birdBuild(ctx context.Context, _ *birdArgs) (string, error) {
	images, err := s.imageList(ctx, nil)
	if err != nil {
		return "", err
	}
	return "", say("images are not built here. There are these: %s. To have more in one, install it in a sandbox and save that with snapshot: restore and clone make others of it. The operator can permit other images", images)
}

func (s birdTools) birdExpose(ctx context.Context, a *birdArgs) (string, error) {
	host := a.HostPort
	if host == 0 && a.Port >= minHostPort {
		host = a.Port
	}
	return portTools(s).publish(ctx, a.Sandbox, a.Port, host, false)
}

func (s birdTools) birdUnexpose(ctx context.Context, a *birdArgs) (string, error) {
	mine, err := s.mine()
	if err != nil {
		return "", err
	}
	is := func(p sandbox.Port) bool { return int64(p.Host) == a.Port && p.Host != 0 }
	for i := range mine {
		for _, p := range mine[i].Ports {
			if mine[i].Label == s.label && is(p) {
				return portTools(s).unpublish(ctx, &mine[i], is)
			}
		}
	}
	return "", say("no sandbox publishes port %d of this machine; network_info shows those that are", a.Port)
}

func (s birdTools) birdNetwork(context.Context, *birdArgs) (string, error) {
	mine, err := s.mine()
	if err != nil {
		return "", err
	}
	type row struct {
		Name    string   `json:"name"`
		Running bool     `json:"running"`
		Ports   []string `json:"published_ports"`
	}
	rows := []row{}
	for i := range mine {
		if mine[i].Label != s.label {
			continue
		}
		r := row{mine[i].Name, mine[i].Running, []string{}}
		for _, p := range mine[i].Ports {
			r.Ports = append(r.Ports, p.String())
		}
		rows = append(rows, r)
	}
	return asJSON(map[string]any{"sandboxes": rows, "note": "sandboxes have no network in common; each reaches what the operator's policy allows, and is reached at its published ports from the operator's machine"})
}

func (s birdTools) birdSpawn(ctx context.Context, a *birdArgs) (string, error) {
	memory, err := memoryMB(a.Memory)
	if err != nil {
		return "", err
	}
	return childTools(s).spawn(ctx, a.Parent, a.Name, &machineArgs{Image: a.Image, CPUs: a.CPUs, MemoryMB: memory})
}

func (s birdTools) birdChildren(_ context.Context, a *birdArgs) (string, error) {
	return childTools(s).listChildren(a.Parent)
}

func (s birdTools) birdDestroyChild(ctx context.Context, a *birdArgs) (string, error) {
	return childTools(s).destroyChild(ctx, a.Name)
}
