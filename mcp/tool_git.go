package mcp

import (
	"context"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

type gitArgs struct {
	Sandbox string `json:"sandbox"`
	Repo    string `json:"repo"`
	Branch  string `json:"branch"`
	Path    string `json:"path"`
	Full    bool   `json:"full"`
}

// cloneScript runs git clone with the arguments behind the first two: the directory above the new one, and the variable
// with the password's placeholder, if there is one.
const cloneScript = `command -v git >/dev/null || { echo "git is not installed in this image" >&2; exit 127; }
mkdir -p "$1" && cd "$1" || exit 1
export GIT_TERMINAL_PROMPT=0
if [ -n "$2" ]; then
v=$2; shift 2
exec git -c credential.helper= -c credential.helper='!f() { [ "$1" = get ] && printf "username=x-access-token\npassword=%s\n" "$(printenv '"$v"')"; }; f' clone "$@"
fi
shift 2
exec git clone "$@"`

// tokenAdvice refuses a call that passes a credential, and says how to use a secret.
func (s gitTools) tokenAdvice(host string) error {
	have := "no secret of the operator's policy is for " + printed(host)
	if v := s.gitSecret(host); v != "" {
		have = "the operator has given one for " + printed(host) + ": leave the credential out"
	}
	return wrong("a credential is no argument: it would be in the conversation and in the sandbox. The operator puts it into the policy file as a secret with in = [\"basic\"] for the host; a sandbox has a placeholder of it, and git_clone uses that by itself. Now, %s", have)
}

// gitSecret is the variable of the operator's secret that may be a host's password in basic authentication.
func (s gitTools) gitSecret(host string) string {
	name, err := hostname.Parse(host)
	if err != nil {
		return ""
	}
	for i := range s.opts.Floor.Secrets {
		one := &s.opts.Floor.Secrets[i]
		basic := slices.ContainsFunc(one.In, func(p policies.Place) bool { return p.Kind == policies.InBasic })
		if basic && slices.ContainsFunc(one.Hosts, func(h policies.SecretHost) bool { return h.Pattern.Match(name) }) {
			return one.Name
		}
	}
	return ""
}

// repository is the host and the last name of a repository's URL.
func (s gitTools) repository(repo string) (host, name string, err error) {
	u, parseErr := url.Parse(repo)
	if parseErr != nil || u.Scheme != "https" || u.Host == "" {
		return "", "", wrong("repo %q: give an https URL, such as https://github.com/user/repo.git", printed(repo))
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" { // a query of no repository's is ?private_token=
		return "", "", s.tokenAdvice(u.Hostname())
	}
	name = strings.TrimSuffix(path.Base(u.Path), ".git")
	if name == "" || name == "." || name == "/" || name == ".." || name[0] == '-' {
		return "", "", wrong("repo %q names no repository of its host", printed(repo))
	}
	return u.Hostname(), name, nil
}

func (s gitTools) gitClone(ctx context.Context, a *gitArgs) (string, error) {
	host, name, err := s.repository(a.Repo)
	if err != nil {
		return "", err
	}
	if err := guestPath(a.Path); err != nil {
		return "", err
	}
	if strings.HasPrefix(a.Branch, "-") {
		return "", wrong("branch %q", printed(a.Branch))
	}
	argv := []string{"/bin/sh", "-c", cloneScript, "sh", a.Path, s.gitSecret(host)}
	if !a.Full {
		argv = append(argv, "--depth", "1")
	}
	if a.Branch != "" {
		argv = append(argv, "--branch", a.Branch)
	}
	limit := maxTimeout.Seconds()
	text, err := execTools(s).execOne(ctx, a.Sandbox, &program{Argv: append(argv, "--", a.Repo, name), Timeout: &limit})
	if err != nil {
		return "", err
	}
	return "cloned into " + printed(path.Join(a.Path, name)) + "\n" + text, nil
}

// gitTools are the toolset "git".
type gitTools struct{ *server }

func (s gitTools) all() []toolSpec {
	return []toolSpec{{
		name: "git_clone", title: "Clone a repository", open: true, hint: "git clone checkout repository", call: adapter(s.gitClone),
		description: "Clone a git repository into a sandbox, whose image has to have git. No credential is needed or taken: the operator's secret for the host is used by itself.",
		properties: propSandbox + `,"repo":{"type":"string","description":"https URL"},"branch":{"type":"string"},"path":{"type":"string","description":"absolute directory above the clone"},` +
			`"full":{"type":"boolean","description":"with all of the history"}`,
		required: []string{"repo", "path"},
	}}
}
