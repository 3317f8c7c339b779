package mcp

import (
	"fmt"

	"github.com/msb-project/msb/policies"
)

// warnings are problems that an operator should know of, and that don't keep a server from starting.
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
