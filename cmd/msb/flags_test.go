package main

import (
	"flag"
	"io"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestTheCommandLine lists every verb with its flags: what scripts rely on changes in a review, or not at all.
func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	root := newRoot(newUI(&got, io.Discard))
	root.SetArgs([]string{"--tree"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/tree.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got.String() != string(want) {
		t.Errorf("%v; -update writes it again. Got:\n%s", err, got.String())
	}
}
