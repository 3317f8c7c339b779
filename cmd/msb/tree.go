package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// writeTree writes every command with its flags, a line each: for people who look for one, and for agents.
func writeTree(w io.Writer, c *cobra.Command) error {
	if c.Hidden || c.Name() == "completion" || c.Name() == "help" { // cobra's own
		return nil
	}
	line := c.CommandPath()
	if _, args, found := strings.Cut(c.Use, " "); found {
		line += " " + args
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", line, c.Short)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || err != nil {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		line := "  --" + f.Name
		if f.Shorthand != "" {
			line += ", -" + f.Shorthand
		}
		if value != "" {
			line += " " + value
		}
		_, err = fmt.Fprintf(w, "%s: %s\n", line, usage)
	})
	for _, sub := range c.Commands() {
		if err == nil {
			err = writeTree(w, sub)
		}
	}
	return err
}

// treeFlag gives msb --tree.
func treeFlag(root *cobra.Command, ui *ui) {
	var tree bool
	root.Flags().BoolVar(&tree, "tree", false, "print every command with its flags")
	run := root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		if tree && len(args) == 0 {
			return writeTree(ui.out, root)
		}
		return run(c, args)
	}
}
