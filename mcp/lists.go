package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/msb-project/msb/sandbox"
)

// The lists of tools that a server can have instead of its own: the names and parameters are those of other servers of
// sandboxes, for agents and scripts that know these.
const (
	listMicrosandbox     = "microsandbox"
	listMicrosandboxHTTP = "microsandbox-http"
	listBird             = "bird"
)

// Lists are the names of the lists, for Options.Tools. One of them stands alone there: two lists, or one beside a toolset,
// could have one name with two meanings.
func Lists() []string { return []string{listMicrosandbox, listMicrosandboxHTTP, listBird} }

// toolList is one list. Its tools are adapters: they do what they do by our own tools, under the same floor and bounds.
type toolList struct {
	tools func(s *server) []toolSpec
	// intro describes the server to a client. %s is replaced by a description of the files and secrets.
	intro string
	// words are pairs: what msb says of its own tools and parameters, and what it says of those of the list.
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

// spoken is what msb says, in the words of the list in force. What a guest wrote stays as it is.
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
		if len(marked) == len(rest) { // no end: all of it may be a guest's
			return b.String() + markBegin + rest
		}
		b.WriteString(markBegin + marked + "[end " + id + "]")
		text = after
	}
}

type toolCall = func(ctx context.Context, args json.RawMessage) (string, error)

// relay calls one of our own tools with these arguments, of which "sandbox" is the sandbox.
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

// cwd is the directory in which a program starts that names none.
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
