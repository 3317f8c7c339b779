package main

import (
	"cmp"
	"errors"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

func newListCommand(ui *ui) *cobra.Command {
	var flags listFlags
	var kept bool
	var filters []string
	c := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list", "ps"},
		Short:   "List the sandboxes that have a name (also: ps)",
		Example: `  msb ls
  msb ls --filter label=team=web -q
  msb ls --format '{{.name}} {{.running}}'`,
		Args: named(cobra.NoArgs, "msb ls takes no arguments; msb inspect NAME tells about one"),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkFilters(filters); err != nil {
				return err
			}
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			if kept && len(filters) > 0 {
				return &usageError{err: errors.New("--kept with --filter: what is kept has no labels; leave out one of the two"), help: "msb ls --help"}
			}
			debug.SetGCPercent(400) // of ten thousand sandboxes, nothing could be freed before msb ends
			if kept {
				return listKept(ui, c, home, &flags)
			}
			all, err := home.List()
			if err != nil {
				return err
			}
			if len(filters) > 0 {
				all = slices.DeleteFunc(all, func(s sandbox.Status) bool { return !matchFilters(&s, filters) })
			}
			return printList(ui, c, &flags, all, func(s *sandbox.Status) string { return s.Name },
				func(all []sandbox.Status) [][]string { return statusRows(all, time.Now()) })
		},
	}
	flags.register(c)
	c.Flags().StringArrayVarP(&filters, "filter", "f", nil, "list only those with `label=KEY[=VALUE]` (repeatable: all must match)")
	c.Flags().BoolVar(&kept, "kept", false, "list what msb run --rm=false left instead; msb rm ID removes it")
	sakeOfDocker(c, "all", "a", listsAll)
	sakeOfDocker(c, "no-trunc", "", "nothing is truncated")
	return c
}

// listKept lists what msb run --rm=false left: logs and disks of sandboxes without a name.
func listKept(ui *ui, c *cobra.Command, home *sandbox.Home, flags *listFlags) error {
	all, err := home.KeptRuns().List()
	if err != nil {
		return err
	}
	type row struct {
		ID    string    `json:"id"`
		Dir   string    `json:"directory"`
		Ended time.Time `json:"ended"`
	}
	kept := make([]row, 0, len(all))
	for _, k := range all {
		kept = append(kept, row(k))
	}
	return printList(ui, c, flags, kept, func(k *row) string { return k.ID }, func(kept []row) [][]string {
		rows := append(make([][]string, 0, 1+len(kept)), []string{"ID", "ENDED", "DIRECTORY"})
		for _, k := range kept {
			rows = append(rows, []string{k.ID, age(time.Since(k.Ended)) + " ago", audit.Printable(k.Dir)})
		}
		return rows
	})
}

func statusRows(all []sandbox.Status, now time.Time) [][]string {
	rows := make([][]string, 1+len(all))
	rows[0] = []string{"NAME", "STATE", "IMAGE", "CPUS", "MEMORY", "DISK", "PORTS", "POLICY"}
	each := len(all)/runtime.GOMAXPROCS(0) + 1
	var work sync.WaitGroup
	for begin := 0; begin < len(all); begin += each {
		work.Go(func() {
			for i := begin; i < min(begin+each, len(all)); i++ {
				rows[1+i] = statusRow(&all[i], now)
			}
		})
	}
	work.Wait()
	return rows
}

func statusRow(s *sandbox.Status, now time.Time) []string {
	if s.Problem != "" {
		return []string{s.Name, "damaged", audit.Printable(s.Problem)}
	}
	return []string{
		s.Name, stateOf(s, now), audit.Printable(s.Image), strconv.Itoa(s.CPUs), policies.FormatSize(s.Memory), progressbar.Bytes(s.Used), portsOf(s),
		audit.Printable(cmp.Or(s.PolicyFile, "-")),
	}
}

// portsOf are a running sandbox's published ports, as docker writes them.
func portsOf(s *sandbox.Status) string {
	if s.Info == nil || len(s.Info.Ports) == 0 {
		return "-"
	}
	texts := make([]string, 0, len(s.Info.Ports))
	for _, p := range s.Info.Ports {
		host := strconv.Itoa(int(p.Host))
		if p.Address.IsValid() {
			host = netip.AddrPortFrom(p.Address, p.Host).String()
		}
		texts = append(texts, host+"->"+guestPort(p))
	}
	return strings.Join(texts, ", ")
}

// stateOf is a sandbox's state in a few words.
func stateOf(s *sandbox.Status, now time.Time) string {
	switch {
	case s.Running && s.Info == nil:
		return "starting"
	case s.Paused:
		return "paused"
	case s.Running && s.PolicyRefused != "":
		return "up, new policy refused"
	case s.Running && s.Started != nil:
		return "up " + age(now.Sub(*s.Started))
	case s.Running:
		return "up"
	case s.End != nil && s.End.Kind != "":
		return "ended: " + string(s.End.Kind)
	}
	return "stopped"
}

// age is how long ago something was, in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(max(d, 0).Seconds())) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours())/24) + "d"
}
