package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// nodeLab is a directory with programs in the places of containerd and the shim, and an operator's files.
type nodeLab struct {
	*testing.T
	dir string
}

func newNodeLab(t *testing.T) *nodeLab {
	t.Helper()
	l := &nodeLab{t, t.TempDir()}
	l.program("containerd", `[ "$1" = --version ] && echo "containerd github.com/containerd/containerd/v2 v2.4.2 x" || cat "$2"`)
	l.program("shim", `grep -q unknown "$2" && echo "msb: $2: unknown key" >&2 && exit 1; exit 0`)
	l.put("floor.toml", "version = 1\n[[egress.allow]]\nhosts = [\"example.com\"]\n")
	l.put("shim.toml", "home = '"+filepath.Join(l.dir, "home")+"'\nfloor = '"+filepath.Join(l.dir, "floor.toml")+"'\n")
	l.put("config.toml", `version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.vm]
runtime_type = 'io.containerd.msb.v1'
runtime_path = '`+filepath.Join(l.dir, "shim")+`'
sandboxer = 'podsandbox'
pod_annotations = ['msb.dev/*']
options = { ConfigPath = '`+filepath.Join(l.dir, "shim.toml")+`' }
`)
	return l
}

func (l *nodeLab) put(name, text string) {
	l.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		l.Fatal(err)
	}
}

func (l *nodeLab) program(name, text string) {
	l.Helper()
	l.put(name, "#!/bin/sh\n"+text+"\n")
	if err := os.Chmod(filepath.Join(l.dir, name), 0o700); err != nil {
		l.Fatal(err)
	}
}

func (l *nodeLab) replace(name, old, with string) {
	l.Helper()
	b, err := os.ReadFile(filepath.Join(l.dir, name))
	if err != nil || !strings.Contains(string(b), old) {
		l.Fatalf("%v, and %q in %q", err, old, b)
	}
	l.put(name, strings.ReplaceAll(string(b), old, with))
}

func (l *nodeLab) doctor() diagnosis {
	l.Helper()
	env := []string{"PATH=" + l.dir + ":" + os.Getenv("PATH"), sandbox.EnvHome + "="}
	return finish(l.T, command(l.T, env, "doctor", "--json", "--containerd-config", filepath.Join(l.dir, "config.toml"))).diagnosis(l.T)
}

// TestDoctorLooksAtNodes: what is right, and each thing that may be missing or wrong, with its remedy.
func TestDoctorLooksAtNodes(t *testing.T) {
	t.Parallel()
	l := newNodeLab(t)
	d := l.doctor()
	for _, name := range []string{"containerd", "runtime", "pods", "shim", "settings", "floor", "home"} {
		if f := d.find(t, name); !f.OK {
			t.Errorf("%+v", f)
		}
	}
	for _, f := range d.Findings {
		if f.Name == "cgroup" {
			t.Errorf("a pod's machine is in its pod's control group, and not where doctor runs: %+v", f)
		}
	}
	l.replace("config.toml", "sandboxer = 'podsandbox'\n", "")
	if f := l.doctor().find(t, "pods"); !f.OK {
		t.Errorf("containerd's default sandboxer: %+v", f)
	}
	if got := d.find(t, "home").Detail; got != filepath.Join(l.dir, "home") {
		t.Errorf("it looked at the state directory %s", got)
	}
	if got := d.find(t, "floor").Detail; !strings.Contains(got, "1 rule at most") {
		t.Errorf("the floor: %s", got)
	}
	for _, c := range []struct {
		name, line string
		change     func(*nodeLab)
		want       string
		warning    bool
	}{
		{name: "old containerd", line: "containerd", change: func(l *nodeLab) { l.replace("containerd", "v2.4.2", "v1.7.30") }, want: "2.3 or later"},
		{name: "no runtime", line: "runtime", change: func(l *nodeLab) { l.replace("config.toml", "io.containerd.msb.v1", "io.containerd.kata.v2") }, want: "no runtime"},
		{name: "another sandboxer", line: "pods", change: func(l *nodeLab) { l.replace("config.toml", "'podsandbox'", "'shim'") }, want: "sandboxer = 'podsandbox'"},
		{name: "no annotations", line: "pods", change: func(l *nodeLab) { l.replace("config.toml", "'msb.dev/*'", "") }, want: "pod_annotations", warning: true},
		{name: "no shim", line: "shim", change: func(l *nodeLab) { l.replace("config.toml", l.dir+"/shim'", l.dir+"/none'") }, want: "none"},
		{name: "unknown key", line: "settings", change: func(l *nodeLab) { l.put("shim.toml", "unknown = 1\n") }, want: "unknown key"},
		{name: "broken settings", line: "settings", change: func(l *nodeLab) { l.put("shim.toml", "home = \n") }, want: "line 1"},
		{name: "broken floor", line: "floor", change: func(l *nodeLab) { l.replace("floor.toml", "version = 1", "version = 9") }, want: "floor.toml:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newNodeLab(t)
			c.change(l)
			d := l.doctor()
			f := d.find(t, c.line)
			if f.OK || f.Required == c.warning || !strings.Contains(f.Detail+f.Remedy, c.want) || f.Remedy == "" {
				t.Errorf("%+v; want an error with %q and a remedy", f, c.want)
			}
			if d.Usable != c.warning {
				t.Errorf("usable: %v, %s", d.Usable, d.Why)
			}
		})
	}
}
