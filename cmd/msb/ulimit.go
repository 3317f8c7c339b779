package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/msb-project/msb/agentd/agentclient"
)

// ulimitNames are docker's.
var ulimitNames = []string{
	"core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio", "rttime", "sigpending", "stack",
}

// ulimits is the value of --ulimit.
type ulimits struct{ to *[]agentclient.Rlimit }

var _ pflag.Value = ulimits{}

// String implements pflag.Value.
func (ulimits) String() string { return "" }

// Type implements pflag.Value.
func (ulimits) Type() string { return "stringArray" }

// Set implements pflag.Value. The form is docker's: NAME=SOFT[:HARD], where -1 is no limit. The last one of a name counts.
func (u ulimits) Set(text string) error {
	name, values, _ := strings.Cut(text, "=")
	soft, hard, two := strings.Cut(values, ":")
	if !two {
		hard = soft
	}
	l := agentclient.Rlimit{Name: name}
	for _, v := range []struct {
		text string
		to   *uint64
	}{{soft, &l.Soft}, {hard, &l.Hard}} {
		n, err := strconv.ParseUint(v.text, 10, 64)
		if v.text == "-1" {
			n, err = math.MaxUint64, nil
		}
		if err != nil {
			return errors.New("write NAME=SOFT[:HARD] with whole numbers, -1 for no limit, such as nofile=1024:4096")
		}
		*v.to = n
	}
	if !slices.Contains(ulimitNames, name) {
		return fmt.Errorf("there is no limit %.40q; write one of %s", name, strings.Join(ulimitNames, ", "))
	}
	if l.Soft > l.Hard {
		return errors.New("the soft limit is above the hard one; write the smaller number first")
	}
	*u.to = append(*u.to, l)
	return nil
}
