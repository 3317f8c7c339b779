package grants

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/msb-project/msb/policies"
)

// Steers returns what a command of a secret of p runs or reads by which whoever may write to the directory dir, a real
// path, decides what it does; "" for nothing. A guest that shares such a directory would run code on the host. Of the
// files in the policy's trees no content is read but a script's.
func Steers(dir string, p *policies.Policy, s policies.Source) string {
	if s.Kind != policies.FromCommand || len(s.Argv) == 0 {
		return ""
	}
	w, shared := worker{trees: treesOf(p), policy: p, content: "not read"}, trees{dir}
	if _, err := w.command(&s); err != nil {
		return dir
	}
	h, program := s.Hold, s.Argv[0]
	if strings.Contains(program, "/") {
		program = lexicalAbs(program)
	}
	for _, path := range []string{h.Path, program, interpreter(h.Path)} {
		if strings.Contains(path, "/") && shared.reachPath(path, h.Dir) {
			return path
		}
	}
	// Most programs read settings below it, which say what they run.
	if home := os.Getenv("HOME"); filepath.IsAbs(home) && shared.reachPath(home, runDir) {
		return home
	}
	// A program there runs in the place of one in a later directory of PATH, or is what the command starts in turn.
	for _, in := range searched(w.trees) {
		if shared.reachPath(in, h.Dir) {
			return in
		}
	}
	if h.Content != "" { // it may run every file of the trees
		for _, tree := range w.trees {
			if shared.hold(tree) || (trees{tree}).hold(dir) {
				return tree
			}
		}
	}
	// What runs other files runs those of a directory around dir as well (make -C, cd).
	runs := runner(h.Path) || runner(realOf(h.Path)) || runner(program)
	at := slices.IndexFunc(s.Argv[1:], func(arg string) bool {
		return anyPath(arg, func(path string) bool {
			return shared.reachPath(path, h.Dir) || runs && strings.Trim(path, "/") != "" && shared.around(path, h.Dir)
		})
	})
	if at < 0 {
		return ""
	}
	return s.Argv[1+at]
}

// interpreter is what the first line of a script names; "" if the file is none.
func interpreter(path string) string {
	f, err := openRegular(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was read only
	line, _ := io.ReadAll(io.LimitReader(f, maxInterpreter))
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(strings.TrimPrefix(string(line), "#!"))
	if !bytes.HasPrefix(line, []byte("#!")) || len(words) == 0 {
		return ""
	}
	return words[0]
}
