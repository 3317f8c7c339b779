//go:build vmtest

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox"
)

// nobody is a user without rights or groups, which every Linux has by number.
const nobody = 65534

// user is an account of its own: a program that it may run and a home.
type user struct {
	program, home string
	env           []string
}

// ordinaryUser makes what nobody needs to run msb. To become nobody needs root.
func ordinaryUser(t *testing.T) user {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test becomes another user: run it as root, as CI does")
	}
	dir, err := os.MkdirTemp("", "msb-user-") // t.TempDir is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	u := user{program: filepath.Join(dir, "msb"), home: filepath.Join(dir, "home")}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyReadable(t, self, u.program)
	lib := filepath.Join(dir, "lib")
	for _, step := range []error{os.Chmod(dir, 0o755), os.Mkdir(lib, 0o755), os.Mkdir(u.home, 0o700), os.Chown(u.home, nobody, nobody)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	for soname, missing := range map[string]error{vm.Libkrun: vm.ErrLibkrunMissing, vm.Libkrunfw: vm.ErrLibkrunfwMissing} {
		path, err := vm.FindLibrary(soname, missing)
		if err != nil {
			t.Fatal(err)
		}
		copyReadable(t, path, filepath.Join(lib, soname))
	}
	u.env = []string{"HOME=" + u.home, sandbox.EnvHome + "=", vm.LibDirEnv + "=" + lib, "TMPDIR=/tmp"}
	return u
}

func copyReadable(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
}

// command is msb as that user, in that user's home, under no state directory but the default one.
func (u user) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, u.env, args...)
	cmd.Path, cmd.Args[0], cmd.Dir = u.program, u.program, u.home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// inNamespace runs a shell script in a mount namespace of its own; its arguments are a command line.
func inNamespace(t *testing.T, env []string, script string, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, env, append([]string{"--mount", "--propagation", "private", "sh", "-c", script, "sh"}, argv...)...)
	path, err := exec.LookPath("unshare") // package util-linux
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args[0] = path, path
	return cmd
}

func TestVMRunAsAnOrdinaryUser(t *testing.T) {
	u := ordinaryUser(t)
	policy, err := os.ReadFile("../../policy.toml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(u.program), "policy.toml")
	if err := os.WriteFile(file, policy, 0o644); err != nil {
		t.Fatal(err)
	}
	got := vmCommand(t, u.command(t, "run", "--vm", "qemu", "--trust", "--policy", file))
	if got.code != 0 || strings.Contains(got.out, "unexpected") {
		t.Errorf("the tour: exit %d\n%s%s", got.code, got.out, got.err)
	}
	// Nothing that another user could read, and nothing that is not the user's own.
	state := filepath.Join(u.home, ".msb")
	nothingLeft(t, state)
	err = filepath.WalkDir(state, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != nobody || d.IsDir() && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %s, owner %s", path, info.Mode(), strconv.Itoa(int(st.Uid)))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestI12_VMNoPermissionOnKVM has a /dev/kvm that an ordinary user can't open, and is that user; both
// need root.
func TestI12_VMNoPermissionOnKVM(t *testing.T) {
	u := ordinaryUser(t)
	// A /dev of the test's own, because a machine without KVM has no node to put another in place of.
	const script = `set -e
		new=$(mktemp -d); mount -t tmpfs none "$new"
		for f in null zero full random urandom tty; do touch "$new/$f"; mount --bind "/dev/$f" "$new/$f"; done
		ln -s /proc/self/fd "$new/fd"; mkdir -m 1777 "$new/shm"
		mknod -m 600 "$new/kvm" c 10 232
		mount --move "$new" /dev; rmdir "$new"
		exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"`
	for _, args := range [][]string{{"run", "--vm", "krun", "--", "true"}, {"doctor"}} {
		got := vmCommand(t, inNamespace(t, u.env, script, append([]string{u.program}, args...)...))
		if args[0] == "run" {
			got.says(t, exitKVMPermission, "no permission to use /dev/kvm", "msb doctor")
		} else if got.code != 0 || !strings.Contains(got.out, "usermod -aG kvm") {
			t.Errorf("msb doctor: exit %d\n%s%s; want the remedy, and QEMU instead", got.code, got.out, got.err)
		}
	}
	nothingLeft(t, filepath.Join(u.home, ".msb"))
}
