package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// syncPrefix begins the names of the jobs that copy.
const syncPrefix = "sync-"

// syncScript copies newer files from $1 to $2, at once and then every second. It runs in the sandbox, so hidden files
// aren't copied. Removed files stay in the copy.
const syncScript = `mkdir -p "$2" && cd "$1" || exit 1
while :; do
find . \( -name .git -o -name node_modules -o -name __pycache__ -o -name .venv -o -name venv -o -name .DS_Store \) -prune -o -type f -print | while IFS= read -r f; do
if [ ! -e "$2/$f" ] || [ "$f" -nt "$2/$f" ]; then mkdir -p "$2/${f%/*}" && cp -p "$f" "$2/$f" && echo "$f"; fi
done
sleep 1
done`

// startSync copies a directory that the operator shares to another place of a sandbox for as long as the sandbox runs.
func (s syncTools) startSync(ctx context.Context, box, from, to string) (string, error) {
	source, err := s.files.shared(from, false)
	if err == nil {
		err = guestPath(to)
	}
	if err != nil {
		return "", err
	}
	m, st, err := s.use(ctx, box)
	if err != nil {
		return "", err
	}
	defer func() { _ = m.Close() }() // the session's
	job, err := m.StartJob(ctx, syncPrefix+strings.ToLower(rand.Text()[:8]), sandbox.ExecOptions{Argv: []string{"/bin/sh", "-c", syncScript, "sh", source, to}})
	if err != nil {
		return "", err
	}
	if sandbox.CheckJobName(job) != nil {
		return "", fmt.Errorf("%w: a job named %q", agentclient.ErrProtocol, printed(job))
	}
	return fmt.Sprintf("%s.%s copies what is new in %s to %s, every second, until sync_stop or the sandbox's end; what is removed there stays here", st.Name, job, printed(from), printed(to)), nil
}

func (s syncTools) stopSync(ctx context.Context, id string) (string, error) {
	box, job, ok := strings.Cut(id, ".")
	if !ok || !strings.HasPrefix(job, syncPrefix) || sandbox.CheckJobName(job) != nil {
		return "", wrong("%q: give what sync_start said, such as default.sync-ab12cd34", printed(id))
	}
	st, err := s.own(box, false)
	if err != nil {
		return "", err
	}
	j, err := s.only(st).Job(st.Name, job)
	if err == nil {
		err = j.Kill(ctx, agentclient.SIGKILL)
	}
	if errors.Is(err, sandbox.ErrNoJob) {
		return "", say("there is no %s", printed(id))
	}
	if err != nil {
		return "", err
	}
	return id + " ended; the files stay", nil
}

// syncTools are the toolset "sync".
type syncTools struct{ *server }

func (s syncTools) all() []toolSpec {
	type args struct {
		Sandbox string `json:"sandbox"`
		From    string `json:"from"`
		To      string `json:"to"`
		Sync    string `json:"sync"`
	}
	return []toolSpec{
		{
			name: "sync_start", title: "Keep a copy of a directory", hint: "watch live sync host directory into sandbox", call: adapter(func(ctx context.Context, a *args) (string, error) { return s.startSync(ctx, a.Sandbox, a.From, a.To) }),
			description: "Copy a directory of the operator's machine to another place in a sandbox, now and whenever files change. Only of the directories that the operator shares, which the sandbox sees anyway.",
			properties:  propSandbox + `,"from":{"type":"string","description":"absolute path on the operator's machine"},"to":{"type":"string","description":"directory of the sandbox"}`, required: []string{"from", "to"},
		},
		{
			name: "sync_stop", title: "End such copying", idempotent: true, hint: "stop live sync", call: adapter(func(ctx context.Context, a *args) (string, error) { return s.stopSync(ctx, a.Sync) }),
			description: "End what sync_start began; the files stay.", properties: `"sync":{"type":"string","description":"what sync_start said"}`, required: []string{"sync"},
		},
	}
}
