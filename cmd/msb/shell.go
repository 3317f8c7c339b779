package main

import (
	"os"

	"github.com/spf13/cobra"
)

func newShellCommand(ui *ui) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "shell [flags] NAME",
		Short: "Open a shell in a sandbox that runs: bash if it is there, else sh",
		Example: `  msb shell agent
  msb shell -u nobody -w /tmp agent
  echo 'uname -a' | msb shell agent`,
		Args: named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			keys, err := parseDetachKeys(f.detachKeys)
			if err != nil {
				return &usageError{err: err, help: "msb shell --help"}
			}
			f.keys, f.plain, f.stdin, f.tty = keys, true, true, isTerminal(os.Stdin) && isTerminal(os.Stdout)
			return execNamed(c.Context(), ui, &f, args[0], []string{"sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"})
		},
	}
	f.registerWho(c.Flags())
	c.Flags().StringVar(&f.detachKeys, "detach-keys", "", detachKeysHelp)
	return c
}
