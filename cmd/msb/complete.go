package main

import (
	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// completeWords tells the shell what may stand where: names of sandboxes and presets, backends, pull policies.
func completeWords(root *cobra.Command) {
	const files, none = cobra.ShellCompDirectiveDefault, cobra.ShellCompDirectiveNoFileComp
	fixed := func(words ...string) cobra.CompletionFunc { return cobra.FixedCompletions(words, none) }
	for path, words := range map[string]cobra.CompletionFunc{
		"start": names(-1), "stop": names(-1), "rm": names(-1), "inspect": names(1), "events": names(1), "exec": names(1), "capture": names(1),
		"policy presets": fixed(policies.Presets()...),
	} {
		if c := find(root, path); c != nil {
			c.ValidArgsFunction = words
		}
	}
	for _, path := range []string{"run", "create"} {
		c := find(root, path)
		for flag, words := range map[string]cobra.CompletionFunc{
			"vm": fixed("auto", "krun", "qemu"), "pull": fixed(string(image.PullMissing), string(image.PullAlways), string(image.PullNever)),
			"policy": cobra.FixedCompletions([]string{"toml"}, cobra.ShellCompDirectiveFilterFileExt), "audit": cobra.FixedCompletions(nil, files),
		} {
			_ = c.RegisterFlagCompletionFunc(flag, words) // its only error is a flag that doesn't exist
		}
	}
}

// find is the command at a path of names, nil if there is none.
func find(root *cobra.Command, path string) *cobra.Command {
	for _, c := range root.Commands() {
		if c.CommandPath() == "msb "+path {
			return c
		}
		if sub := find(c, path); sub != nil {
			return sub
		}
	}
	return nil
}

// names completes names of sandboxes, in the first most arguments; -1 is in all of them.
func names(most int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveDefault
		}
		home, err := sandbox.OpenHome("")
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		all, err := home.List()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		words := make([]cobra.Completion, 0, len(all))
		for _, s := range all {
			words = append(words, s.Name)
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
