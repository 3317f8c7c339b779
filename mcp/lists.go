package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// The lists of tools that a server can have instead of its own. Names and parameters are those of other sandbox servers,
// for agents and scripts that were written for them.
const (
	listMicrosandbox     = "microsandbox"
	listMicrosandboxHTTP = "microsandbox-http"
	listBird             = "bird"
)

// Lists are the names of the lists, for Options.Tools. A list can't be combined with another or with a toolset, since some
// names would mean two things.
func Lists() []string { return []string{listMicrosandbox, listMicrosandboxHTTP, listBird} }

// toolList is one list. Its tools are adapters, which call our own tools under the same floor and bounds.
type toolList struct {
	tools func(s *server) []toolSpec
	// intro describes the server to a client. %s is replaced by a description of the files and secrets.
	intro string
	// words are pairs: a name of msb's own tools and parameters, and the list's name for it.
	words []string
}

func toolLists() map[string]toolList {
	return map[string]toolList{
		listMicrosandbox:     microsandboxList(),
		listMicrosandboxHTTP: microsandboxHTTPList(),
		listBird:             birdList(),
	}
}

// listOf is the list among the names of toolsets, "" if there is none.
func listOf(names []string) string {
	for _, n := range names {
		if slices.Contains(Lists(), n) {
			return n
		}
	}
	return ""
}

var errListAlone = errors.New("a list of another server's tools stands alone, since one name must not have two meanings")

// checkAlone refuses a list beside anything else.
func checkAlone(names []string) error {
	if list := listOf(names); list != "" && len(names) > 1 {
		return fmt.Errorf("toolsets %s: %w; leave out %s, or everything else", strings.Join(names, ", "), errListAlone, list)
	}
	return nil
}

// listed are the tools that a client sees.
func (s *server) listed() []toolSpec {
	if s.list != nil {
		return s.list.tools(s)
	}
	return append(s.tools(), s.moreTools()...)
}

// spoken translates msb's text into the names of the list in force. It leaves what a guest wrote as it is.
func (s *server) spoken(text string) string {
	if s.list == nil {
		return text
	}
	r := strings.NewReplacer(s.list.words...)
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, markBegin)
		b.WriteString(r.Replace(before))
		if !found {
			return b.String()
		}
		id, _, _ := strings.Cut(rest, ":")
		marked, after, _ := strings.Cut(rest, "[end "+id+"]")
		if len(marked) == len(rest) { // without an end mark, all of it may be a guest's
			return b.String() + markBegin + rest
		}
		b.WriteString(markBegin + marked + "[end " + id + "]")
		text = after
	}
}

type toolCall = func(ctx context.Context, args json.RawMessage) (string, error)

// relay calls one of our own tools with these arguments; "sandbox" is the sandbox.
func (s *server) relay(ctx context.Context, call toolCall, args map[string]any) (string, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	text, err := call(ctx, raw)
	if name, ok := args["sandbox"].(string); ok {
		err = s.advise(name, err)
	}
	return text, err
}

// adapter is a tool of a list whose arguments are an A.
func adapter[A any](do func(ctx context.Context, a *A) (string, error)) toolCall {
	return func(ctx context.Context, raw json.RawMessage) (string, error) {
		var a A
		if err := decode(raw, &a); err != nil {
			return "", err
		}
		return do(ctx, &a)
	}
}

// workdirLabel is the label of a sandbox with the directory in which its programs start, for lists that have one.
const workdirLabel = "mcp.workdir"

// cwd is the directory in which a program starts if the call names none.
func (s *server) cwd(name, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	st, err := s.own(name, false)
	if errors.Is(err, sandbox.ErrNoSandbox) { // the call itself says so, or makes it
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return st.Labels[workdirLabel], nil
}

// named calls one of our tools that takes a sandbox alone.
func (s *server) named(ctx context.Context, name string, call toolCall) (string, error) {
	return s.relay(ctx, call, map[string]any{"sandbox": name})
}

// variables are the variables that all programs of a sandbox get.
func (s *server) variables(env map[string]string) ([]string, error) {
	all, err := (&program{Env: env}).environ()
	if err != nil {
		return nil, err
	}
	if len(all) > maxEnv || len(strings.Join(all, "")) > maxWords {
		return nil, wrong("a sandbox has at most %d variables of %d bytes together", maxEnv, maxWords)
	}
	return all, nil
}

// bound accepts a directory of this machine only where sandboxes see it anyway. No call adds a directory.
func (s *server) bound(host, guest string, write bool) error {
	is := func(d sandbox.Directory) bool {
		return d.Guest == guest && (d.Host == host || d.Host == realPath(host)) && (d.Writable || !write)
	}
	if slices.ContainsFunc(s.opts.Directories, is) {
		return nil
	}
	return say("%s can't be bound at %s: every sandbox sees the directories that the operator shares, and no others; they are %s", printed(host), printed(guest), cmp.Or(strings.Join(s.opts.shown(), ", "), "none"))
}

// statsOf asks a running sandbox for what it uses.
func (s *server) statsOf(ctx context.Context, st *sandbox.Status) (agentclient.Stats, error) {
	m, err := s.runner.connect(ctx, st)
	if errors.Is(err, sandbox.ErrNotRunning) {
		return agentclient.Stats{}, say("sandbox %s does not run", st.Name)
	}
	if err != nil {
		return agentclient.Stats{}, startFault{err}
	}
	defer func() { _ = m.Close() }() // the session's
	return m.Stats(ctx)
}
