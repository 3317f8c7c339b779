package grants

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/msb-project/msb/policies"
)

// A command of a policy is one of three:
//
//   - a program outside of the policy's trees whose arguments are plain words that
//     name nothing inside: it is known by its arguments and its path;
//   - a script in the trees, with an interpreter outside: known by its bytes as
//     well, and run from a copy of what was approved;
//   - anything else, such as code for a shell: it may run every file of the trees,
//     so it is known by all of their content.
//
// The first two run in runDir, where a relative path leads nowhere near a tree.
const runDir = "/"

// maxScript bounds a script that is run from a copy, in bytes.
const maxScript = 1 << 20

// maxInterpreter is how much of a script's first line Linux reads, in bytes
// (BINPRM_BUF_SIZE less one): it cuts a longer one, and what is left of a path
// may lead elsewhere.
const maxInterpreter = 255

// errTooMuch means that a command can reach more files than can be looked at.
var errTooMuch = errors.New("its command can reach too many files")

func (w *worker) command(s *policies.Source) (string, error) {
	what := "command " + policies.QuoteArgs(s.Argv)
	if len(s.Argv) == 0 {
		return what, nil
	}
	lexical, err := LookPath(s.Argv[0], w.trees)
	if err != nil {
		s.Hold = &policies.Hold{Trees: w.trees, Dir: runDir} // reading it says what is wrong
		return what + ", whose program isn't there", nil     //nolint:nilerr // so that a policy can be looked at anywhere
	}
	h := &policies.Hold{Path: lexical, Trees: w.trees, Dir: runDir}
	s.Hold = h
	real := realOf(lexical)
	inside := w.trees.hold(lexical) || w.trees.hold(real)
	if inside {
		h.Path = real // a link of the writer's may lead elsewhere tomorrow
	}
	what += " (" + strings.TrimSpace(policies.QuoteArgs([]string{real})) + ")"
	if len(w.trees) == 0 {
		return what, nil
	}
	code := w.trees.code(s.Argv, lexical, real)
	switch {
	case !code && !inside:
		return what, nil
	case !code:
		if sum, ok := w.script(real); ok {
			h.Program = sum
			return what + " with sha256 " + sum, nil
		}
	}
	return w.wide(what, h)
}

// code reports whether a command may run files of the trees by its arguments: its program, looked up and with its links
// resolved, runs what they say, or they name something inside.
func (t trees) code(argv []string, lexical, real string) bool {
	return runner(lexical) || runner(real) || runner(argv[0]) ||
		slices.ContainsFunc(argv[1:], func(a string) bool { return !plain(a) || t.reach(a, runDir) })
}

// DirOf is the directory of the policy p if a command of its secrets may run files from there, else "". No file's
// content is read.
func DirOf(p *policies.Policy, s policies.Source) string {
	t := treesOf(p)
	if len(t) == 0 || len(s.Argv) == 0 {
		return ""
	}
	lexical, _ := LookPath(s.Argv[0], t) // one that isn't there may come
	real := realOf(lexical)
	if !t.code(s.Argv, lexical, real) && (lexical == "" || !t.hold(lexical) && !t.hold(real)) {
		return ""
	}
	return realOf(filepath.Dir(p.Path))
}

// script returns the digest of a script that can be run from a copy: its
// interpreter is outside of the trees.
func (w *worker) script(path string) (string, bool) {
	text, err := readSome(path, maxScript)
	if err != nil || !bytes.HasPrefix(text, []byte("#!")) {
		return "", false
	}
	interpreter, _, _ := bytes.Cut(text, []byte("\n"))
	// The kernel takes a NUL for the end of a path.
	if len(interpreter) > maxInterpreter || bytes.IndexByte(interpreter, 0) >= 0 || w.trees.reach(string(interpreter), runDir) {
		return "", false
	}
	return digest(text), true
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// wide ties a command to all that it may reach. It runs beside the policy.
func (w *worker) wide(what string, h *policies.Hold) (string, error) {
	h.Dir, h.Skip = filepath.Dir(w.policy.Path), w.state
	for _, file := range append([]string{w.policy.Path}, w.policy.Included...) {
		if real := realOf(file); w.trees.hold(real) && !slices.Contains(h.Rules, real) {
			h.Rules = append(h.Rules, real)
		}
	}
	if w.content == "" {
		var err error
		if w.content, err = content(h); err != nil {
			return "", err
		}
	}
	h.Content = w.content
	return fmt.Sprintf("%s with all files in %s (sha256 %s)", what, policies.QuoteArgs(w.trees), h.Content), nil
}

// LookPath finds a program as exec.LookPath does, but only in directories of PATH
// that are outside of the trees.
func LookPath(name string, outside []string) (string, error) {
	if strings.Contains(name, "/") {
		return absOf(name), executable(name)
	}
	for _, dir := range searched(outside) {
		path := filepath.Join(dir, name)
		if executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: not found in PATH: %w", name, os.ErrNotExist)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s: %w", path, os.ErrPermission)
	}
	return nil
}

// searched are the directories of PATH that a command may find programs in.
func searched(outside []string) []string {
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) && !trees(outside).hold(realOf(dir)) && !trees(outside).hold(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Environ returns those of the variables that lead a command to nothing in the directories outside of which it is to
// stay, with PATH cut to what is outside of them.
func Environ(variables, outside []string) []string {
	out := make([]string, 0, len(variables))
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "PATH":
			out = append(out, "PATH="+strings.Join(searched(outside), string(filepath.ListSeparator)))
		case name == "HOME" || !trees(outside).names(value):
			out = append(out, v)
		}
	}
	return out
}

// names reports whether text names something inside of a tree.
func (t trees) names(text string) bool {
	return anyPath(text, func(path string) bool { return filepath.IsAbs(path) && t.reachPath(path, runDir) })
}
