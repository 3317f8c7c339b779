package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// version is set by the build.
var version = "dev"

func main() {
	sandbox.MaybeRun()
	os.Exit(run(os.Args[1:]))
}

// run executes one command line and returns msb's exit code.
func run(args []string) int {
	agentpb.QuietLog()
	waitOnStreams()
	return execute(args, os.Stdout, os.Stderr)
}

func execute(args []string, stdout, stderr io.Writer) int {
	out := &checkedWriter{Writer: stdout}
	ui := newUI(out, stderr)
	root := newRoot(ui)
	root.SetOut(out)
	root.SetErr(stderr)
	root.SetArgs(upToUnknown(root, args))
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		plainUsages(root)
	}
	// No signal is caught here, or one would not end commands that ignore the context.
	err := root.ExecuteContext(context.Background())
	var code exitCode
	own := errors.As(err, &code)
	if (err == nil || own) && out.err != nil {
		err, own = out.err, false
	}
	switch {
	case errors.Is(out.err, syscall.EPIPE) && (err == nil || errors.Is(err, syscall.EPIPE)): // whoever read the output has what they wanted
		return exitSignalled(syscall.SIGPIPE)
	case err == nil:
		return 0
	case own:
		return int(code)
	}
	ended := exitOf(err)
	if ended == exitNoSpace && !strings.Contains(err.Error(), "free") {
		err = fmt.Errorf("%w; free some space on that disk", err)
	}
	ui.fail(err)
	return ended
}

// upToUnknown drops the arguments after an unknown command of a group that needs one, so that the error is about that command. For a --help there,
// cobra would print the group's help and succeed; for another command's flags, it would report an unknown flag of the
// group.
func upToUnknown(root *cobra.Command, args []string) []string {
	c, rest, err := root.Find(args)
	if err != nil || !c.HasSubCommands() || c.ValidateArgs(nil) != nil || len(rest) == 0 || strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], cobra.ShellCompRequestCmd) {
		return args
	}
	return args[:len(args)-len(rest)+1]
}

// helpCommand is cobra's, but fails for an unknown command, for which cobra's shows the help of the group.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			group, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var words []string
			for _, c := range group.Commands() {
				if c.IsAvailableCommand() {
					words = append(words, c.Name()+"\t"+c.Short)
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			switch {
			case err != nil:
				return err
			case len(rest) == 0:
				return c.Help()
			case c == root:
				return unknownCommand(root, rest[0])
			case c.HasSubCommands():
				return noCommand(c, rest[0])
			}
			return &usageError{err: fmt.Errorf("%s has no commands; %q is too much", c.CommandPath(), rest[0]), help: c.CommandPath() + " --help"}
		},
	}
}

func newRoot(ui *ui) *cobra.Command {
	root := &cobra.Command{
		Use:   "msb",
		Short: "Run code that you don't trust in a microVM whose only way out is a policy",
		Long: `msb boots a microVM and runs a command in it. The machine's only network device
leads to a gateway on this host, which lets out what the policy allows and
nothing else, and puts secrets into requests without the guest ever seeing them.`,
		Example: `  msb run -- uname -a                      # no network at all but the gateway's "no"
  msb run --policy policy.toml             # what the file says
  msb run --allow api.github.com:443 alpine:3.20 -- wget -qO- https://api.github.com
  msb doctor                               # what this machine has and lacks`,
		SilenceUsage: true, SilenceErrors: true,
		Version: version,
	}
	root.Args, root.DisableSuggestions = cobra.ArbitraryArgs, true
	root.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return unknownCommand(c, args[0])
	}
	root.SetHelpCommand(helpCommand(root))
	treeFlag(root, ui)
	root.SetVersionTemplate("msb {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{err: plainFlagError(c, err), help: c.CommandPath() + " --help"}
	})
	root.AddCommand(newRunCommand(ui), newCreateCommand(ui), newStartCommand(ui), newExecCommand(ui), newJobCommand(ui), newLogsCommand(ui), newAttachCommand(ui), newCopyCommand(ui), newStopCommand(ui), newRestartCommand(ui), newKillCommand(ui), newWaitCommand(ui), newShellCommand(ui), newRenameCommand(ui), newTopCommand(ui), newPruneCommand(ui), newEnvCommand(ui), newSnapshotCommand(ui), newCloneCommand(ui),
		newListCommand(ui), newInspectCommand(ui), newEventsCommand(ui), newRemoveCommand(ui), newCaptureCommand(), newDoctorCommand(ui), newPolicyCommand(ui), newGatewayCommand(ui), newDNSCommand(ui), newImageCommand(ui), newLoginCommand(ui), newLogoutCommand(ui), newInstallCommand(ui), newUninstallCommand(ui), newReviewCommand(ui), newMCPCommand(ui), newPortCommand(ui), newServiceCommand(ui), newWarmCommand(ui), newVolumeCommand(ui), newCacheCommand(ui), newCommitCommand(ui), newStatsCommand(ui), newUpdateCommand(ui), newKeepCommand(ui), newPauseCommand(ui), newResumeCommand(ui), newMetricsCommand(ui), newSSHCommand(), newSSHConfigCommand(ui), newSSHProxyCommand(), newDiffCommand(ui), newApplyCommand(ui), newRequestsCommand(ui), newServerCommand(ui))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			onlyGroups(c)
		}
	}
	completeWords(root)
	takeFilled(root, "policy", "floor", "audit", "pcap", "learn", "name")
	takeOnce(root, "policy", "floor")
	return root
}

// otherWords are commands of other tools, with what msb has for them.
var otherWords = map[string]string{
	"version":   "use msb --version",
	"info":      "use msb doctor",
	"build":     noBuilds,
	"pull":      "use msb image pull",
	"images":    "use msb image ls",
	"delete":    "use msb rm NAME",
	"rmi":       "use msb image rm",
	"load":      "use msb image load, or name the file as the image: msb run docker-archive:FILE",
	"history":   "use msb image history IMAGE",
	"import":    "name the archive or directory as the image: docker-archive:FILE, oci:DIR, dir:PATH; of a snapshot: msb snapshot import FILE",
	"save":      "use msb image save IMAGE",
	"tag":       "an image has the name that it was pulled, loaded or committed under; msb commit NAME IMAGE makes one",
	"push":      "the cache keeps no layers to push; msb image save IMAGE reads those of a registry's image again",
	"export":    "use msb cp NAME:/ - > FILE",
	"network":   "the only network is msb's gateway: --no-net, --allow and --policy of msb run say what it lets out",
	"system":    "use msb prune, msb image ls, msb events NAME or msb doctor",
	"container": "sandboxes need no such word: msb ls, msb run, msb rm",
	"builder":   noBuilds, "buildx": noBuilds, "manifest": noBuilds,
	"compose": noGroups, "stack": noGroups, "swarm": noGroups, "node": noGroups, "config": noGroups,
	"secret":     "use --secret of msb run, or [secrets] of a policy: see docs/secrets.md",
	"checkpoint": "use msb snapshot create NAME, with --memory for its processes too",
	"context":    "msb runs on this machine alone, and has no daemon; MSB_HOME is where its sandboxes are",
	"plugin":     "msb has no plugins",
	"search":     "msb does not search registries; msb image pull IMAGE brings an image that you know",
	"trust":      "NAME@sha256:… holds an image to its digest; msb policy trust FILE approves a policy",
	"registry":   "use msb login and msb logout",
	"self":       otherVersion, "downgrade": otherVersion, "upgrade": otherVersion,
	"touch":   "use msb keep NAME",
	"status":  "use msb ls, or msb inspect NAME",
	"modify":  "use msb update NAME, or msb env set NAME KEY=VALUE",
	"branch":  "use msb clone NAME NEW, which copies the disk and no processes",
	"restore": "use msb clone SNAPSHOT NEW, or msb snapshot restore",
	"learn":   "use msb review --learn FILE, or msb run --learn FILE",
}

const (
	noBuilds     = "msb runs images that other tools build: oci:DIR, docker-archive:FILE, dir:PATH"
	noGroups     = "each sandbox is started by itself, with msb run -d --name NAME; docs/ports.md says how one reaches another"
	otherVersion = "msb does not replace itself: install the other version"
)

// otherWordsBelow are otherWords of the commands of a group.
var otherWordsBelow = map[string]map[string]string{
	"image": {
		"import": "name the archive as the image: msb run docker-archive:FILE",
		"build":  noBuilds,
		"tag":    "an image has the name that it was pulled, loaded or committed under; msb commit NAME IMAGE makes one",
		"push":   "the cache keeps no layers to push; msb image save IMAGE reads those of a registry's image again",
	},
	"volume":   {"update": "a volume keeps its size; msb volume create --size makes another, and msb volume cp copies files"},
	"snapshot": {"save": "use msb snapshot export", "load": "use msb snapshot import"},
	"policy": {
		"learn": "use msb review --learn FILE, or msb run --learn FILE", "lint": "use msb policy check FILE", "validate": "use msb policy check FILE",
		"test": "use msb policy explain FILE --to HOST:PORT",
	},
}

func unknownCommand(root *cobra.Command, word string) error {
	return &usageError{err: fmt.Errorf("unknown command %q%s", word, hintFor(root, word)), help: "msb --help"}
}

// hintFor suggests the command that may have been meant, but never one that removes something.
func hintFor(c *cobra.Command, word string) string {
	if hint := otherWords[word]; hint != "" {
		return ": " + hint
	}
	var known []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "rm" {
			known = append(known, sub.Name())
		}
	}
	if like := policies.Closest(word, known); like != "" {
		return "; did you mean " + like + "?"
	}
	return ""
}

// onlyGroups makes a group of commands refuse unknown ones: cobra shows the help and succeeds, which a script would take
// for success.
func onlyGroups(c *cobra.Command) *cobra.Command {
	c.Args, c.SuggestionsMinimumDistance = cobra.ArbitraryArgs, 2
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return noCommand(c, args[0])
	}
	return c
}

// noCommand is the error for a word that is no command under c.
func noCommand(c *cobra.Command, word string) error {
	hint := ""
	if other := otherWordsBelow[c.Name()][word]; other != "" {
		hint = ": " + other
	} else if like := c.SuggestionsFor(word); len(like) > 0 {
		hint = "; did you mean " + like[0] + "?"
	}
	return &usageError{err: fmt.Errorf("there is no command %q under %s%s", word, c.CommandPath(), hint), help: c.CommandPath() + " --help"}
}
