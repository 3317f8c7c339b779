package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/internal/guest/assets"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/hypervisors"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// Free space on the disk of the state directory.
const (
	// lowDisk is where doctor warns: room for the kernel (21 MB), the built-in image and one ordinary image.
	lowDisk = 2 << 30
	// firstRunDisk is what the first run needs at least: it writes 37 MB (kernel, agent, built-in image), and parts of that
	// twice for a moment. nextRunDisk is for later runs: their writable disk, console and audit log.
	firstRunDisk = 64 << 20
	nextRunDisk  = sandbox.MinHostRoom
)

// finding is a line of `msb doctor`.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	// Remedy is what to do about it; empty when OK.
	Remedy string `json:"remedy,omitempty"`
	// Required findings keep msb from running anything.
	Required bool `json:"required"`
}

// diagnosis is what `msb doctor --json` prints.
type diagnosis struct {
	// Usable is true when at least one backend can run, and nothing else that is required is missing.
	Usable bool `json:"usable"`
	// Backend is what --vm auto chooses, and Why the reason.
	Backend  string    `json:"backend,omitempty"`
	Why      string    `json:"why"`
	Findings []finding `json:"findings"`
}

func newDoctorCommand(ui *ui) *cobra.Command {
	var asJSON, node bool
	var config string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine has for msb and what it lacks",
		Example: `  msb doctor
  sudo msb doctor --node`,
		Long: "One line for each thing that msb needs, with the remedy where it is missing. Exit code 1 when msb can't run here.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if !node && !c.Flags().Changed("containerd-config") {
				config = ""
			}
			d := diagnose(c.Context(), config)
			if err := printDiagnosis(ui, d, asJSON); err != nil {
				return err
			}
			if !d.Usable {
				return exitCode(exitDoctor)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&node, "node", false, "look at what a node of Kubernetes needs, too, and at its state directory")
	c.Flags().StringVar(&config, "containerd-config", "/etc/containerd/config.toml", "a node's configuration `FILE` of containerd; with it, --node may be left out")
	return c
}

// diagnose looks at this machine, and at this node if the path of its containerd's configuration is given.
func diagnose(ctx context.Context, containerdConfig string) diagnosis {
	var d diagnosis
	dir := ""
	if containerdConfig != "" {
		d.Findings, dir = nodeFindings(ctx, containerdConfig)
	}
	home, err := sandbox.OpenHome(dir)
	cache := ""
	if err != nil {
		d.add(finding{Name: "home", Detail: err.Error(), Remedy: "set MSB_HOME to a directory that you may write", Required: true})
	} else {
		cache = home.Kernel()
		d.add(finding{Name: "home", OK: true, Detail: home.Dir()})
		d.add(diskSpace(home))
	}
	d.add(guestParts())
	for _, f := range confinement(ctx) {
		if containerdConfig != "" && f.Name == "cgroup" { // a pod's VMM is in the pod's group, not in one of this user's
			continue
		}
		d.add(f)
	}
	lacks := d.required() // before the backends': one of them is enough
	all := hypervisors.All(cache)
	seen := map[string]bool{}
	for _, b := range all {
		for _, c := range b.Probe(ctx).Checks {
			if !seen[c.Name] { // both backends look at KVM and the guest kernel
				seen[c.Name] = true
				d.add(finding{Name: c.Name, OK: c.OK, Detail: c.Detail, Remedy: c.Remedy, Required: c.Required})
			}
		}
	}
	b, why, err := vm.Select(ctx, vm.Auto, all...)
	if err != nil {
		d.Why = err.Error()
		return d
	}
	d.Usable, d.Backend, d.Why = len(lacks) == 0, b.Name(), why
	if !d.Usable {
		d.Why = strings.Join(lacks, "; ")
	}
	return d
}

// required are the sentences about missing requirements.
func (d *diagnosis) required() []string {
	var lacks []string
	for _, f := range d.Findings {
		if f.Required && !f.OK {
			lacks = append(lacks, f.Name+": "+f.Detail)
		}
	}
	return lacks
}

func (d *diagnosis) add(f finding) { d.Findings = append(d.Findings, f) }

func diskSpace(home *sandbox.Home) finding {
	f := finding{Name: "disk"}
	free, err := freeBytes(home.Dir())
	if err != nil {
		f.Detail, f.Remedy = err.Error(), "set MSB_HOME to another disk"
		return f
	}
	need := int64(firstRunDisk)
	if parts, err := os.ReadDir(home.Guest()); err == nil && len(parts) > 0 {
		need = nextRunDisk
	}
	f.Detail = fmt.Sprintf("%s free in %s", policies.FormatSize(free>>20<<20), home.Dir())
	f.OK, f.Required = free >= lowDisk, free < need
	if f.Required {
		f.Detail += ", and msb needs " + policies.FormatSize(need)
	}
	if !f.OK {
		f.Remedy = "free some space, or set MSB_HOME to a larger disk"
	}
	return f
}

func guestParts() finding {
	digest, err := assets.AgentRoot().Digest()
	if err != nil {
		return finding{Name: "guest parts", Detail: err.Error(), Remedy: "make build", Required: true}
	}
	return finding{Name: "guest parts", OK: true, Detail: "agent and built-in image inside msb (" + digest[:12] + ")"}
}

func printDiagnosis(ui *ui, d diagnosis, asJSON bool) error {
	if asJSON {
		return ui.json(d)
	}
	rows := make([][]string, 0, len(d.Findings))
	for _, f := range d.Findings {
		mark, text := "ok", f.Detail
		switch {
		case !f.OK && f.Required:
			mark = "MISSING"
		case !f.OK:
			mark = "no"
		}
		if f.Remedy != "" {
			text += " → " + f.Remedy
		}
		rows = append(rows, []string{mark, f.Name, text})
	}
	if err := ui.table(rows); err != nil {
		return err
	}
	if d.Usable {
		return ui.print("\nmsb runs here with " + d.Why + "\n")
	}
	return ui.print("\nmsb can't run here: " + d.Why + "\n")
}
