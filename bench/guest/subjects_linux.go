package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/kernel"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

type measure = func(ctx context.Context, n int) (timings, error)

// guestDir is where msb's guest sees this program and the authority.
const guestDir = "/bench"

// msbGuest is a sandbox that all rounds use.
type msbGuest struct{ *sandbox.Sandbox }

func startMsb(ctx context.Context, program, dir string) (*msbGuest, error) {
	text := fmt.Sprintf(`version = 1
[dns]
servers = ["udp://%s"]
[[tls.extra_ca]]
file  = %q
hosts = ["*.bench.example"]
[[egress.allow]]
hosts = ["*.bench.example", "*.names.bench.example"]
ports = [443]
[secrets.API_TOKEN]
from  = "env:BENCH_TOKEN"
hosts = [%q]
in    = ["header:Authorization"]
`, worldAddress, filepath.Join(dir, authority), apiHost)
	file := filepath.Join(dir, "policy.toml")
	share := filepath.Join(dir, "share")
	err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Setenv("BENCH_TOKEN", secretValue), os.Mkdir(share, 0o755),
		copySelf(filepath.Join(share, "guest")))
	if err != nil {
		return nil, err
	}
	policy, err := policies.Load(file)
	if err != nil {
		return nil, err
	}
	sb, err := sandbox.Start(ctx, sandbox.Config{
		Home: filepath.Join(dir, "home"), Program: program, Backend: "qemu", Policy: policy, Trust: true,
		Directories: []sandbox.Directory{{Host: share, Guest: guestDir}},
	})
	return &msbGuest{sb}, err
}

func (g *msbGuest) measure(ctx context.Context, n int) (timings, error) {
	out, err := g.run(ctx, fmt.Sprintf("exec %s/guest %s none $(sed -n 's/^nameserver //p' /etc/resolv.conf | head -n 1) %d", guestDir, insideVerb, n))
	return parse(out, err)
}

// clock is what the guest's kernel was told of its clock. Without it, it has one of 4 ms.
func (g *msbGuest) clock(ctx context.Context) (string, error) {
	out, err := g.run(ctx, "cat /proc/cmdline")
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "tsc_early_khz=") {
			return word, err
		}
	}
	return "tsc=reliable", err
}

func (g *msbGuest) run(ctx context.Context, script string) ([]byte, error) {
	var out, errText bytes.Buffer
	st, err := g.Exec(ctx, sandbox.ExecOptions{Argv: []string{"sh", "-c", script}, Stdout: &out, Stderr: &errText})
	if err == nil && st.Code != 0 {
		err = fmt.Errorf("exit code %d: %s", st.Code, errText.Bytes())
	}
	return out.Bytes(), err
}

func (g *msbGuest) end(ctx context.Context) error { return errors.Join(g.Stop(ctx), g.Close()) }

// onHost measures without a guest.
func onHost(dir string) measure {
	return func(ctx context.Context, n int) (timings, error) {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", insideVerb, filepath.Join(dir, authority), worldAddress, strconv.Itoa(n))
		cmd.Env, cmd.Stderr = append(os.Environ(), "API_TOKEN="+secretValue), os.Stderr
		out, err := cmd.Output()
		return parse(out, err)
	}
}

func parse(out []byte, err error) (timings, error) {
	var got timings
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	return got, err
}

func copySelf(to string) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(to, self, 0o755)
}

// answerMark begins the line of the guest's console that has the figures.
const answerMark = "FIGURES "

// What QEMU's user network gives its guest by default.
const (
	userAddress = "10.0.2.15/24"
	userGateway = "10.0.2.2"
	userNames   = "10.0.2.3"
)

// newUserNetwork makes a disk whose first process is this program, and measures in a guest that boots from it, in msb's own
// kernel on msb's own kind of machine.
func newUserNetwork(program, dir, clock string) (measure, error) {
	library, err := vm.FindLibrary(vm.Libkrunfw, vm.ErrLibkrunfwMissing)
	if err != nil {
		return nil, err
	}
	image, err := kernel.Ensure(filepath.Join(dir, "kernel"), library)
	if err != nil {
		return nil, err
	}
	tree, disk := filepath.Join(dir, "root"), filepath.Join(dir, "root.ext4")
	for _, d := range []string{"dev", "proc"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			return nil, err
		}
	}
	pem, err := os.ReadFile(filepath.Join(dir, authority))
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(tree, authority), pem, 0o644), copySelf(filepath.Join(tree, "init")))
	}
	if err != nil {
		return nil, err
	}
	if out, err := exec.Command("mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-d", tree, disk, "128M").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mke2fs (package e2fsprogs): %w: %s", err, out)
	}
	return func(ctx context.Context, n int) (timings, error) {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		spec := vm.Spec{Cmdline: []string{clock, "bench=" + strconv.Itoa(n)}}
		cmd := exec.CommandContext(ctx, program,
			"-M", "microvm,acpi=off,isa-serial=off,auto-kernel-cmdline=on", "-accel", "tcg,thread=multi", "-cpu", "max,svm=off,vmx=off,erms=off",
			"-smp", "1", "-m", "512M", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-kernel", image, "-append", spec.KernelCmdline(),
			"-device", "virtio-serial-device", "-chardev", "stdio,id=console", "-device", "virtconsole,chardev=console",
			"-drive", "id=root,if=none,format=raw,readonly=on,file="+disk, "-device", "virtio-blk-device,drive=root",
			"-netdev", "user,id=n", "-device", "virtio-net-device,netdev=n")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		_, line, found := strings.Cut(string(out), answerMark)
		if !found {
			return nil, fmt.Errorf("the guest said %.2000q", out)
		}
		line, _, _ = strings.Cut(line, "\n")
		return parse([]byte(line), nil)
	}, nil
}

// first is the first process of the guest on the user network. It doesn't return.
func first() {
	err := unix.Mount("devtmpfs", "/dev", "devtmpfs", 0, "")
	if errors.Is(err, unix.EBUSY) {
		err = nil
	}
	var console io.Writer = os.Stdout
	if f, openErr := os.OpenFile("/dev/hvc0", os.O_WRONLY, 0); openErr == nil {
		console = f
	}
	var line []byte
	if err == nil {
		line, err = asFirst()
	}
	if err != nil {
		_, _ = fmt.Fprintln(console, "the guest:", err)
	} else {
		_, _ = fmt.Fprintf(console, "%s%s\n", answerMark, line)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

func asFirst() ([]byte, error) {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return nil, err
	}
	text, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	var n int
	for word := range strings.FieldsSeq(string(text)) {
		if number, ok := strings.CutPrefix(word, "bench="); ok {
			n, err = strconv.Atoi(number)
		}
	}
	err = errors.Join(err, setUp("lo", ""), setUp("eth0", userAddress), netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(userGateway)}),
		os.Setenv("API_TOKEN", secretValue))
	if err != nil {
		return nil, err
	}
	got, err := timeAll("/"+authority, userNames, n)
	if err != nil {
		return nil, err
	}
	return json.Marshal(got)
}
