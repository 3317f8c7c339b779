package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/docker/cli/cli/config/configfile"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image"
)

// maxPasswordInput and maxUserName bound what is read, in bytes; passwords and names are shorter.
const maxPasswordInput, maxUserName = 128 << 10, 1 << 10

func newLoginCommand(ui *ui) *cobra.Command {
	var user string
	var fromStdin bool
	c := &cobra.Command{
		Use:   "login [flags] [SERVER]",
		Short: "Log in to a registry",
		Long: `Asks for a user name and a password, or takes them from --username and
--password-stdin, tries them at the registry, and keeps them where docker does:
in the credential helper that ~/.docker/config.json (or that of DOCKER_CONFIG)
names, else in that file, unencrypted. docker and msb use each other's logins.
SERVER is HOST[:PORT]; without one it is Docker Hub.`,
		Example: `  msb login
  msb login --username me --password-stdin ghcr.io < token`,
		Args: named(cobra.MaximumNArgs(1), "name one registry, as in msb login ghcr.io"),
		RunE: func(c *cobra.Command, args []string) error {
			server, err := image.ParseServer(strings.Join(args, ""))
			if err != nil {
				return &usageError{err: err, help: "msb login --help"}
			}
			return untilSignalled(c.Context(), func(ctx context.Context) error {
				l, err := askLogin(ctx, ui, user, fromStdin)
				if err != nil {
					return err
				}
				return logIn(ctx, ui, server, l)
			})
		},
	}
	c.Flags().StringVarP(&user, "username", "u", "", "`name` of the user")
	c.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from standard input")
	return c
}

// logIn keeps what the registry takes.
func logIn(ctx context.Context, ui *ui, server image.Server, l image.Login) error {
	if err := l.Check(); err != nil {
		return &usageError{err: err, help: "msb login --help"}
	}
	looked, err := server.TryLogin(ctx, l, image.StoreOptions{})
	if err != nil {
		return err
	}
	if !looked {
		ui.note("%s lets everybody in, so that nothing says whether the password is right", server.Name())
	}
	kept, err := server.StoreLogin(l)
	if err != nil {
		return err
	}
	if kept.Helper == "" {
		ui.warn("warning: the password is stored unencrypted in %s; a credential helper keeps it elsewhere (docs/images.md)", kept.File)
	}
	if kept.Shadowed != "" {
		ui.warn("warning: pulls read %s now, and no longer %s, where podman keeps its logins; log in again for the registries that are in it", kept.File, kept.Shadowed)
	}
	if os.Getenv(configfile.DockerEnvConfigKey) != "" {
		ui.warn("warning: %s is set, and what it says of a registry wins over what is stored", configfile.DockerEnvConfigKey)
	}
	return ui.print("Login Succeeded\n")
}

func newLogoutCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use:   "logout [SERVER]",
		Short: "Remove the credentials for a registry",
		Long: `Removes what msb login or docker login stored for SERVER, HOST[:PORT]; without one
for Docker Hub. It asks the registry nothing: a token stays good until it is revoked there.`,
		Example: `  msb logout ghcr.io`,
		Args:    named(cobra.MaximumNArgs(1), "name one registry, as in msb logout ghcr.io"),
		RunE: func(_ *cobra.Command, args []string) error {
			server, err := image.ParseServer(strings.Join(args, ""))
			if err != nil {
				return &usageError{err: err, help: "msb logout --help"}
			}
			known, err := server.RemoveLogin()
			if err != nil {
				return err
			}
			if !known {
				ui.note("nobody is logged in to %s", server.Name())
				return nil
			}
			return ui.print("Removing login credentials for " + audit.Printable(server.Name()) + "\n")
		},
	}
}

var (
	errNoPrompt = errors.New("standard input is no terminal to ask on: give --username and --password-stdin")
	errNoUser   = errors.New("--password-stdin takes the password alone: give --username too")
)

// askLogin takes what the flags don't give from the terminal.
func askLogin(ctx context.Context, ui *ui, user string, fromStdin bool) (image.Login, error) {
	l := image.Login{Username: user}
	var err error
	switch {
	case fromStdin && user == "":
		return l, &usageError{err: errNoUser, help: "msb login --help"}
	case fromStdin:
		l.Password, err = readPassword(untilDone(ctx, os.Stdin))
		return l, err
	case !isTerminal(os.Stdin):
		return l, &usageError{err: errNoPrompt, help: "msb login --help"}
	}
	if user == "" {
		if l.Username, err = prompt(ctx, ui, "Username: ", func() (string, error) {
			return strings.TrimSpace(readLine(maxUserName)), nil
		}); err != nil {
			return l, err
		}
	}
	l.Password, err = prompt(ctx, ui, "Password: ", func() (string, error) {
		b, err := term.ReadPassword(int(os.Stdin.Fd()))
		_, _ = fmt.Fprintln(ui.err) // the Enter that was not shown
		return string(b), err
	})
	return l, err
}

// readPassword takes all of r but the end of its one line.
func readPassword(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxPasswordInput))
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), err
}

// prompt asks on the terminal, and restores the terminal if a signal ends the question.
func prompt(ctx context.Context, ui *ui, text string, read func() (string, error)) (string, error) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	if _, err := io.WriteString(ui.err, text); err != nil {
		return "", err
	}
	type answer struct {
		text string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := read()
		answered <- answer{text, err}
	}()
	select {
	case a := <-answered:
		if errors.Is(a.err, io.EOF) {
			return "", errors.New("the terminal was closed before an answer")
		}
		return a.text, a.err
	case <-ctx.Done(): // the read goes on until msb ends
		_, _ = fmt.Fprintln(ui.err)
		return "", errors.Join(ctx.Err(), term.Restore(fd, before))
	}
}
