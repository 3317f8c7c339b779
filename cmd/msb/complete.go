package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/hypervisors"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// completeWords registers completions: names of sandboxes, presets and images, backends, pull policies.
func completeWords(root *cobra.Command) {
	const files, none = cobra.ShellCompDirectiveDefault, cobra.ShellCompDirectiveNoFileComp
	fixed := func(words ...string) cobra.CompletionFunc { return cobra.FixedCompletions(words, none) }
	for path, words := range map[string]cobra.CompletionFunc{
		"start": names(-1), "stop": names(-1), "restart": names(-1), "kill": names(-1), "wait": names(-1), "shell": names(1), "attach": names(1), "rm": names(-1), "inspect": names(1), "events": names(1), "exec": names(1),
		"capture": inTurn(names(1), fixed("on", "off")), "cp": inTurn(orFiles(places), orFiles(places)),
		"policy presets": fixed(policies.Presets()...), "policy show": inTurn(orFiles(policyWords)), "policy explain": inTurn(orFiles(policyWords)),
		"policy diff": inTurn(orFiles(policyWords), orFiles(policyWords)), "image rm": images, "image inspect": images, "image history": images, "image save": images,
		"rename": names(1), "top": names(1), "stats": names(-1), "volume inspect": volumeNames(1), "volume rm": volumeNames(-1), "cache commit": names(1), "update": names(-1), "keep": names(-1), "env ls": names(1), "env set": names(1), "env unset": names(1), "port": names(1), "port ls": names(1), "port add": names(1), "port rm": names(1),
		"snapshot create": names(1), "snapshot inspect": snapshotNames(1), "snapshot rm": snapshotNames(-1), "snapshot restore": inTurn(snapshotNames(1), names(1)),
		"snapshot diff": snapshotNames(2), "snapshot export": snapshotNames(1), "clone": inTurn(cloneWords),
		"service": names(1), "ssh": names(1), "ssh-config": names(-1),
		"pause": names(-1), "resume": names(-1), "job input": jobNames(1),
		"run": imageThenFiles, "warm": inTurn(orFiles(images)), "install": imageThenFiles, "image pull": images, "create": inTurn(noWords, orFiles(images)),
		"diff":        names(1),
		"apply":       names(1),
		"requests ls": names(-1), "requests approve": requestIDs, "requests deny": requestIDs,
		"logs": names(1), "job ls": names(1), "job logs": jobNames(1), "job wait": jobNames(-1), "job kill": jobNames(-1), "job rm": jobNames(-1),
	} {
		if c := find(root, path); c != nil {
			c.ValidArgsFunction = words
		}
	}
	limits := make([]string, 0, len(ulimitNames))
	for _, name := range ulimitNames {
		limits = append(limits, name+"=")
	}
	for _, path := range []string{"run", "exec"} {
		_ = find(root, path).RegisterFlagCompletionFunc("ulimit", cobra.FixedCompletions(limits, none|cobra.ShellCompDirectiveNoSpace))
	}
	policyFile := cobra.FixedCompletions([]string{"toml"}, cobra.ShellCompDirectiveFilterFileExt)
	for _, path := range []string{"run", "create", "clone", "mcp", "server start", "policy from-flags"} {
		c := find(root, path)
		for flag, words := range map[string]cobra.CompletionFunc{
			"vm": fixed(backendNames()...), "pull": fixed(string(image.PullMissing), string(image.PullAlways), string(image.PullNever)),
			"preset": fixed(policies.Presets()...), "policy": policyFile, "floor": policyFile, "audit": cobra.FixedCompletions(nil, files),
		} {
			_ = c.RegisterFlagCompletionFunc(flag, words) // its only error is a flag that doesn't exist
		}
	}
}

// plainUsages takes the quotes around the word for a flag's value out of all usages: cobra shows them as they are beside a
// flag that a shell completes.
func plainUsages(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = usageOf(f) })
	for _, sub := range c.Commands() {
		plainUsages(sub)
	}
}

// backendNames are what --vm takes.
func backendNames() []string {
	all := hypervisors.All("")
	names := make([]string, 1, 1+len(all))
	names[0] = vm.Auto
	for _, b := range all {
		names = append(names, b.Name())
	}
	return names
}

// inTurn completes each argument by its own function, and no further ones.
func inTurn(each ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(each) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return each[len(args)](c, nil, word)
	}
}

// imageThenFiles is for an image and a command's arguments.
func imageThenFiles(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return orFiles(images)(c, args, word)
}

// noWords completes a name that is new.
func noWords(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// orFiles completes files if none of the words has the typed prefix.
func orFiles(words cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		all, how := words(c, args, word)
		all = slices.DeleteFunc(all, func(s cobra.Completion) bool { return !strings.HasPrefix(s, word) })
		if len(all) == 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return all, how
	}
}

// places completes the NAME: of msb cp, which a path follows.
func places(c *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, _ := names(1)(c, nil, word)
	for i := range all {
		all[i] += ":"
	}
	return all, cobra.ShellCompDirectiveNoSpace
}

// policyWords completes the names that may stand for a policy file: sandboxes and presets.
func policyWords(c *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, _ := names(1)(c, nil, word)
	return append(all, policies.Presets()...), cobra.ShellCompDirectiveNoFileComp
}

// sandboxNames and knownImages are the words that a misspelled name is compared with.
func sandboxNames() []string {
	all, _ := names(-1)(nil, nil, "")
	return all
}

func knownImages() []string {
	all, _ := images(nil, nil, "")
	return append(all, sandbox.DefaultImage)
}

// images completes the names of images in the cache.
func images(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	store, err := openStore()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := store.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	words := make([]cobra.Completion, 0, len(list))
	for i := range list {
		words = append(words, list[i].Ref)
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// find is the command at a path of names, nil if there is none.
func find(root *cobra.Command, path string) *cobra.Command {
	for name := range strings.FieldsSeq(path) {
		all := root.Commands()
		i := slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == name })
		if i < 0 {
			return nil
		}
		root = all[i]
	}
	return root
}

// completed completes the first most arguments, all of them for -1, with the names of what list finds in the state
// directory.
func completed[T any](most int, list func(home *sandbox.Home, args []string) ([]T, error), name func(*T) string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		home, err := sandbox.OpenHome("")
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		all, err := list(home, args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		words := make([]cobra.Completion, 0, len(all))
		for i := range all {
			words = append(words, name(&all[i]))
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// names completes names of sandboxes, in the first most arguments; behind these come files. -1 is in all of them.
func names(most int) cobra.CompletionFunc {
	sandboxes := completed(most, func(h *sandbox.Home, _ []string) ([]sandbox.Status, error) { return h.List() }, func(s *sandbox.Status) string { return s.Name })
	return func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return sandboxes(c, args, begun)
	}
}

// jobNames completes a sandbox's name, then names of its jobs, in the first most places behind it; -1 is all of them.
func jobNames(most int) cobra.CompletionFunc {
	if most >= 0 {
		most++
	}
	jobs := completed(most, func(h *sandbox.Home, args []string) ([]sandbox.JobStatus, error) { return h.Jobs(args[0]) }, func(j *sandbox.JobStatus) string { return j.Name })
	return func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return names(1)(c, args, begun)
		}
		return jobs(c, args, begun)
	}
}

// volumeNames completes names of volumes, in the first most arguments; -1 is in all of them.
func volumeNames(most int) cobra.CompletionFunc {
	return completed(most, func(h *sandbox.Home, _ []string) ([]sandbox.VolumeStatus, error) { return h.Volumes().List() }, func(v *sandbox.VolumeStatus) string { return v.Name })
}

// snapshotNames completes names of snapshots, in the first most arguments; -1 is in all of them.
func snapshotNames(most int) cobra.CompletionFunc {
	return completed(most, func(h *sandbox.Home, _ []string) ([]sandbox.Snapshot, error) { return h.Snapshots().List() }, func(s *sandbox.Snapshot) string { return s.Name })
}

// cloneWords completes what a sandbox can be made of.
func cloneWords(c *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, _ := names(1)(c, nil, word)
	more, how := snapshotNames(1)(c, nil, word)
	return append(all, more...), how
}
