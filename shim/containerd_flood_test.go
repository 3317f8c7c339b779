//go:build containerdtest

package shim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestContainerdFlood: a pod floods its shim with hundreds of execs at once, of which the bound's number runs and the others are refused
// by name, and with a line of 40 MB to its log. Both take little of the shim's memory, and the container goes on. The twin is a shim
// without the bound, which collects lines: every exec runs, and the line is in its memory.
func TestContainerdFlood(t *testing.T) {
	t.Parallel()
	n, r := criNode(t)
	n.addRuntime(t, "unbounded", withoutBounds)
	for _, handler := range []string{"msb", "unbounded"} {
		t.Run(handler, func(t *testing.T) { flood(t, n, r, handler) })
	}
}

// flood is the attack. Its bounds hold for each runtime but the unbounded one.
func flood(t *testing.T, n *node, r cri.RuntimeServiceClient, handler string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	own := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
	pod := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: handler, Namespace: "shop", Uid: handler}, Hostname: "web", LogDirectory: n.file("logs-" + handler),
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: own}, Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 256 << 20},
		},
	}
	sb, err := r.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: handler})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_, err := r.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb.PodSandboxId})
		if _, err2 := r.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sb.PodSandboxId}); err != nil || err2 != nil {
			t.Error(err, err2)
		}
		n.isClean(t)
	}()
	c, err := r.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, SandboxConfig: pod, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: testImage}, LogPath: "c.log", Command: []string{"/bin/sleep", "100000"},
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: own}},
	}})
	if err == nil {
		_, err = r.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId})
	}
	if err != nil {
		t.Fatal(err)
	}
	exec := func(args ...string) (*cri.ExecSyncResponse, error) {
		return r.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: c.ContainerId, Timeout: int64(patience.Seconds()), Cmd: args})
	}
	const most = 64 << 20
	bounded, shim := handler != "unbounded", n.shimPID(t, sb.PodSandboxId)
	before := peak(t, shim)
	var all sync.WaitGroup
	var mu sync.Mutex
	served, refused := 0, 0
	for range 200 {
		all.Go(func() {
			e, err := exec("/bin/sleep", "5")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && e.ExitCode == 0:
				served++
			case err != nil && strings.Contains(err.Error(), "processes of Exec are there already"):
				refused++
			default:
				t.Errorf("an exec of many: %v, %v", e, err)
			}
		})
	}
	all.Wait()
	if served == 0 || (refused > 0) != bounded {
		t.Errorf("%d execs were served and %d refused", served, refused)
	}
	const line = 40_000_000
	if e, err := exec("/bin/sh", "-c", fmt.Sprintf("{ head -c %d /dev/zero | tr '\\0' x; echo; } > /proc/1/fd/1; echo after", line)); err != nil || string(e.Stdout) != "after\n" {
		t.Errorf("after %d execs: %v, %v", served, e, err)
	}
	log := filepath.Join(pod.LogDirectory, "c.log")
	waitFor(t, "the line to be logged", func() bool { info, err := os.Stat(log); return err == nil && info.Size() > line })
	after := peak(t, shim)
	if (after-before <= most) != bounded {
		t.Errorf("the shim had %d MiB at most, and %d before", after>>20, before>>20)
	}
	t.Logf("%d execs served, %d refused; the shim's memory: %d MiB, then %d", served, refused, before>>20, after>>20)
}

// change is a line of the tree, and what stands there in another build.
type change struct{ file, from, to string }

// withoutBounds are the lines of the bounds that the flood meets, and what stands there in the twin.
var withoutBounds = []change{
	{"agentd/agentpb/limits.go", "MaxContainerExecs  = 64 ", "MaxContainerExecs  = 1000 "},
	{"shim/stdio.go", "type output struct{ *os.File }", "type output struct {\n\t*os.File\n\tline []byte\n}"},
	{"shim/stdio.go", "&output{f}", "&output{File: f}"},
	{"shim/stdio.go", "\tn, err := o.File.Write(b)\n", "\tif o.line = append(o.line, b...); b[len(b)-1] != '\\n' {\n\t\treturn len(b), nil\n\t}\n\t_, err := o.File.Write(o.line)\n\tn := len(b)\n\to.line = nil\n"},
}

// addRuntime restarts containerd with one more runtime, whose shim is built with the changes.
func (n *node) addRuntime(t *testing.T, runtime string, changes []change) {
	t.Helper()
	n.stop(t)
	n.buildWith(t, changes)
	b, err := os.ReadFile(n.file("config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "config.toml", string(b)+strings.NewReplacer("NAME", runtime, "SHIM", n.file("bin/containerd-shim-msb-v1"), "SETTINGS", n.file("shim.toml")).Replace(`
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.NAME]
runtime_type = 'io.containerd.msb.v1'
runtime_path = 'SHIM'
sandboxer = 'podsandbox'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.NAME.options]
ConfigPath = 'SETTINGS'
`))
	n.start(t)
}

// buildWith builds bin/containerd-shim-msb-v1 with changes, the agent in it too. The tree's files stay as they are.
func (n *node) buildWith(t *testing.T, changes []change) {
	t.Helper()
	tree, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bin", "parts", "sources"} {
		if err := os.Mkdir(n.file(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	replace := map[string]string{}
	for _, w := range changes {
		from, to := filepath.Join(tree, w.file), "sources/"+filepath.Base(w.file)
		source := from
		if replace[from] != "" {
			source = replace[from]
		}
		b, err := os.ReadFile(source)
		if err != nil || !strings.Contains(string(b), w.from) {
			t.Fatalf("%s has no %q: %v", source, w.from, err)
		}
		n.write(t, to, strings.ReplaceAll(string(b), w.from, w.to))
		replace[from] = n.file(to)
	}
	run := func(dir, name string, args ...string) {
		t.Helper()
		b, err := json.Marshal(map[string]any{"Replace": replace})
		if err != nil {
			t.Fatal(err)
		}
		n.write(t, "overlay.json", string(b))
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-overlay="+n.file("overlay.json"), "OUT="+n.file("parts"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	run(tree, "internal/guest/build.sh")
	parts, err := os.ReadDir(n.file("parts"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		replace[filepath.Join(tree, "internal/guest/assets/bin", p.Name())] = n.file("parts/" + p.Name())
	}
	run(tree, "go", "-C", "shim", "build", "-trimpath", "-ldflags", "-s -w", "-o", n.file("bin")+"/", "./cmd/containerd-shim-msb-v1")
	if err := os.Symlink(filepath.Join(os.Getenv(envShim), "../lib"), n.file("lib")); err != nil { // msb's libraries
		t.Fatal(err)
	}
}

// peak is the most memory that a process had, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kB int64
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kB); err == nil {
			return kB << 10
		}
	}
	t.Fatalf("no VmHWM in %s", b)
	return 0
}
