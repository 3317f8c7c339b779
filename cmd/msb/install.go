package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/commandfile"
	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox"
)

func newInstallCommand(ui *ui) *cobra.Command {
	var f runFlags
	var name, dir string
	var given []string
	c := &cobra.Command{
		Use:   "install [flags] IMAGE [-- ARG...]",
		Short: "Make a command of this machine that runs in a sandbox",
		Long: `Writes a script into ~/.local/bin that runs msb run with IMAGE, the flags given here,
ARG and then its own arguments, with a terminal where there is one. Files that flags
name are found from everywhere. A relative directory of -v is relative to where the
command is called: -v .:/work lets it see that directory, and without -v it sees none.
A file that msb install did not write is never replaced.`,
		Example: `  msb install --name jq ghcr.io/jqlang/jq:1.7.1
  msb install -v .:/work:rw -w /work --preset pypi --name py python:3.12 -- python
  py script.py`,
		Args: named(cobra.MinimumNArgs(1), "name the image, as in msb install python:3.12"),
		RunE: func(c *cobra.Command, args []string) error {
			ui.quiet, f.cpusSet = f.quiet, c.Flags().Changed("cpus")
			return install(ui, &f, given, name, dir, args, c.ArgsLenAtDash())
		},
	}
	fl := c.Flags()
	fl.SetInterspersed(false) // what follows IMAGE is the command's own
	f.registerMachine(fl)
	hideRefused(fl)
	f.registerWho(fl)
	f.registerBounds(fl)
	fl.Var(&f.entrypoint, "entrypoint", "run this `program` in place of the image's entrypoint")
	recordFlags(fl, &given)
	fl.StringVar(&name, "name", "", "`name` of the command (default: the image's)")
	installDir(fl, &dir)
	f.remove = true
	return c
}

func newUninstallCommand(ui *ui) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:     "uninstall COMMAND...",
		Short:   "Remove commands that msb install made",
		Example: `  msb uninstall jq`,
		Args:    named(cobra.MinimumNArgs(1), "name the command that msb install made"),
		RunE: func(_ *cobra.Command, args []string) error {
			at, err := commandDir(dir)
			if err != nil {
				return err
			}
			return forEach(args, func(name string) error {
				if err := checkCommandName(name); err != nil {
					return err
				}
				if err := commandfile.Remove(filepath.Join(at, name)); err != nil {
					return err
				}
				return ui.print(name + "\n")
			})
		},
	}
	installDir(c.Flags(), &dir)
	return c
}

func installDir(fl *pflag.FlagSet, dir *string) {
	fl.StringVar(dir, "dir", "", "`directory` of the command (default: ~/.local/bin)")
}

// commandDir is where commands go.
func commandDir(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "bin"), err
}

var commandName = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._+-]{0,63}$`)

// hideRefused leaves out of the help what is refused where the command line is kept for later: its sandbox has no name, and
// its policy must be approved as it is.
func hideRefused(fl *pflag.FlagSet) {
	for _, name := range []string{"trust", "label", "restart"} {
		fl.Lookup(name).Hidden = true
	}
}

func checkCommandName(name string) error {
	if !commandName.MatchString(name) || name == "msb" {
		return &usageError{err: fmt.Errorf("%.80q can't be the name of a command: write letters, digits, \"_\", \".\", \"+\" and \"-\", at most 64, such as --name tool", name), help: "msb install --help"}
	}
	return nil
}

func install(ui *ui, f *runFlags, given []string, name, dir string, args []string, dash int) error {
	if f.trust {
		return &usageError{err: errors.New("--trust would approve whatever the policy says later; approve it as it is: msb policy trust FILE"), help: "msb install --help"}
	}
	if _, _, err := f.config(ui, args, dash); err != nil { // a command that won't run is better known now
		return err
	}
	ref, argv := splitArgs(args, dash)
	if err := image.CheckReference(ref); err != nil {
		return sandbox.Fail(err)
	}
	if name == "" {
		name = commandOfImage(ref)
	}
	if err := checkCommandName(name); err != nil {
		return err
	}
	at, err := commandDir(dir)
	if err != nil {
		return err
	}
	script, err := commandScript(given, ref, argv)
	if err != nil {
		return err
	}
	path := filepath.Join(at, name)
	if err := commandfile.Put(path, script); err != nil {
		return err
	}
	warnAtPath(ui, at, name)
	return ui.print(path + "\n")
}

// commandOfImage is the last part of an image's name, "" for one without such a name.
func commandOfImage(ref string) string {
	if scheme, _, ok := strings.Cut(ref, ":"); ok && slices.Contains([]string{"oci", "dir", "docker-archive"}, scheme) {
		return ""
	}
	ref, _, _ = strings.Cut(ref, "@")
	ref = ref[strings.LastIndexByte(ref, '/')+1:]
	ref, _, _ = strings.Cut(ref, ":")
	return ref
}

// commandScript is what runs the sandbox.
func commandScript(given []string, ref string, argv []string) (string, error) {
	self, env, err := lastingProgram("msb install")
	if err != nil {
		return "", err
	}
	if ref, err = absoluteReference(ref); err != nil {
		return "", err
	}
	words := slices.Concat(given, []string{ref, "--"}, argv)
	var b strings.Builder
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		b.WriteString("export " + variable + "=" + shellQuoted([]string{env[variable]}) + "\n")
	}
	b.WriteString("terminal=\nif [ -t 0 ] && [ -t 1 ]; then terminal=-t; fi\n")
	b.WriteString("exec " + shellQuoted([]string{self}) + " run -i ${terminal:+\"$terminal\"} " + shellQuoted(words) + " \"$@\"\n")
	return b.String(), nil
}

// lastingProgram is the path of this msb for later starts from elsewhere, with the variables that locate its files.
func lastingProgram(again string) (self string, env map[string]string, err error) {
	if self, err = os.Executable(); err != nil {
		return "", nil, err
	}
	if inNPXCache(self) {
		return "", nil, fmt.Errorf("%s is in npx's cache, which npm empties: it would not be found later; install the package (npm install --global FILE), and run %s again", self, again)
	}
	env = make(map[string]string)
	for _, variable := range []string{sandbox.EnvHome, vm.LibDirEnv} {
		if dir := os.Getenv(variable); dir != "" {
			if env[variable], err = filepath.Abs(dir); err != nil {
				return "", nil, err
			}
		}
	}
	return self, env, nil
}

// absoluteReference makes the path in an image's name absolute.
func absoluteReference(ref string) (string, error) {
	scheme, path, ok := strings.Cut(ref, ":")
	if !ok || commandOfImage(ref) != "" {
		return ref, nil
	}
	path, err := filepath.Abs(path)
	return scheme + ":" + path, err
}

// recorded is the value of a flag that is stored as it was given, for msb run in any working directory.
type recorded struct {
	pflag.Value
	flag string
	to   *[]string
}

// Set implements pflag.Value.
func (r *recorded) Set(text string) error {
	if err := r.Value.Set(text); err != nil {
		return err
	}
	switch r.flag {
	case "policy", "floor", "audit", "pcap", "env-file":
		abs, err := filepath.Abs(text)
		if err != nil {
			return err
		}
		text = abs
	case "secret": // a relative path would be another file or program in another working directory
		if relativeSource.MatchString(text) {
			return errors.New("the command is called in other directories too: write the path of the secret's source from / on")
		}
	}
	*r.to = append(*r.to, "--"+r.flag+"="+text)
	return nil
}

var relativeSource = lazyregexp.New(`^[^=]*=(file:[^/~]|command:[^/~ @][^ @]*/)`)

// recordFlags writes down the flags of fl as they are given.
func recordFlags(fl *pflag.FlagSet, to *[]string) {
	fl.VisitAll(func(f *pflag.Flag) {
		f.Value = &recorded{f.Value, f.Name, to}
		if f.DefValue == "[]" || f.DefValue == "0s" { // pflag would print the empty default of a type that it doesn't know
			f.DefValue = ""
		}
	})
}

// warnAtPath says what keeps a shell from finding the command.
func warnAtPath(ui *ui, dir, name string) {
	path := filepath.Join(dir, name)
	found, err := exec.LookPath(name)
	inPath := slices.Contains(filepath.SplitList(os.Getenv("PATH")), dir)
	switch {
	case !inPath:
		ui.warn("warning: %s is not in your PATH; add it: export PATH=\"%s:$PATH\"", dir, dir)
	case err == nil && found != path:
		ui.warn("warning: %s comes first in your PATH", found)
		return
	}
	if other := otherProgram(dir, name); other != "" {
		ui.warn("warning: with %s in front, %s is no longer %s, for scripts too; --name gives it another name", dir, name, other)
	}
}

// otherProgram is the program of this name that is found in PATH without dir; "" if there is none.
func otherProgram(dir, name string) string {
	for _, d := range filepath.SplitList(os.Getenv("PATH")) {
		if d == dir || d == "" {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(d, name)); err == nil {
			return found
		}
	}
	return ""
}
