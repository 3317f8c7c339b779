package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/msb-project/msb/mcp/clientconfig"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

func newMCPInstall(ui *ui) *cobra.Command {
	var f mcpFlags
	var scope string
	var dry bool
	c := &cobra.Command{
		Use:   "install CLIENT [flags]",
		Short: "Write msb into the configuration of an MCP client",
		Long: "Makes msb mcp, with the flags given here, a server of CLIENT: " + strings.Join(clientconfig.Names(), ", ") + `.
What else stands in its configuration stays as it is, comments too; FILE` + clientconfig.BackupEnding + ` holds what it was
before msb. A second time it changes only what is different. msb mcp uninstall CLIENT takes it out again.`,
		Example: `  msb mcp install claude-code
  msb mcp install vscode --scope project --policy floor.toml
  msb mcp install zed --print`,
		Args: named(cobra.ExactArgs(1), "name the client, one at a time: "+strings.Join(clientconfig.Names(), ", ")),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := f.options()
			var warnings []string
			if err == nil {
				warnings, err = o.Check() // a server that won't start is better known now
			}
			if err != nil {
				return err
			}
			for _, w := range warnings {
				ui.note("warning: %s", w)
			}
			command, words, err := serverCommand(c.Flags(), clientconfig.Scope(scope))
			if err != nil {
				return err
			}
			if clientconfig.Scope(scope) == clientconfig.Project {
				warnWithoutPath(ui)
			}
			change, err := clientconfig.Install(args[0], clientconfig.Scope(scope), command, words)
			return applyChange(ui, change, err, dry, "msb is a server of %s now: %s\n")
		},
		ValidArgs: clientconfig.Names(),
	}
	f.add(c)
	scopeFlags(c, &scope, &dry)
	return c
}

func newMCPUninstall(ui *ui) *cobra.Command {
	var scope string
	var dry bool
	c := &cobra.Command{
		Use:     "uninstall CLIENT [flags]",
		Short:   "Take msb out of the configuration of an MCP client",
		Long:    "Takes the server msb out of the configuration of CLIENT: " + strings.Join(clientconfig.Names(), ", ") + ".",
		Example: `  msb mcp uninstall claude-code`,
		Args:    named(cobra.ExactArgs(1), "name the client, one at a time: "+strings.Join(clientconfig.Names(), ", ")),
		RunE: func(_ *cobra.Command, args []string) error {
			change, err := clientconfig.Uninstall(args[0], clientconfig.Scope(scope))
			return applyChange(ui, change, err, dry, "msb is no server of %s any more: %s\n")
		},
		ValidArgs: clientconfig.Names(),
	}
	scopeFlags(c, &scope, &dry)
	return c
}

func scopeFlags(c *cobra.Command, scope *string, dry *bool) {
	c.Flags().StringVar(scope, "scope", string(clientconfig.User), "`whose` configuration: user, or project for that of the working directory")
	c.Flags().BoolVar(dry, "print", false, "print the file as it would be, and change nothing")
}

// serverCommand is how a client starts the server. A project's configuration is for other machines too, so it names msb
// without a path.
func serverCommand(flags *pflag.FlagSet, scope clientconfig.Scope) (command string, args []string, err error) {
	args = []string{"mcp"}
	flags.Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		switch list, ok := f.Value.(pflag.SliceValue); {
		case f.Name == "scope" || f.Name == "print":
			return
		case f.Name == "volume":
			values = list.GetSlice()
			for i, v := range values { // the client's working directory is not this one
				d, wrong := policies.ParseDirectory(v)
				abs, pathErr := filepath.Abs(d.Host)
				err = errors.Join(err, wrong, pathErr)
				values[i] = abs + strings.TrimPrefix(v, d.Host)
			}
		case ok:
			values = list.GetSlice()
		case f.Name == "policy":
			abs, pathErr := filepath.Abs(values[0])
			err = errors.Join(err, pathErr)
			values[0] = abs
		}
		for _, v := range values {
			args = append(args, "--"+f.Name+"="+v)
		}
	})
	if err != nil || scope == clientconfig.Project {
		return "msb", args, err
	}
	if command, err = os.Executable(); err == nil && inNPXCache(command) {
		return "", nil, fmt.Errorf("%s is in npx's cache, which npm empties: a client would not find it later; install the package (npm install --global FILE), and run msb mcp install", command)
	}
	if home := os.Getenv(sandbox.EnvHome); home != "" && err == nil { // which the client need not have: the policy is approved there
		home, err = filepath.Abs(home)
		return "env", append([]string{sandbox.EnvHome + "=" + home, command}, args...), err
	}
	return command, args, err
}

// inNPXCache reports whether npx brought a program.
func inNPXCache(program string) bool {
	return strings.Contains(filepath.ToSlash(program), "/_npx/")
}

// warnWithoutPath says that the entry of a project names a program that clients here would not find.
func warnWithoutPath(ui *ui) {
	found, err := exec.LookPath("msb")
	if err == nil && !inNPXCache(found) {
		return
	}
	self, err := os.Executable()
	remedy := "put a link there, such as: sudo ln -s " + self + " /usr/local/bin/msb"
	if err != nil || inNPXCache(self) {
		remedy = "install it, not by npx alone: npm install --global FILE"
	}
	ui.note("warning: no msb is in your PATH, where the client looks for it; %s", remedy)
}

func applyChange(ui *ui, change *clientconfig.Change, err error, dry bool, done string) error {
	if errors.Is(err, clientconfig.ErrUnknown) || errors.Is(err, clientconfig.ErrScope) {
		return &usageError{err: err, help: "msb mcp install --help"}
	}
	if err != nil {
		return err
	}
	if len(change.Dropped) > 0 {
		ui.note("warning: the new entry msb has no %s, which the old one had; %s%s keeps it", strings.Join(change.Dropped, ", "), change.Path, clientconfig.BackupEnding)
	}
	if dry {
		if change.After == nil && change.Changes() {
			ui.note("%s goes: msb made it, and nothing else is in it", change.Path)
			return nil
		}
		ui.note("%s:", change.Path)
		return ui.print(string(change.After))
	}
	if !change.Changes() {
		return ui.print(fmt.Sprintf("%s: nothing to change in %s\n", change.Title, change.Path))
	}
	if err := change.Write(); err != nil {
		return err
	}
	return ui.print(fmt.Sprintf(done+"To take effect: %s.\n", change.Title, change.Path, change.Restart))
}
