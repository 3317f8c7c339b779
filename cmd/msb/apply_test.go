package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestRefusalsAreTheExitCodeWhateverIsAnswered: whoever quits, or says no to the rest, has not got all that was asked for either.
func TestRefusalsAreTheExitCodeWhateverIsAnswered(t *testing.T) { // reads standard input, which all tests share
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	version := func(permissions string) *sandbox.ChangeVersion {
		return &sandbox.ChangeVersion{Type: "file", Permissions: permissions}
	}
	for _, answer := range []string{"q", "quit", "n", "", "Q"} {
		for _, refused := range []bool{true, false} {
			d := &sandbox.ChangedDirectory{Directory: sandbox.Directory{Guest: "/work", Host: "/host"}, Changes: []sandbox.Change{
				{Path: "z", Kind: sandbox.ChangeMode, Old: version("0644"), New: version("0600")},
			}}
			if refused {
				d.Changes = append(d.Changes, sandbox.Change{Path: "a", Kind: sandbox.ChangeModified, Old: version("0644"), New: version("0644"), Refusals: []sandbox.ChangeRefusal{{Name: "hidden", Final: true}}})
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.WriteString(answer + "\n")
			if err = errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			os.Stdin = r
			var out, errs bytes.Buffer
			err = applyAll(t.Context(), newUI(&out, &errs), &applyFlags{interactive: true}, []*sandbox.ChangedDirectory{d}, nil)
			_ = r.Close() // it was only read
			var code exitCode
			if errors.As(err, &code); (code == exitDenied) != refused || (err != nil) != refused || strings.Count(out.String(), "apply it?") != 1 {
				t.Errorf("%q, refused %t: %v\n%s%s", answer, refused, err, &out, &errs)
			}
		}
	}
}
