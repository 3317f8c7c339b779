package shim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestGroupNames: paths and systemd's notation; none leads out of the hierarchy, or is its root.
func TestGroupNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]controlGroup{
		"":                            "",
		"/kubepods/burstable/podA/c1": "/kubepods/burstable/podA/c1",
		"default/c1":                  "/default/c1",
		"../../c1":                    "/c1",
		"kubepods-burstable-podA_b.slice:cri-containerd:c1": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podA_b.slice/cri-containerd-c1.scope",
		"-.slice:cri-containerd:c1":                         "/cri-containerd-c1.scope",
		"/":                                                 "refused",
		"/..":                                               "refused",
		"a:b:c":                                             "refused",
		"x.slice:../..:c":                                   "refused",
		"x.slice:b":                                         "refused",
	} {
		got, err := groupOf(&specs.Spec{Linux: &specs.Linux{CgroupsPath: name}})
		if err != nil {
			got = "refused"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// The test program enters a group instead of running tests if this names one.
const envEnter = "MSB_TEST_ENTER_GROUP"

// TestMachinesAreInTheirGroup: what is started within the group is in it, and afterwards nothing is left of it.
func TestMachinesAreInTheirGroup(t *testing.T) {
	if name := os.Getenv(envEnter); name != "" {
		enterGroup(t, controlGroup(name))
		return
	}
	if os.Getuid() != 0 {
		t.Skip("control groups need root")
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMachinesAreInTheirGroup$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=/msb-test-%d", envEnter, os.Getpid()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func enterGroup(t *testing.T, g controlGroup) {
	t.Helper()
	own := func() string {
		b, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := own()
	leave, err := g.enter()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", child.Process.Pid))
	if err != nil || !strings.Contains(string(b), string(g)+"\n") {
		t.Errorf("a program that it starts is in %s, %v", b, err)
	}
	_ = child.Process.Signal(syscall.SIGKILL) // and gone some time later
	_ = child.Wait()
	if err := leave(); err != nil {
		t.Error(err)
	}
	if got := own(); got != before {
		t.Errorf("afterwards it is in %s, was in %s", got, before)
	}
	if left, err := filepath.Glob("/sys/fs/cgroup/*" + string(g)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat("/sys/fs/cgroup" + string(g)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
	if err := g.remove(); err != nil {
		t.Errorf("removing what isn't there: %v", err)
	}
}
