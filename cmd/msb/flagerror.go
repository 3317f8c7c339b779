package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/msb-project/msb/policies"
)

// plainFlagError turns an error of pflag, which may quote strconv's and time's, into a sentence with a remedy.
func plainFlagError(c *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	var bare *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("--%s %q: %s", wrong.GetFlag().Name, wrong.GetValue(), wanted(wrong.GetFlag(), wrong.Unwrap()))
	case errors.As(err, &bare):
		return fmt.Errorf("--%s lacks its value: %s", bare.GetFlag().Name, usageOf(bare.GetFlag()))
	case errors.As(err, &unknown):
		return unknownFlag(c, unknown)
	}
	return err
}

// once is the value of a flag that may be given once: a second floor or policy would silently replace the first.
type once struct {
	pflag.Value
	given bool
}

var errTwice = errors.New("it is given twice")

// Set implements pflag.Value.
func (o *once) Set(text string) error {
	if o.given {
		return errTwice
	}
	o.given = true
	return o.Value.Set(text)
}

// takeOnce makes a command and its subcommands refuse these flags if they are given twice.
func takeOnce(c *cobra.Command, flags ...string) {
	for _, name := range flags {
		if f := c.Flags().Lookup(name); f != nil {
			f.Value = &once{Value: f.Value}
		}
	}
	for _, sub := range c.Commands() {
		takeOnce(sub, flags...)
	}
}

// filled is the value of a flag that must not be empty: if a shell variable isn't set, msb would otherwise run without the
// floor, the record or the name that was asked for.
type filled struct{ pflag.Value }

var errEmpty = errors.New("it is empty")

// Set implements pflag.Value.
func (f filled) Set(text string) error {
	if text == "" {
		return errEmpty
	}
	return f.Value.Set(text)
}

// takeFilled makes a command and its subcommands refuse empty values of these flags.
func takeFilled(c *cobra.Command, flags ...string) {
	for _, name := range flags {
		if f := c.Flags().Lookup(name); f != nil && f.Value.Type() == "string" {
			f.Value = filled{f.Value}
		}
	}
	for _, sub := range c.Commands() {
		takeFilled(sub, flags...)
	}
}

// variables is the value of -e.
type variables struct{ pflag.Value }

var errNoVariable = errors.New("it names no variable")

// Set implements pflag.Value. A variable's name could begin with a dash, but -e -- is a flag without its value.
func (v variables) Set(text string) error {
	if text == "" || text[0] == '-' || text[0] == '=' {
		return errNoVariable
	}
	return v.Value.Set(text)
}

// wanted says what a flag takes, with an example.
func wanted(f *pflag.Flag, err error) string {
	switch {
	case errors.Is(err, errTwice):
		return "it is given twice; put both files together with include in one of them"
	case errors.Is(err, errEmpty):
		return "it is empty; give it a value, or leave the flag out"
	case errors.Is(err, errNoVariable):
		return "it names no variable; write -e NAME=VALUE, or -e NAME to pass one on"
	}
	switch f.Value.Type() {
	case "int":
		return fmt.Sprintf("write a whole number, such as --%s 2", f.Name)
	case "duration":
		return fmt.Sprintf("write a number with its unit, such as --%s 30s, or 5m, or 1h30m", f.Name)
	case "bool":
		return fmt.Sprintf("it takes no value; write --%s, or --%s=false", f.Name, f.Name)
	}
	if cause := errors.Unwrap(err); cause != nil {
		err = cause // without pflag's own words around it
	}
	return err.Error()
}

// usageOf is a flag's line of --help.
func usageOf(f *pflag.Flag) string {
	_, text := pflag.UnquoteUsage(f)
	return text
}

// unknownFlag says, for an unknown flag, what does the same in msb, or which flag may have been meant.
func unknownFlag(c *cobra.Command, unknown *pflag.NotExistError) error {
	name := unknown.GetSpecifiedName()
	if unknown.GetSpecifiedShortnames() != "" {
		name = "-" + name
	} else {
		name = "--" + name
	}
	if signal := unknown.GetSpecifiedShortnames(); signal != "" && c.Name() == "kill" {
		return fmt.Errorf("-%s is no flag of %s: write -s %s", signal, c.CommandPath(), signal)
	}
	if hint := otherFlag(c, unknown.GetSpecifiedName()); hint != "" {
		return fmt.Errorf("%s is no flag of %s: %s", name, c.CommandPath(), hint)
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if like := policies.Closest(unknown.GetSpecifiedName(), known); like != "" && like != unknown.GetSpecifiedName() {
		return fmt.Errorf("unknown flag %s: did you mean --%s?", name, like)
	}
	return fmt.Errorf("unknown flag %s", name)
}

// didYouMean suggests the known word that is closest to a misspelled one, as the beginning of a sentence; "" if there is
// none.
func didYouMean(word string, known []string) string {
	if like := policies.Closest(word, known); like != "" && like != word {
		return fmt.Sprintf("did you mean %s? ", like)
	}
	return ""
}

// required makes a command ask for a flag before it does anything.
func required(c *cobra.Command, flags ...string) {
	for _, name := range flags {
		_ = c.MarkFlagRequired(name) // for completion; its only error is a flag that doesn't exist
	}
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		for _, name := range flags {
			if f := c.Flags().Lookup(name); !f.Changed {
				what, _ := pflag.UnquoteUsage(f)
				return &usageError{err: fmt.Errorf("--%s is missing; write --%s %s", name, name, strings.Replace(what, "file", "FILE", 1)), help: c.CommandPath() + " --help"}
			}
		}
		return nil
	}
}
