package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

func newTopCommand(ui *ui) *cobra.Command {
	var flags listFlags
	c := &cobra.Command{
		Use:   "top [flags] NAME",
		Short: "List the processes of a sandbox that runs; its image needs no ps",
		Example: `  msb top web
  msb top web --json | jq '.[].pid'`,
		Args: named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			return withHome(c, func(ctx context.Context, home *sandbox.Home) error {
				sb, err := home.Connect(ctx, args[0])
				if err != nil {
					return err
				}
				all, err := sb.Processes(ctx)
				if err := errors.Join(err, sb.Close()); err != nil {
					return err
				}
				return printList(ui, c, &flags, all, func(p *sandbox.Process) string { return strconv.Itoa(p.PID) }, processRows)
			})
		},
	}
	flags.register(c)
	c.Flags().Lookup("quiet").Usage = "print numbers only"
	return c
}

func processRows(all []sandbox.Process) [][]string {
	rows := append(make([][]string, 0, 1+len(all)), []string{"PID", "PPID", "UID", "STATE", "MEMORY", "COMMAND"})
	for i := range all {
		p := &all[i]
		rows = append(rows, []string{
			strconv.Itoa(p.PID), strconv.Itoa(p.Parent), strconv.Itoa(int(p.UID)), audit.Printable(p.State), progressbar.Bytes(p.Memory),
			audit.Printable(strings.Join(p.Command, " ")),
		})
	}
	return rows
}
