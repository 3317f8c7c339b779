package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// doctorIn runs `msb doctor` behind a line of shell, in namespaces of its own.
func doctorIn(t *testing.T, attr *syscall.SysProcAttr, shell string, args ...string) result {
	t.Helper()
	msb := command(t, nil, append([]string{"doctor"}, args...)...)
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", shell + ` && exec "$0" "$@"`}, msb.Args...)...)
	cmd.Env, cmd.SysProcAttr = msb.Env, attr
	return finish(t, cmd)
}

// alone is a user namespace in which this user is root, with more namespaces.
func alone(more uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | more,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}

func (r result) diagnosis(t *testing.T) diagnosis {
	t.Helper()
	var d diagnosis
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatalf("%v in %q, %s", err, r.out, r.err)
	}
	return d
}

func (d diagnosis) find(t *testing.T, name string) finding {
	t.Helper()
	i := slices.IndexFunc(d.Findings, func(f finding) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("there is no line %s in %+v", name, d.Findings)
	}
	return d.Findings[i]
}

// TestI12_DoctorReportsFullDisks puts the state directory on small disks.
func TestI12_DoctorReportsFullDisks(t *testing.T) {
	t.Parallel()
	mount := func(size, then string) string {
		dir := t.TempDir()
		return "mount -t tmpfs -o mode=0700,size=" + size + " msb " + dir + " && export " + sandbox.EnvHome + "=" + dir + then
	}
	const parts = ` && mkdir -m 700 "$MSB_HOME/guest" && : > "$MSB_HOME/guest/agentd-0123456789abcdef.ext4"`
	for _, tt := range []struct {
		name, size, then string
		full             bool
		detail           string
	}{
		{"first run", "40m", "", true, "and msb needs 64M"},
		{"first run has room", "101m", "", false, "100M free"},
		{"later run", "41m", parts, false, "40M free"},
		{"later run on a full disk", "8m", parts, true, "and msb needs 16M"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			shell := mount(tt.size, tt.then)
			got := doctorIn(t, alone(syscall.CLONE_NEWNS), shell, "--json")
			d := got.diagnosis(t)
			disk := d.find(t, "disk")
			if disk.OK || disk.Required != tt.full || !strings.Contains(disk.Detail, tt.detail) || disk.Remedy == "" {
				t.Errorf("disk: %+v; want required %v, %q and a remedy", disk, tt.full, tt.detail)
			}
			if tt.full && (d.Usable || got.code != exitDoctor) {
				t.Errorf("usable %v, exit %d; nothing can run without room", d.Usable, got.code)
			}
			human := doctorIn(t, alone(syscall.CLONE_NEWNS), shell)
			if missing := strings.Contains(human.out, "MISSING  disk"); missing != tt.full {
				t.Errorf("for people: %s", human.out)
			}
			if tt.full && !strings.Contains(human.out, "msb can't run here: ") {
				t.Errorf("for people it says that msb runs: %s", human.out)
			}
		})
	}
}

// TestDoctorTriesTheConfinement: what is said is what happens to a VMM's process here, with user namespaces
// and where they are forbidden.
func TestDoctorTriesTheConfinement(t *testing.T) {
	t.Parallel()
	forbid := "echo 0 > /proc/sys/user/max_user_namespaces"
	for _, tt := range []struct {
		name  string
		got   result
		says  string
		whole bool
	}{
		{"with namespaces", msb(t, nil, "doctor", "--json"), "own namespaces", true},
		{"without", doctorIn(t, alone(0), forbid, "--json"), "no namespaces (", false},
	} {
		d := tt.got.diagnosis(t)
		f, landlocked := d.find(t, "confinement"), d.find(t, "landlock")
		if !strings.Contains(f.Detail, tt.says) || !strings.HasSuffix(f.Detail, "seccomp") || f.Required {
			t.Errorf("%s: %+v, want %q and seccomp, not required", tt.name, f, tt.says)
		}
		if f.OK != (tt.whole && landlocked.OK) || f.OK == (f.Remedy != "") {
			t.Errorf("%s: %+v beside %+v; want a remedy exactly where something is missing", tt.name, f, landlocked)
		}
		if landlocked.OK && !strings.Contains(f.Detail, "Landlock ("+landlocked.Detail+")") {
			t.Errorf("%s: %q does not name Landlock's version %s", tt.name, f.Detail, landlocked.Detail)
		}
		if g := d.find(t, "cgroup"); g.Required || g.OK == (g.Remedy != "") || g.OK != strings.HasPrefix(g.Detail, "bounds") {
			t.Errorf("%s: %+v; want it not required, with a remedy where there is none", tt.name, g)
		}
		if !tt.whole && !strings.Contains(f.Remedy, "user.max_user_namespaces") {
			t.Errorf("%s: the remedy is %q", tt.name, f.Remedy)
		}
	}
}
