package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/msb-project/msb/audit"
)

// ui is where everything that msb prints is rendered.
type ui struct {
	out, err io.Writer
	quiet    bool
}

// checkedWriter remembers the first error of a write, since cobra ignores errors when it prints help.
type checkedWriter struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (w *checkedWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

func newUI(out, err io.Writer) *ui { return &ui{out: out, err: err} }

// fail prints an error. It may quote a guest or a registry, so control characters are escaped.
func (u *ui) fail(err error) {
	text := strings.ReplaceAll(strings.TrimRight(err.Error(), "\n"), "\t", "  ")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = audit.Printable(line)
	}
	_, _ = fmt.Fprintln(u.err, "msb: "+strings.Join(lines, "\n     "))
}

// warn prints why msb's exit code is not the command's own, even with --quiet.
func (u *ui) warn(format string, args ...any) {
	_, _ = fmt.Fprintln(u.err, "msb: "+audit.Printable(fmt.Sprintf(format, args...)))
}

// note prints a sentence for people, unless they asked for quiet.
func (u *ui) note(format string, args ...any) {
	if !u.quiet {
		_, _ = fmt.Fprintln(u.err, "msb: "+audit.Printable(fmt.Sprintf(format, args...)))
	}
}

// json prints v, indented.
func (u *ui) json(v any) error { return u.encode(v, "  ") }

// jsonLine prints v on one line, for programs that read line by line.
func (u *ui) jsonLine(v any) error { return u.encode(v, "") }

// encode escapes characters that a terminal acts on and JSON doesn't escape (C1 controls, text direction): the values may
// hold names of images and a guest's text.
func (u *ui) encode(v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	return u.print(string(audit.AppendPrintable(nil, b.Bytes())))
}

// table prints rows in aligned columns. The last cell of a row may be longer than its column is wide.
func (u *ui) table(rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	size := 0
	for _, width := range widths {
		size += len(rows) * (width + len("  "))
	}
	var text strings.Builder
	text.Grow(size)
	for _, row := range rows {
		last := len(row) - 1
		for i, cell := range row[:last] {
			text.WriteString(cell)
			for range widths[i] - utf8.RuneCountInString(cell) + len("  ") {
				text.WriteByte(' ')
			}
		}
		text.WriteString(row[last] + "\n")
	}
	return u.print(text.String())
}

func (u *ui) print(s string) error {
	_, err := io.WriteString(u.out, s)
	return err
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
