package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestTheCommandLine lists every verb with its flags: what scripts rely on changes in a review, or not at all.
func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	var list func(c *cobra.Command)
	list = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return // cobra's own
		}
		fmt.Fprintln(&got, strings.TrimSuffix(c.CommandPath()+" "+strings.Join(strings.Fields(c.Use)[1:], " "), " "))
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			line := "  --" + f.Name
			if f.Shorthand != "" {
				line += ", -" + f.Shorthand
			}
			line += " " + f.Value.Type()
			if !slices.Contains([]string{"", "0", "false", "[]", "0s"}, f.DefValue) {
				line += " = " + f.DefValue
			}
			if f.Hidden {
				line += " (hidden)"
			}
			fmt.Fprintln(&got, line)
		})
		for _, sub := range c.Commands() {
			list(sub)
		}
	}
	list(newRoot(newUI(io.Discard, io.Discard)))
	const golden = "testdata/flags.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got.String() != string(want) {
		t.Errorf("%v; -update writes it anew. Got:\n%s", err, got.String())
	}
}
