package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/printable"
	"github.com/msb-project/msb/sandbox"
)

func newMCPWrap(ui *ui) *cobra.Command {
	var f runFlags
	var img string
	var given []string
	c := &cobra.Command{
		Use:   "wrap [flags] NAME -- COMMAND [ARG...]",
		Short: "Make another MCP server run in a sandbox",
		Long: `Prints an entry for the configuration of an MCP client: it runs COMMAND, an MCP server on standard input
and output, in a fresh sandbox of msb run with the flags given here. What the server may reach is what
--policy or --allow say, and its keys are placeholders in the sandbox (--secret). NAME is its name in the
client. msb looks first whether the sandbox would start, as far as that can be told without starting it.`,
		Example: `  msb mcp wrap --image node:22 --preset npm everything -- npx -y @modelcontextprotocol/server-everything
  msb mcp wrap --image node:22 --preset npm --allow api.github.com:443 \
      --secret GITHUB_PERSONAL_ACCESS_TOKEN=file:/home/me/token@api.github.com \
      github -- npx -y @modelcontextprotocol/server-github`,
		Args: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 1 || len(args) < 2 {
				return errors.New("name the server, then -- and its command, as in msb mcp wrap --image node:22 NAME -- npx -y PACKAGE")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.cpusSet = c.Flags().Changed("cpus")
			return wrap(ui, &f, given, img, args[0], args[1:])
		},
	}
	fl := c.Flags()
	f.registerMachine(fl)
	hideRefused(fl)
	f.registerWho(fl)
	f.registerBounds(fl)
	fl.Var(&f.entrypoint, "entrypoint", "run this `program` in place of the image's entrypoint, with COMMAND as its arguments; empty: COMMAND alone")
	recordFlags(fl, &given)
	fl.StringVar(&img, "image", "", "the sandbox's `IMAGE` (default: the policy's, or the built-in one)")
	f.remove = true
	return c
}

var serverName = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)

// wrappedServer is the entry of a server in a client's configuration.
type wrappedServer struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
}

func wrap(ui *ui, f *runFlags, given []string, img, name string, argv []string) error {
	const help = "msb mcp wrap --help"
	switch {
	case !serverName.MatchString(name):
		return &usageError{err: fmt.Errorf("%.80q can't be the name of a server: write letters, digits, \"_\" and \"-\", at most 64", name), help: help}
	case f.trust:
		return &usageError{err: errors.New("--trust would approve whatever the policy says later; approve it as it is: msb policy trust FILE"), help: help}
	}
	var ref []string
	if img != "" {
		ref = []string{img}
	}
	cfg, _, err := f.config(ui, slices.Concat(ref, argv), len(ref)) // a server that won't start is better known now
	if err != nil {
		return err
	}
	if err := image.CheckReference(cfg.Image); cfg.Image != "" && err != nil {
		return sandbox.Fail(err)
	}
	home, err := sandbox.OpenHome("")
	if err != nil {
		return err
	}
	if _, err := home.Trust().Admit(cfg.Policy, sandbox.AdmitOptions{Floor: cfg.Floor}); err != nil {
		return err
	}
	if given, err = withAbsoluteVolumes(given); err != nil {
		return err
	}
	server := wrappedServer{}
	if server.Command, server.Env, err = lastingProgram("msb mcp wrap"); err != nil {
		return err
	}
	if img, err = absoluteReference(img); err != nil {
		return err
	}
	server.Args = slices.Concat([]string{"run", "-i"}, given)
	if img != "" {
		server.Args = append(server.Args, img)
	}
	server.Args = slices.Concat(server.Args, []string{"--"}, argv)
	if i := slices.IndexFunc(server.Args, func(word string) bool { return !utf8.ValidString(word) }); i >= 0 {
		return &usageError{err: fmt.Errorf("%.80q is no UTF-8, and JSON can't hold it", server.Args[i]), help: help}
	}
	if err := ui.json(map[string]any{"mcpServers": map[string]any{name: server}}); err != nil {
		return err
	}
	if commandOfImage(cfg.Image) != "" && cfg.Image != sandbox.DefaultImage && !slices.Contains(knownImages(), cfg.Image) {
		ui.note("warning: the image is not here yet, and a client may not wait while it is pulled; run msb image pull %s", shellQuoted([]string{cfg.Image}))
	}
	if cfg.Image == "" || cfg.Image == sandbox.DefaultImage {
		ui.note("warning: the server gets the built-in image, which has neither Node.js nor Python; --image names another, such as node:22")
	}
	line := []string{"claude", "mcp", "add", "--transport", "stdio"}
	for _, variable := range slices.Sorted(maps.Keys(server.Env)) {
		line = append(line, "--env", variable+"="+server.Env[variable])
	}
	ui.note("for Claude Code: %s", shownForShell(slices.Concat(line, []string{name, "--", server.Command}, server.Args)))
	return nil
}

// shownForShell is shellQuoted for a command that is shown in a terminal. What a terminal acts on is escaped as bash and zsh
// read it: a note would replace it otherwise, and the command would be another one.
func shownForShell(argv []string) string {
	words := make([]string, 0, len(argv))
	for _, word := range argv {
		if !strings.ContainsFunc(word, printable.Obeyed) {
			words = append(words, shellQuoted([]string{word}))
			continue
		}
		var b strings.Builder
		for i := range len(word) {
			if c := word[i]; c < ' ' || c > '~' || c == '\'' || c == '\\' {
				fmt.Fprintf(&b, `\x%02x`, c)
			} else {
				b.WriteByte(c)
			}
		}
		words = append(words, "$'"+b.String()+"'")
	}
	return strings.Join(words, " ")
}

// withAbsoluteVolumes makes the directories of -v absolute: a client has a working directory of its own.
func withAbsoluteVolumes(given []string) ([]string, error) {
	given = slices.Clone(given)
	for i, word := range given {
		text, ok := strings.CutPrefix(word, "--volume=")
		dirs, _, err := parseVolumes([]string{text})
		if !ok || err != nil || len(dirs) == 0 { // a volume, or refused before
			continue
		}
		abs, err := filepath.Abs(dirs[0].Host)
		if err != nil {
			return nil, err
		}
		given[i] = "--volume=" + abs + strings.TrimPrefix(text, dirs[0].Host)
	}
	return given, nil
}
