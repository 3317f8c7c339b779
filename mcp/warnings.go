package mcp

import (
	"fmt"

	"github.com/msb-project/msb/policies"
)

// warnings are what an operator should know of a server that starts all the same.
func (o *Options) warnings() []string {
	var all []string
	if names := unset(o.Floor); len(names) > 0 {
		all = append(all, variables(names)+" not set here, and secrets of the policy are read from there: no sandbox with these secrets starts unless it is set where msb mcp runs, in the environment of its client")
	}
	if most := ram(); most > 0 && o.Memory > most {
		all = append(all, fmt.Sprintf("a sandbox may have %s of memory, and this machine has %d MiB", policies.FormatSize(o.Memory), most>>20))
	}
	return all
}
