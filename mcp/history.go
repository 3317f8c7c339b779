package mcp

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/msb-project/msb/sandbox"
)

const (
	// maxHistory bounds the calls that are remembered, of all sandboxes together, and shownHistory those of one answer.
	maxHistory   = 1000
	shownHistory = 100
	// maxWhat bounds what is remembered of a call's arguments, in bytes.
	maxWhat = 200
)

// history are the newest calls of this server, in memory.
type history struct {
	mu    sync.Mutex
	calls []pastCall // the oldest first
}

// pastCall holds no content of files, standard input and variables: they may be private, and long.
type pastCall struct {
	Time    time.Time `json:"time"`
	Tool    string    `json:"tool"`
	What    string    `json:"what,omitempty"`
	TookMS  int64     `json:"took_ms"`
	Failed  bool      `json:"failed,omitempty"`
	sandbox string    // "" is the default one
}

// add remembers a call. Without a sandbox's name it is one to the default sandbox.
func (h *history) add(began time.Time, tool string, raw json.RawMessage, failed bool) {
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
	_ = json.Unmarshal(raw, &a) // what can't be read was refused
	words := strings.Join([]string{a.Action, a.Job, a.Command, strings.Join(a.Argv, " "), a.Path, a.From, a.To, strings.Join(a.Packages, " ")}, " ")
	for _, f := range a.Files {
		words += " " + f.Path
	}
	what := strings.Join(strings.Fields(words), " ")
	if len(what) > maxWhat {
		what = strings.ToValidUTF8(what[:maxWhat], "") + "…"
	}
	name := a.Sandbox
	if tool == "sandbox_create" {
		name = a.Name
	}
	if name == defaultName {
		name = ""
	}
	if (name != "" || tool == "sandbox_create") && sandbox.CheckName(name) != nil { // it was refused; a client may send megabytes
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.calls) == maxHistory {
		h.calls = h.calls[1:]
	}
	h.calls = append(h.calls, pastCall{began.UTC(), tool, what, time.Since(began).Milliseconds(), failed, name})
}

// of are the newest calls to a sandbox. byDefault is the name of the default one.
func (h *history) of(name, byDefault string) []pastCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := []pastCall{}
	for _, c := range h.calls {
		if c.sandbox == name || c.sandbox == "" && name == byDefault {
			of = append(of, c)
		}
	}
	return of[max(0, len(of)-shownHistory):]
}
