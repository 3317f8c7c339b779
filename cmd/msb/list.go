package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/internal/lazyregexp"
)

// listFlags say how a list is printed.
type listFlags struct {
	json, quiet bool
	format      string
	aligned     bool // the format was that of a table
}

func (l *listFlags) register(c *cobra.Command) {
	c.Flags().BoolVar(&l.json, "json", false, "print a JSON array")
	c.Flags().BoolVarP(&l.quiet, "quiet", "q", false, "print names only")
	c.Flags().StringVar(&l.format, "format", "", "print each by a Go `template` with the keys of --json, such as '{{.name}}', behind table for aligned columns; json for --json")
}

// check reads the template before anything is looked up.
func (l *listFlags) check(c *cobra.Command) (*template.Template, error) {
	if l.format == "json" { // as docker's
		l.json, l.format = true, ""
	}
	if rest, ok := strings.CutPrefix(l.format, "table"); ok && (rest == "" || rest[0] == ' ') { // so, too
		l.format = strings.TrimLeft(rest, " ")
		l.aligned = l.format != ""
	}
	l.format = unescaped(l.format)
	if l.json && l.quiet || l.format != "" && (l.json || l.quiet) {
		return nil, &usageError{err: errors.New("--json, --quiet and --format: give one of them"), help: c.CommandPath() + " --help"}
	}
	t, err := template.New("--format").Option("missingkey=error").Funcs(template.FuncMap{
		"json": func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
	}).Parse(l.format)
	if err != nil {
		return nil, &usageError{err: fmt.Errorf("%w; write a Go template, such as --format '{{.name}}'", err), help: c.CommandPath() + " --help"}
	}
	return t, nil
}

// printList prints all in the format that the flags of c choose; name gives an element's name, rows the table.
func printList[T any](ui *ui, c *cobra.Command, l *listFlags, all []T, name func(*T) string, rows func([]T) [][]string) error {
	t, err := l.check(c)
	if err != nil {
		return err
	}
	switch {
	case l.json, l.format == "" && rows == nil:
		if all == nil {
			all = []T{}
		}
		return ui.json(all)
	case l.quiet:
		var names strings.Builder
		for i := range all {
			names.WriteString(name(&all[i]) + "\n")
		}
		return ui.print(names.String())
	case l.format == "":
		return ui.table(rows(all))
	}
	lines := make([][]string, 0, 1+len(all))
	if l.aligned {
		lines = append(lines, strings.Split(headings(l.format), "\t"))
	}
	for i := range all {
		line, err := formatted(t, &all[i])
		if err != nil {
			of := "--json"
			if c.Flags().Lookup("json") == nil { // JSON is what it prints without --format
				of = "the JSON"
			}
			return &usageError{err: fmt.Errorf("%w; the keys are those of %s", err, of), help: c.CommandPath() + " --help"}
		}
		if !l.aligned {
			if err := ui.print(line + "\n"); err != nil {
				return err
			}
			continue
		}
		lines = append(lines, strings.Split(line, "\t"))
	}
	return ui.table(lines)
}

// unescaped has tabs and line breaks where they are written as \t and \n, which a shell leaves as they are. Template actions
// have strings of their own.
func unescaped(format string) string {
	escapes := strings.NewReplacer(`\t`, "\t", `\n`, "\n")
	var b strings.Builder
	from := 0
	for _, action := range templateAction.Get().FindAllStringIndex(format, -1) {
		b.WriteString(escapes.Replace(format[from:action[0]]) + format[action[0]:action[1]])
		from = action[1]
	}
	return b.String() + escapes.Replace(format[from:])
}

var templateAction, templateKey = lazyregexp.New(`\{\{.*?\}\}`), lazyregexp.New(`\.([a-z][a-z0-9_]*)[^.a-z0-9_]*\}\}$`)

// headings is a template's line with the name of its key in place of each action.
func headings(format string) string {
	return templateAction.Get().ReplaceAllStringFunc(format, func(action string) string {
		if key := templateKey.Get().FindStringSubmatch(action); key != nil {
			return strings.ToUpper(strings.ReplaceAll(key[1], "_", " "))
		}
		return ""
	})
}

// oneFormat is --format of a command that prints one object.
func oneFormat(c *cobra.Command, format *string) {
	c.Flags().StringVarP(format, "format", "f", "", "print a Go `template` with the keys of the JSON, such as '{{.name}}'")
}

// printOne prints v as JSON, or by a template.
func printOne[T any](ui *ui, c *cobra.Command, format string, v *T) error {
	if format == "" || format == "json" {
		return ui.json(v)
	}
	return printList(ui, c, &listFlags{format: format}, []T{*v}, nil, nil)
}

// formatted is one line of a list by a template, which sees what --json shows.
func formatted(t *template.Template, v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // sizes stay as they are written
	var keys map[string]any
	if err := dec.Decode(&keys); err != nil {
		return "", err
	}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(v).Elem()) { // what is left out for being empty is a key all the same
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, there := keys[key]; !there {
			keys[key] = ""
		}
	}
	var out bytes.Buffer
	if err := t.Execute(&out, printableValues(keys)); err != nil {
		return "", err
	}
	return out.String(), nil
}

// printableValues escapes a JSON value's strings for a terminal: a process of the guest chooses its own arguments.
func printableValues(v any) any {
	switch v := v.(type) {
	case string:
		return audit.Printable(v)
	case []any:
		for i := range v {
			v[i] = printableValues(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v)) // an archive of somebody else chooses the keys of its labels
		for k := range v {
			out[audit.Printable(k)] = printableValues(v[k])
		}
		return out
	}
	return v
}
