package main

import (
	"fmt"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// parseVolumes reads the values of -v.
func parseVolumes(values []string) ([]sandbox.Directory, error) {
	all := make([]sandbox.Directory, 0, len(values))
	for _, v := range values {
		d, err := policies.ParseDirectory(v)
		if err != nil {
			return nil, fmt.Errorf("-v %s: %w", v, err)
		}
		all = append(all, d)
	}
	return all, nil
}
