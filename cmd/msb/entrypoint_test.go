package main

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image"
)

// TestEntrypointsReplaceTheImages as docker's do: with --entrypoint the image's command goes too, and an empty one leaves the
// user's command alone.
func TestEntrypointsReplaceTheImages(t *testing.T) {
	t.Parallel()
	img := image.Config{Entrypoint: []string{"entry", "-x"}, Cmd: []string{"cmd"}}
	for _, c := range []struct {
		flags, argv, want []string
		says              bool
	}{
		{nil, nil, []string{"entry", "-x", "cmd"}, true},
		{nil, []string{"a"}, []string{"entry", "-x", "a"}, true},
		{[]string{"--entrypoint", "p"}, nil, []string{"p"}, true},
		{[]string{"--entrypoint", "p"}, []string{"a"}, []string{"p", "a"}, true},
		{[]string{"--entrypoint", ""}, []string{"a"}, []string{"a"}, true},
		{[]string{"--entrypoint="}, nil, []string{"/bin/sh"}, false},
	} {
		var f runFlags
		cmd := &cobra.Command{}
		f.register(cmd)
		if err := cmd.ParseFlags(c.flags); err != nil {
			t.Fatal(err)
		}
		if got := commandOf(img, f.entrypoint, c.argv); !slices.Equal(got, c.want) {
			t.Errorf("%q %q: got %q, want %q", c.flags, c.argv, got, c.want)
		}
		if got := saysCommand(img, &f, c.argv); got != c.says {
			t.Errorf("%q %q: -d runs a command: %t", c.flags, c.argv, got)
		}
	}
}
