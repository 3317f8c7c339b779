//go:build containerdtest

package shim_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/shim"
)

// What make test-containerd sets: the directories of containerd's programs and of the shim.
const (
	envContainerd = "MSB_TEST_CONTAINERD"
	envShim       = "MSB_TEST_SHIM"
)

// patience guards against hangs; guests run under emulation on a busy machine.
const patience = 2 * time.Minute

// home is msb's state directory for all nodes of a run: the guest's kernel and the saved machine are made once.
var home string

func TestMain(m *testing.M) {
	var err error
	if home, err = os.MkdirTemp("", "msbhome"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(home); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// testImage does nothing by itself, as the pause image of pods that runc runs.
const testImage = "msb.test/busybox:latest"

// node is a private containerd.
type node struct {
	dir  string // root, state, sockets and all else
	ctr  string
	path string // PATH of containerd, which finds its shims there

	netns  string // the network namespace of containerd; "" for this one
	daemon *exec.Cmd
	log    *os.File
}

// startNode starts a containerd with an image.
func startNode(t *testing.T) *node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("containerd needs root")
	}
	parts, shimDir := os.Getenv(envContainerd), os.Getenv(envShim)
	if parts == "" || shimDir == "" {
		t.Fatalf("%s or %s is not set: run make test-containerd", envContainerd, envShim)
	}
	dir, err := os.MkdirTemp("", "msb") // short: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	n := &node{dir: dir, ctr: filepath.Join(parts, "ctr"), path: strings.Join([]string{shimDir, parts, os.Getenv("PATH")}, ":")}
	t.Cleanup(func() { n.remove(t) })
	n.write(t, "config.toml", fmt.Sprintf(`version = 4
root = '%[1]s/root'
state = '%[1]s/state'
imports = []
disabled_plugins = ['io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri', 'io.containerd.nri.v1.nri', 'io.containerd.internal.v1.opt', 'io.containerd.internal.v1.tracing', 'io.containerd.tracing.processor.v1.otlp']
[debug]
level = 'warn'
[plugins.'io.containerd.server.v1.grpc']
address = '%[1]s/c.sock'
[plugins.'io.containerd.server.v1.ttrpc']
address = '%[1]s/t.sock'
[plugins.'io.containerd.shim.v1.manager']
socket_dir = '%[1]s/s'
`, dir))
	n.write(t, "shim.toml", fmt.Sprintf("home = %q\nrecords = %q\nfloor = %q\nmemory = \"256M\"\ndisk = \"1G\"\n", home, n.file("records"), n.file("floor.toml")))
	n.write(t, "floor.toml", "version = 1\n")
	n.start(t)
	n.importImage(t)
	return n
}

func (n *node) file(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(n.file(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts the daemon and waits until it serves.
func (n *node) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(n.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := inside(n.netns, filepath.Join(os.Getenv(envContainerd), "containerd"), "--config", n.file("config.toml"))
	cmd.Env = append(os.Environ(), "PATH="+n.path)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.daemon, n.log = cmd, log
	waitFor(t, "containerd to serve", func() bool { return n.command("version").Run() == nil })
}

// inside is a command in a network namespace, which has the process's number from its start.
func inside(netns string, args ...string) *exec.Cmd {
	if netns == "" {
		return exec.Command(args[0], args[1:]...)
	}
	return exec.Command("nsenter", append([]string{"--net=/run/netns/" + netns, "--"}, args...)...)
}

// stop ends the daemon, as a restart of its service does: shims live on.
func (n *node) stop(t *testing.T) {
	t.Helper()
	if n.daemon == nil {
		return
	}
	_ = n.daemon.Process.Signal(syscall.SIGTERM)
	_ = n.daemon.Wait()
	n.daemon = nil
	_ = n.log.Close()
}

// remove ends everything and takes care that nothing is left, mounts included.
func (n *node) remove(t *testing.T) {
	for _, id := range strings.Fields(n.try("tasks", "ls", "-q").out) {
		n.try("tasks", "delete", "-f", id)
	}
	n.stop(t)
	if t.Failed() {
		if b, err := os.ReadFile(n.file("log")); err == nil {
			t.Logf("containerd's log ends with:\n%s", b[max(0, len(b)-8<<10):])
		}
	}
	for _, m := range n.mounts(t) {
		t.Errorf("left mounted: %s", m)
		_ = unix.Unmount(m, unix.MNT_DETACH)
	}
	for _, p := range n.processes() {
		t.Errorf("left running: %d %s", p.pid, p.line)
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	if err := os.RemoveAll(n.dir); err != nil {
		t.Error(err)
	}
}

// mounts are those below the node's directory, the deepest first.
func (n *node) mounts(t *testing.T) (all []string) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, n.dir+"/") {
			all = append(all, at)
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

type process struct {
	pid  int
	line string
}

// processes are those that have the node's directory, or msb's, in their arguments, environment or working directory, the daemon and
// this very process aside.
func (n *node) processes() (all []process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), "%d", &pid); err != nil || pid == os.Getpid() || n.daemon != nil && pid == n.daemon.Process.Pid {
			continue
		}
		line, _ := os.ReadFile(dir + "/cmdline")
		env, _ := os.ReadFile(dir + "/environ")
		cwd, _ := os.Readlink(dir + "/cwd")
		if of := string(line) + "\x00" + string(env) + "\x00" + cwd; strings.Contains(of, n.dir) || strings.Contains(of, home) {
			all = append(all, process{pid, strings.ReplaceAll(string(line), "\x00", " ")})
		}
	}
	return all
}

// result is how a ctr ended.
type result struct {
	out, err string
	code     int
}

func (n *node) command(args ...string) *exec.Cmd {
	cmd := exec.Command(n.ctr, append([]string{"--address", n.file("c.sock")}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+n.path)
	return cmd
}

// try runs ctr to its end.
func (n *node) try(args ...string) result { return n.feed("", args...) }

func (n *node) feed(stdin string, args ...string) result {
	cmd := n.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := cmd.Start()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		stop()
	}
	r := result{out: out.String(), err: errs.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
	case err != nil:
		r.code, r.err = -1, r.err+err.Error()
	}
	return r
}

// must runs a ctr that succeeds.
func (n *node) must(t *testing.T, args ...string) string {
	t.Helper()
	r := n.try(args...)
	if r.code != 0 {
		t.Fatalf("ctr %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// run is ctr run with a runtime: "msb", or "runc" beside it.
func (n *node) run(runtime string, args ...string) []string {
	all := []string{"run"}
	if runtime == "msb" {
		all = append(all, "--runtime", shim.Name, "--runtime-config-path", n.file("shim.toml"))
	}
	return append(all, args...)
}

// importImage makes an image of busybox and imports it from an OCI archive.
func (n *node) importImage(t *testing.T) {
	t.Helper()
	layer, err := busyboxLayer()
	if err == nil {
		err = writeImage(n.file("image"), n.file("image.tar"), testImage, v1.Config{Cmd: []string{"/bin/sleep", "100000"}, Env: []string{"PATH=/bin", "OF_THE_IMAGE=yes"}}, layer)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.must(t, "images", "import", "--local", n.file("image.tar"))
}

// makeImage makes an image of layers, which are tar archives.
func makeImage(config v1.Config, layers ...[]byte) (v1.Image, error) {
	img := empty.Image
	for _, layer := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
		if err == nil {
			img, err = mutate.AppendLayers(img, l)
		}
		if err != nil {
			return nil, err
		}
	}
	return mutate.ConfigFile(img, &v1.ConfigFile{Architecture: "amd64", OS: "linux", RootFS: v1.RootFS{Type: "layers", DiffIDs: diffIDs(img)}, Config: config})
}

// writeImage writes an OCI archive of an image, by way of a directory.
func writeImage(dir, archive, ref string, config v1.Config, layers ...[]byte) error {
	img, err := makeImage(config, layers...)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{"io.containerd.image.name": tag.String(), "org.opencontainers.image.ref.name": tag.TagStr()}
	if err := at.AppendImage(img, layout.WithAnnotations(names), layout.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"})); err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	return errors.Join(w.AddFS(os.DirFS(dir)), w.Close(), f.Close())
}

func diffIDs(img v1.Image) []v1.Hash {
	c, err := img.ConfigFile()
	if err != nil {
		return nil
	}
	return c.RootFS.DiffIDs
}

// busyboxLayer is Debian's busybox-static with its applets, and what programs look for in /etc.
func busyboxLayer() ([]byte, error) {
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		return nil, err
	}
	ask, err := buildAsk()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	file := func(h tar.Header, text string) {
		h.Size = int64(len(text))
		err = errors.Join(err, w.WriteHeader(&h))
		_, e := io.WriteString(w, text)
		err = errors.Join(err, e)
	}
	for _, d := range []tar.Header{{Name: "bin/", Mode: 0o755}, {Name: "etc/", Mode: 0o755}, {Name: "tmp/", Mode: 0o1777}, {Name: "owned/", Mode: 0o700, Uid: 1000, Gid: 1000}} {
		d.Typeflag = tar.TypeDir
		file(d, "")
	}
	file(tar.Header{Name: "bin/busybox", Mode: 0o755}, string(program))
	file(tar.Header{Name: "bin/ask", Mode: 0o755}, string(ask))
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			file(tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, "")
		}
	}
	file(tar.Header{Name: "etc/passwd", Mode: 0o644}, "root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
	file(tar.Header{Name: "etc/group", Mode: 0o644}, "root:x:0:\nuser:x:1000:\nextra:x:2000:user\n")
	return b.Bytes(), errors.Join(err, w.Close())
}

// buildAsk builds the program of testdata/ask.
func buildAsk() ([]byte, error) {
	dir, err := os.MkdirTemp("", "ask") // of this call: tests that run beside each other build it too
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "ask")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./testdata/ask")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(path)
}

// waitFor waits until ok, which looks at another process.
func waitFor(t *testing.T, what string, ok func() bool, instead ...func() any) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			for _, f := range instead {
				t.Logf("got %q", f())
			}
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}
