package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/msb-project/msb/egress/probe"
)

// target puts the flags of `msb policy explain` together.
func target(to, at, method, path string) (probe.Target, error) {
	t, err := probe.Parse(to)
	if err != nil {
		return t, &usageError{err: fmt.Errorf("--to %w", err), help: "msb policy explain --help"}
	}
	if upper := strings.ToUpper(method); method != upper {
		return t, &usageError{err: fmt.Errorf("--method %q: methods are upper case; write %s", method, upper), help: "msb policy explain --help"}
	}
	if path != "" && path[0] != '/' && path != "*" {
		return t, &usageError{err: fmt.Errorf("--path %q: write a path that begins with \"/\", such as /%s", path, path), help: "msb policy explain --help"}
	}
	t.Method, t.Path = method, path
	if at == "" {
		return t, nil
	}
	if t.Addr, err = netip.ParseAddr(at); err != nil {
		return t, &usageError{err: fmt.Errorf("--at: %w", err), help: "msb policy explain --help"}
	}
	t.Given = true
	return t, nil
}
