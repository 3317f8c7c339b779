package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// The names by which containerd and a node's operator know the shim.
const (
	nodeRuntime  = "io.containerd.msb.v1"
	nodeShim     = "containerd-shim-msb-v1"
	nodeSettings = "/etc/msb/shim.toml"
	nodeFloor    = "/etc/msb/floor.toml"
	nodeHome     = "/var/lib/msb"
)

// oldestContainerd is the first version with what the shim is started by.
var oldestContainerd = [2]int{2, 3}

// criRuntime is a runtime in containerd's configuration.
type criRuntime struct {
	Type        string   `toml:"runtime_type"`
	Path        string   `toml:"runtime_path"`
	Sandboxer   string   `toml:"sandboxer"`
	Annotations []string `toml:"pod_annotations"`
	Options     struct {
		ConfigPath string
	} `toml:"options"`
}

// nodeFindings are what a node of Kubernetes needs beside what every machine does, and the state directory of its pods.
func nodeFindings(ctx context.Context, containerdConfig string) ([]finding, string) {
	found := []finding{containerdVersion(ctx)}
	if !found[0].OK {
		return found, nodeHome
	}
	name, r, f := registered(ctx, containerdConfig)
	found = append(found, f)
	if !f.OK {
		return found, nodeHome
	}
	found = append(found, podsOf(name, r))
	shim, f := shimOf(r)
	found = append(found, f)
	settings := r.Options.ConfigPath
	if settings == "" {
		settings = nodeSettings
	}
	keys, f := settingsOf(ctx, shim, settings)
	return append(found, f, floorOf(keys.Floor)), keys.Home
}

func containerdVersion(ctx context.Context) finding {
	f := finding{Name: "containerd", Required: true, Remedy: fmt.Sprintf("install containerd %d.%d or later", oldestContainerd[0], oldestContainerd[1])}
	out, err := exec.CommandContext(ctx, "containerd", "--version").Output()
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	m := regexp.MustCompile(`\bv?(\d+)\.(\d+)\.\d+`).FindSubmatch(out)
	if m == nil {
		f.Detail = fmt.Sprintf("no version in %q", bytes.TrimSpace(out))
		return f
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	f.Detail = string(m[0])
	if f.OK = slices.Compare([]int{major, minor}, oldestContainerd[:]) >= 0; f.OK {
		f.Remedy = ""
	}
	return f
}

// registered finds the runtime in what containerd reads.
func registered(ctx context.Context, config string) (string, criRuntime, finding) {
	f := finding{Name: "runtime", Required: true, Remedy: "install msb on this node: docs/kubernetes.md"}
	out, err := exec.CommandContext(ctx, "containerd", "-c", config, "config", "dump").Output()
	if err != nil {
		f.Detail = "containerd config dump: " + err.Error()
		return "", criRuntime{}, f
	}
	var dump struct {
		Plugins map[string]struct {
			Containerd struct {
				Runtimes map[string]criRuntime `toml:"runtimes"`
			} `toml:"containerd"`
		} `toml:"plugins"`
	}
	if _, err := toml.Decode(string(out), &dump); err != nil {
		f.Detail = "containerd config dump: " + err.Error()
		return "", criRuntime{}, f
	}
	for name, r := range dump.Plugins["io.containerd.cri.v1.runtime"].Containerd.Runtimes {
		if r.Type == nodeRuntime {
			return name, r, finding{Name: "runtime", OK: true, Required: true, Detail: fmt.Sprintf("runtimes.%s in %s", name, config)}
		}
	}
	f.Detail = fmt.Sprintf("no runtime of the type %s in %s and what it imports", nodeRuntime, config)
	return "", criRuntime{}, f
}

// podsOf says whether pods get what they are promised.
func podsOf(name string, r criRuntime) finding {
	key := "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes." + name
	switch {
	case r.Sandboxer != "" && r.Sandboxer != "podsandbox": // which is containerd's default
		return finding{Name: "pods", Required: true, Detail: fmt.Sprintf("sandboxer is %q", r.Sandboxer), Remedy: "write sandboxer = 'podsandbox' in [" + key + "]"}
	case !slices.Contains(r.Annotations, "msb.dev/*"):
		return finding{Name: "pods", Detail: "annotations of pods, and so their policies, are not passed on", Remedy: "write pod_annotations = ['msb.dev/*'] in [" + key + "]"}
	}
	return finding{Name: "pods", OK: true, Required: true, Detail: "with their own policies (msb.dev/policy)"}
}

func shimOf(r criRuntime) (string, finding) {
	name := r.Path
	if name == "" {
		name = nodeShim
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", finding{Name: "shim", Required: true, Detail: err.Error(), Remedy: "copy it there: docs/kubernetes.md"}
	}
	return path, finding{Name: "shim", OK: true, Required: true, Detail: path}
}

// nodeKeys are those of a node's settings that doctor looks at; the shim checks them all.
type nodeKeys struct {
	Home  string `toml:"home"`
	Floor string `toml:"floor"`
}

func settingsOf(ctx context.Context, shim, path string) (nodeKeys, finding) {
	keys := nodeKeys{Home: nodeHome}
	if path == nodeSettings && !exists(path) {
		return keys, finding{Name: "settings", OK: true, Detail: "the defaults: there is no " + path}
	}
	f := finding{Name: "settings", Required: true, Detail: path}
	_, err := toml.DecodeFile(path, &keys)
	if err != nil {
		f.Detail, f.Remedy = err.Error(), "mend "+path
		return keys, f
	}
	if shim != "" {
		if out, err := exec.CommandContext(ctx, shim, "check-settings", path).CombinedOutput(); err != nil {
			f.Detail, f.Remedy = strings.TrimSpace(string(out)), "mend "+path
			return keys, f
		}
	}
	f.OK = true
	return keys, f
}

func floorOf(path string) finding {
	f := finding{Name: "floor", Required: true, Detail: path}
	if path == "" {
		if path = nodeFloor; !exists(path) {
			return finding{Name: "floor", OK: true, Detail: "none: pods reach nothing, and may not ask for more"}
		}
	}
	p, err := sandbox.LoadPolicy(path)
	if err != nil {
		f.Detail, f.Remedy = err.Error(), "until then no pod starts: mend it"
		return f
	}
	f.OK, f.Detail = true, fmt.Sprintf("%s allows pods %s at most", path, rulesOf(p))
	return f
}

func rulesOf(p *policies.Policy) string {
	if n := len(p.Egress.Allow); n != 1 {
		return fmt.Sprintf("%d rules", n)
	}
	return "1 rule"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
