package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

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
	return execute(args, os.Stdout, os.Stderr)
}

func execute(args []string, stdout, stderr io.Writer) int {
	out := &checkedWriter{Writer: stdout}
	ui := newUI(out, stderr)
	root := newRoot(ui)
	root.SetOut(out)
	root.SetErr(stderr)
	root.SetArgs(helpless(root, args))
	// No signal is caught here: a command that did not look at the context would not end by one.
	err := root.ExecuteContext(context.Background())
	var code exitCode
	own := errors.As(err, &code)
	if (err == nil || own) && out.err != nil {
		err, own = out.err, false
	}
	switch {
	case err == nil:
		return 0
	case own:
		return int(code)
	}
	ui.fail(err)
	return exitOf(err)
}

// helpless leaves --help out behind a word that is no command: cobra shows the help of the group then, and calls it a
// success.
func helpless(root *cobra.Command, args []string) []string {
	c, rest, err := root.Find(args)
	if err != nil || !c.HasSubCommands() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return args
	}
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--help" || a == "-h" })
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
		return &usageError{err: fmt.Errorf("unknown command %q%s", args[0], hintFor(c, args[0])), help: "msb --help"}
	}
	treeFlag(root, ui)
	root.SetVersionTemplate("msb {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{err: plainFlagError(c, err), help: c.CommandPath() + " --help"}
	})
	root.AddCommand(newRunCommand(ui), newCreateCommand(ui), newStartCommand(ui), newExecCommand(ui), newJobCommand(ui), newLogsCommand(ui), newCopyCommand(ui), newStopCommand(ui), newRestartCommand(ui), newKillCommand(ui), newWaitCommand(ui), newShellCommand(ui),
		newListCommand(ui), newInspectCommand(ui), newEventsCommand(ui), newRemoveCommand(ui), newCaptureCommand(), newDoctorCommand(ui), newPolicyCommand(ui), newGatewayCommand(ui), newDNSCommand(ui), newImageCommand(ui), newReviewCommand(ui), newMCPCommand(ui), newWarmCommand(ui))
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

// otherWords are what other tools call what msb does in another way.
var otherWords = map[string]string{
	"attach":  "use msb shell NAME, or msb logs -f NAME",
	"version": "use msb --version",
	"info":    "use msb doctor",
	"top":     "use msb exec NAME -- ps",
	"prune":   "msb rm NAME removes a sandbox, msb image rm an image",
	"diff":    "use msb policy diff A B",
	"build":   "msb runs images that other tools build: oci:DIR, docker-archive:FILE, dir:PATH",
	"rename":  "a sandbox keeps its name; make another with msb create",
	"pull":    "use msb image pull",
	"images":  "use msb image ls",
	"delete":  "use msb rm NAME",
}

// hintFor says what somebody may have meant. What removes something is never guessed.
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

// onlyGroups makes a command that only holds others refuse what is none of them: cobra shows its help and
// calls that a success, which a script takes for a check that passed.
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
	if like := c.SuggestionsFor(word); len(like) > 0 {
		hint = "; did you mean " + like[0] + "?"
	}
	return &usageError{err: fmt.Errorf("there is no command %q under %s%s", word, c.CommandPath(), hint), help: c.CommandPath() + " --help"}
}
