package mcp

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/sandbox"
)

const (
	// maxHistory bounds the calls that are remembered of sandboxes that are not there, and shownHistory those of one answer.
	maxHistory   = 1000
	shownHistory = 100
	// maxWhat bounds what is remembered of a call's arguments, in bytes.
	maxWhat = 200
)

// history are the newest calls. Those to a sandbox are kept with it, so that they outlive this server; others are in memory.
type history struct {
	*boxes
	mu    sync.Mutex
	calls []pastCall // the oldest first
}

// pastCall holds no contents of files, standard input and variables: they may be private and long.
type pastCall struct {
	Time    time.Time `json:"time"`
	Tool    string    `json:"tool"`
	What    string    `json:"what,omitempty"`
	TookMS  int64     `json:"took_ms"`
	Failed  bool      `json:"failed,omitempty"`
	sandbox string    // "" is the default one
}

// recall makes the entry of a call that begins. It copies what it keeps, so that the arguments can be freed. A call without
// a sandbox's name is one to the default sandbox.
func recall(began time.Time, tool string, raw json.RawMessage) pastCall {
	var a struct {
		Sandbox  string   `json:"sandbox"`
		Name     string   `json:"name"`
		Action   string   `json:"action"`
		Job      string   `json:"job"`
		Command  string   `json:"command"`
		Argv     []string `json:"argv"`
		Path     string   `json:"path"`
		From     string   `json:"from"`
		To       string   `json:"to"`
		Packages []string `json:"packages"`
		Files    []struct {
			Path string `json:"path"`
		} `json:"files"`
	}
	_ = json.Unmarshal(raw, &a) // a call that can't be read is refused anyway
	words := slices.Concat([]string{a.Action, a.Job, a.Command}, a.Argv, []string{a.Path, a.From, a.To}, a.Packages)
	for _, f := range a.Files {
		words = append(words, f.Path)
	}
	name := a.Sandbox
	if tool == "sandbox_create" {
		name = a.Name
	}
	if name == defaultName {
		name = ""
	}
	return pastCall{Time: began.UTC(), Tool: tool, What: inShort(words), sandbox: strings.Clone(name[:min(len(name), maxWhat)])}
}

// likeSecret is what looks like a credential in a command: the history is kept on disk.
var likeSecret = lazyregexp.New(`(?i)(\b(?:[a-z0-9_-]*(?:token|secret|password|passwd|api_?key|access_?key|credential)[a-z0-9_-]*["']?\s*[=:]\s*|(?:bearer|basic|token)\s+)|://[^\s/@:]*:)[^\s@]+|\b(?:gh[pousr]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA|eyJ)[a-z0-9_.-]{8,}`)

// inShort joins words into one line of at most maxWhat bytes.
func inShort(words []string) string {
	var line []byte
	cut := false
	for _, w := range words {
		cut = cut || len(w) > 2*maxWhat
		for _, f := range strings.Fields(w[:min(len(w), 2*maxWhat)]) {
			line = append(append(line, f...), ' ')
		}
		if len(line) > maxWhat+1 {
			line, cut = line[:maxWhat+1], true
			break
		}
	}
	text := likeSecret.Get().ReplaceAllString(strings.ToValidUTF8(string(line[:max(0, len(line)-1)]), ""), "$1***")
	if cut {
		text += "…"
	}
	return text
}

// add remembers a call that began. A call with an impossible name was refused, and isn't kept.
func (h *history) add(c pastCall, failed bool) {
	if c.sandbox != "" && sandbox.CheckName(c.sandbox) != nil {
		return
	}
	c.TookMS, c.Failed = time.Since(c.Time).Milliseconds(), failed
	if st := h.there(c.sandbox); st != nil {
		line, err := json.Marshal(c)
		if err == nil {
			err = sandbox.AddCall(h.only(st), st.Name, line)
		}
		if err == nil || errors.Is(err, sandbox.ErrNoSandbox) { // which has just been removed
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.calls) == maxHistory {
		h.calls = h.calls[1:]
	}
	h.calls = append(h.calls, c)
}

// there is the sandbox of that name if it is one of this server's; "" is the default one.
func (h *history) there(name string) *sandbox.Status {
	if h.boxes == nil {
		return nil
	}
	st, err := h.own(name, true)
	if err != nil || st.Label != h.label {
		return nil
	}
	return st
}

// of are the newest calls to a sandbox. byDefault is the name of the default one.
func (h *history) of(name, byDefault string) []pastCall {
	of := []pastCall{}
	if st := h.there(name); st != nil {
		lines, _ := sandbox.PastCalls(h.only(st), st.Name) // what can't be read is not shown
		for _, line := range lines {
			var c pastCall
			if json.Unmarshal(line, &c) == nil && c.Tool != "" {
				of = append(of, c)
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c.sandbox == name || c.sandbox == "" && name == byDefault {
			of = append(of, c)
		}
	}
	return of[max(0, len(of)-shownHistory):]
}
