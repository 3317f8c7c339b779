//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if filepath.Base(os.Args[0]) == "wget" {
		os.Exit(runWget(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if len(os.Args) > 1 && os.Args[1] == "get" {
		if err := get(ctx, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "msb-tour: "+err.Error())
			os.Exit(1) // nothing is left to cancel
		}
		return
	}
	t := &tour{
		dialer:   &net.Dialer{Timeout: silence},
		client:   &http.Client{Timeout: 20 * time.Second},
		echoURL:  "https://echo.msb.internal/",
		resolver: resolverFrom("/etc/resolv.conf"),
		token:    os.Getenv("DEMO_TOKEN"),
		backend:  os.Getenv("MSB_BACKEND"),
	}
	ok := true
	for _, row := range t.rows(ctx) {
		verdict := "ok"
		if !row.ok {
			verdict, ok = "unexpected", false
		}
		fmt.Printf("%-14s %-11s %s\n", row.what, verdict, row.found)
	}
	if !ok {
		os.Exit(1)
	}
}
