//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// headers collects the values of -H.
type headers []string

func (h *headers) String() string     { return strings.Join(*h, ", ") }
func (h *headers) Set(s string) error { *h = append(*h, s); return nil }

// get is `msb-tour get`: an HTTPS client for the built-in image, whose busybox has one that knows no
// certificates and that servers of today refuse (its hello has no signature algorithms). The body goes
// to standard output; a status from 400 on is an error.
func get(ctx context.Context, args []string) error {
	var h headers
	fs := flag.NewFlagSet("msb-tour get", flag.ContinueOnError)
	fs.Var(&h, "H", "a request `header`, \"Name: value\" (repeatable)")
	method := fs.String("X", http.MethodGet, "the request's `method`")
	file := fs.String("T", "", "the `file` that is the request's body")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return errors.New("usage: msb-tour get [-X METHOD] [-H 'Name: value'] [-T FILE] URL")
	}
	body := io.ReadCloser(http.NoBody)
	if *file != "" {
		f, err := os.Open(*file)
		if err != nil {
			return err
		}
		body = f // closed by the client
	}
	req, err := http.NewRequestWithContext(ctx, *method, fs.Arg(0), body)
	if err != nil {
		return err
	}
	for _, line := range h {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if strings.EqualFold(name, "Host") {
			req.Host = value // the only header that net/http takes from elsewhere
		}
		req.Header.Add(name, value)
	}
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}
