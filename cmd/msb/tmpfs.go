package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// parseTmpfs reads the values of --tmpfs. Their form is docker's: PATH[:OPTION,...].
func parseTmpfs(values []string) ([]sandbox.Tmpfs, error) {
	all := make([]sandbox.Tmpfs, 0, len(values))
	for _, v := range values {
		path, options, given := strings.Cut(v, ":")
		t := sandbox.Tmpfs{Path: path}
		for _, o := range strings.Split(options, ",") {
			if err := tmpfsOption(&t, o); given && err != nil {
				return nil, fmt.Errorf("--tmpfs %s: %w", v, err)
			}
		}
		all = append(all, t)
	}
	return all, nil
}

func tmpfsOption(t *sandbox.Tmpfs, option string) (err error) {
	name, value, _ := strings.Cut(option, "=")
	switch name {
	case "size":
		t.Size, err = policies.ParseSize(value)
		return err
	case "mode":
		mode, err := strconv.ParseUint(value, 8, 32)
		if err != nil {
			return fmt.Errorf("mode %q: write it in octal, such as mode=1777", value)
		}
		bits := uint32(mode)
		t.Mode = &bits
		return nil
	case "exec", "noexec":
		t.Exec = option == "exec"
		return nil
	case "rw", "nosuid", "nodev": // which it is
		return nil
	}
	return fmt.Errorf("there is no option %q; write size=64M, mode=1777 or exec", option)
}
