package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/msb-project/msb/sandbox"
)

// newSSHProxyCommand is for ssh to run, and hidden from people.
func newSSHProxyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ssh-proxy NAME",
		Short:   "Lead to a sandbox's SSH server on standard input and output (for ssh's ProxyCommand)",
		Example: `  ssh -o ProxyCommand="msb ssh-proxy agent" …   # as in what msb ssh-config prints`,
		Hidden:  true,
		Args:    named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			if term.IsTerminal(int(os.Stdin.Fd())) {
				return &usageError{err: errors.New("ssh-proxy is for ssh to run; use msb ssh " + args[0]), help: "msb ssh --help"}
			}
			// ssh sends SIGHUP when it ends, and a terminal SIGINT to both. Both are ignored: the connection ends with
			// standard input.
			signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			return proxySSH(c.Context(), home, args[0])
		},
	}
}

func proxySSH(ctx context.Context, home *sandbox.Home, name string) error {
	sb, err := home.Connect(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = sb.Close() }() // ends this session, whose work is done
	err = sb.SSH(ctx, os.Stdin, os.Stdout, func(text string) {
		_, _ = fmt.Fprintln(os.Stderr, "msb: "+text) // ssh shows it
	})
	if errors.Is(err, syscall.EPIPE) {
		return nil // ssh was killed
	}
	return err
}
