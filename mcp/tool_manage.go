package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// manageTools are the toolset "manage".
type manageTools struct{ *server }

func (s manageTools) all() []toolSpec {
	return []toolSpec{
		{
			name: "sandbox_start", title: "Start a sandbox", idempotent: true, open: true, hint: "start boot stopped sandbox", call: s.sandboxStart,
			description: "Start a sandbox that is stopped. The other tools do so by themselves.", properties: propSandbox,
		},
		{
			name: "sandbox_remove", title: "Remove a sandbox", destructive: true, hint: "delete remove sandbox with its files", ends: true, call: s.sandboxRemove,
			description: "Stop a sandbox and delete it with its files.", properties: propNamed, required: []string{"sandbox"},
		},
		{
			name: "sandbox_reset", title: "Reset a sandbox", destructive: true, idempotent: true, hint: "fresh clean empty start over reset files", call: s.sandboxReset,
			description: "Stop a sandbox and throw its files and jobs away. Image, bounds, policy and variables stay as they are. Its next use starts it.",
			properties:  propNamed, required: []string{"sandbox"},
		},
		{
			name: "sandbox_inspect", title: "Look at a sandbox", readOnly: true, idempotent: true, hint: "details image digest size times limits of a sandbox", call: s.sandboxInspect,
			description: "All that is known of a sandbox, as JSON: image, bounds, times, directories, and how its last run ended. Starts nothing.", properties: propSandbox,
		},
		{
			name: "sandbox_health", title: "Is a sandbox well", readOnly: true, idempotent: true, hint: "alive hung responding state why ended", call: s.sandboxHealth,
			description: "Whether a sandbox runs and answers, in how many milliseconds, and how its last run ended, as JSON. Starts nothing.", properties: propSandbox,
		},
		{
			name: "sandbox_history", title: "What was done in a sandbox", readOnly: true, idempotent: true, hint: "earlier calls commands log of actions", call: s.sandboxHistory,
			description: "The calls to a sandbox, oldest first, with time, duration and outcome, as JSON. The newest 100.", properties: propSandbox,
		},
		{
			name: "sandbox_env", title: "Variables of a sandbox", idempotent: true, destructive: true, hint: "environment variables set unset show", call: s.sandboxEnv,
			description: "Show the variables that every program of a sandbox gets, as JSON. set and unset change them from its next start on; it must be stopped.",
			properties:  propSandbox + `,"set":{"type":"object","additionalProperties":{"type":"string"}},"unset":{"type":"array","items":{"type":"string"}}`,
		},
		{
			name: "sandbox_logs", title: "Console of a sandbox", readOnly: true, idempotent: true, hint: "boot kernel console messages out of memory", call: s.sandboxLogs,
			description: "What the kernel of a sandbox wrote on its console in its last run. Output of programs is in sandbox_exec and job.", properties: propSandbox,
		},
		{
			name: "sandbox_install", title: "Install packages", open: true, hint: "apt apk dnf pip npm install package dependency", call: s.sandboxInstall,
			description: "Install packages in a sandbox by its package manager, or by pip or npm. The policy must allow where they come from.",
			properties: propSandbox + `,"packages":{"type":"array","minItems":1,"maxItems":64,"items":{"type":"string"}},` +
				`"with":{"enum":["system","pip","npm"],"description":"default system: apk, apt-get, dnf, microdnf, yum or zypper"},` + propTimeout,
			required: []string{"packages"},
		},
	}
}

type sandboxArg struct {
	Sandbox string `json:"sandbox"`
}

// ownOf is the sandbox named by a tool's only argument.
func (s manageTools) ownOf(raw json.RawMessage) (*sandbox.Status, error) {
	var a sandboxArg
	if err := decode(raw, &a); err != nil {
		return nil, err
	}
	return s.own(a.Sandbox, false)
}

func (s manageTools) sandboxStart(ctx context.Context, raw json.RawMessage) (string, error) {
	var a sandboxArg
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	m, st, err := s.use(ctx, a.Sandbox)
	if err != nil {
		return "", err
	}
	if err := m.Close(); err != nil {
		return "", err
	}
	st, err = s.own(st.Name, false)
	if err != nil {
		return "", err
	}
	return asJSON(row(st, s.label))
}

func (s manageTools) sandboxRemove(ctx context.Context, raw json.RawMessage) (string, error) {
	var a sandboxArg
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	if a.Sandbox == "" { // no default for what can't be undone
		return "", wrong("sandbox is empty; sandbox_list shows their names")
	}
	return s.stop(ctx, a.Sandbox, true)
}

func (s manageTools) sandboxReset(ctx context.Context, raw json.RawMessage) (string, error) {
	var a sandboxArg
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	if a.Sandbox == "" { // no default for what can't be undone
		return "", wrong("sandbox is empty; sandbox_list shows their names")
	}
	st, err := s.own(a.Sandbox, false)
	if err != nil {
		return "", err
	}
	if err := staysWhenStopped(st); err != nil {
		return "", err
	}
	if err := s.only(st).Stop(ctx, st.Name); err != nil && !errors.Is(err, sandbox.ErrNotRunning) {
		return "", err
	}
	return "sandbox " + st.Name + " has no files of yours and no jobs any more; its settings and variables stay", s.only(st).Reset(ctx, st.Name)
}

// healthWait is how long a guest may take to answer before it counts as hung.
const healthWait = 5 * time.Second

// inspected is what an agent learns about its sandbox: of this machine's paths only those of shared directories.
type inspected struct {
	listed
	Digest    string     `json:"image_digest"`
	Created   time.Time  `json:"created"`
	Started   *time.Time `json:"started,omitempty"`
	Backend   string     `json:"backend,omitempty"`
	Paused    bool       `json:"paused,omitempty"`
	IdleStop  int64      `json:"stops_when_idle_s,omitempty"`
	Lifetime  int64      `json:"lifetime_s,omitempty"`
	Remaining int64      `json:"lifetime_left_s,omitempty"`
	Shared    []string   `json:"directories,omitempty"`
	Secrets   []secret   `json:"secrets,omitempty"`
}

func (s manageTools) sandboxInspect(_ context.Context, raw json.RawMessage) (string, error) {
	st, err := s.ownOf(raw)
	if err != nil {
		return "", err
	}
	seen := inspected{
		listed: row(st, s.label), Digest: st.Digest, Created: st.Created, Started: st.Started, Paused: st.Paused,
		IdleStop: int64(st.IdleStop.Seconds()), Lifetime: int64(st.Lifetime.Seconds()), Shared: s.opts.shown(), Secrets: s.opts.secrets(),
	}
	if st.Info != nil {
		seen.Backend = st.Info.Backend
	}
	if st.Lifetime > 0 {
		seen.Remaining = int64(max(0, st.Lifetime-st.Ran).Seconds())
	}
	return asJSON(seen)
}

func (s manageTools) sandboxHealth(ctx context.Context, raw json.RawMessage) (string, error) {
	st, err := s.ownOf(raw)
	if err != nil {
		return "", err
	}
	health := map[string]any{"sandbox": st.Name, "running": true, "answers": false}
	words := ""
	if st.End != nil {
		health["last_end"] = sandbox.End{Time: st.End.Time, Kind: st.End.Kind}
		words = marked("why it ended", st.End.Message, maxSentence)
	}
	ctx, cancel := context.WithTimeout(ctx, healthWait)
	defer cancel()
	began := time.Now()
	m, err := s.runner.connect(ctx, st)
	var stats agentclient.Stats
	if err == nil {
		stats, err = m.Stats(ctx)
		_ = m.Close() // the session's
	}
	switch {
	case errors.Is(err, sandbox.ErrNotRunning):
		health["running"] = false
	case err != nil:
		health["fault"] = plainly(err)
		words += marked("fault", err.Error(), maxSentence)
	default:
		health["answers"], health["answer_ms"], health["uptime_s"] = true, time.Since(began).Milliseconds(), int(stats.Uptime.Seconds())
		health["processes"], health["memory_free_mb"] = stats.Processes, stats.MemoryAvailableBytes>>20
	}
	text, err := asJSON(health)
	return strings.TrimSuffix(text+"\n"+words, "\n"), err
}

func (s manageTools) sandboxHistory(_ context.Context, raw json.RawMessage) (string, error) {
	var a sandboxArg
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	byDefault := s.defaultName()
	if a.Sandbox == defaultName {
		a.Sandbox = byDefault
	}
	return asJSON(s.history.of(cmp.Or(a.Sandbox, byDefault), byDefault))
}

func (s manageTools) sandboxEnv(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		sandboxArg
		Set   map[string]string `json:"set"`
		Unset []string          `json:"unset"`
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	set, err := (&program{Env: a.Set}).environ()
	if err != nil {
		return "", err
	}
	st, err := s.own(a.Sandbox, false)
	if err != nil {
		return "", err
	}
	if err := s.changeEnv(ctx, st, set, a.Unset); err != nil {
		return "", err
	}
	env, err := s.only(st).Env(st.Name)
	if err != nil {
		return "", err
	}
	all := make(map[string]string, len(env))
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		all[name] = value
	}
	return asJSON(all)
}

// maxEnv bounds the variables of a sandbox: each of its programs is started with them.
const maxEnv = 256

func (s manageTools) changeEnv(ctx context.Context, st *sandbox.Status, set, unset []string) error {
	if len(set)+len(unset) == 0 {
		return nil
	}
	all, err := s.only(st).Env(st.Name)
	if err != nil {
		return err
	}
	all = append(all, set...)
	if len(set) > 0 && (len(all) > maxEnv || len(strings.Join(all, "")) > maxWords) || len(unset) > maxEnv {
		return wrong("a sandbox has at most %d variables of %d bytes together", maxEnv, maxWords)
	}
	if len(unset) > 0 {
		err = s.only(st).UnsetEnv(ctx, st.Name, unset...)
	}
	if len(set) > 0 && err == nil {
		err = s.only(st).SetEnv(ctx, st.Name, set...)
	}
	if errors.Is(err, sandbox.ErrRunning) {
		return fmt.Errorf("%w; stop it with sandbox_stop first", sandbox.ErrRunning)
	}
	return err
}

// quietConsole stands for an empty console, which is the normal case: the kernel starts with "quiet".
const quietConsole = "the console shows nothing: the kernel writes there when something is wrong, such as memory that ran out; dmesg in sandbox_exec shows the rest"

func (s manageTools) sandboxLogs(_ context.Context, raw json.RawMessage) (string, error) {
	st, err := s.ownOf(raw)
	if err != nil {
		return "", err
	}
	text, err := s.only(st).Console(st.Name)
	if err != nil {
		return "", err
	}
	if len(text) == 0 {
		return quietConsole, nil
	}
	var c capture
	_, _ = c.Write(text) // it never fails
	return c.untrusted("console"), nil
}

// installers are shell scripts that install the packages given as arguments.
var installers = map[string]string{
	"system": `for m in apk apt-get dnf microdnf yum zypper; do command -v $m >/dev/null && break; m=; done
case $m in
apk) exec apk add --no-progress "$@";;
apt-get) apt-get update -q && exec env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@";;
zypper) exec zypper --non-interactive install "$@";;
?*) exec $m install -y "$@";;
esac
echo "the image has no package manager that is known; take another image, or with: pip or npm" >&2; exit 127`,
	"pip": `for p in pip3 pip; do command -v $p >/dev/null && exec $p install --no-input --disable-pip-version-check "$@"; done
exec python3 -m pip install --no-input --disable-pip-version-check "$@"`,
	"npm": `exec npm install --global --no-audit --no-fund "$@"`,
}

const maxPackages = 64

func (s manageTools) sandboxInstall(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		sandboxArg
		Packages []string `json:"packages"`
		With     string   `json:"with"`
		Timeout  *float64 `json:"timeout"`
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	if len(a.Packages) < 1 || len(a.Packages) > maxPackages {
		return "", wrong("%d packages; give 1 to %d", len(a.Packages), maxPackages)
	}
	if i := slices.IndexFunc(a.Packages, func(p string) bool { return p == "" || p[0] == '-' || strings.ContainsAny(p, "\x00\n") || len(p) > 255 }); i >= 0 {
		return "", wrong("package %q: give a package's name, such as git or requests==2.32.3", printed(a.Packages[i]))
	}
	return execTools(s).execOne(ctx, a.Sandbox, &program{Argv: append([]string{"/bin/sh", "-c", installers[cmp.Or(a.With, "system")], "sh"}, a.Packages...), Timeout: a.Timeout})
}
