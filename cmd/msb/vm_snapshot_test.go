//go:build vmtest

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestVMSnapshotsAndClones takes a sandbox back, and makes others of it, with guests that write.
func TestVMSnapshotsAndClones(t *testing.T) {
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	dir, env := otherHome(t)
	policy := violating(t, "terminate")
	env = append(env, "VM_TEST_TOKEN="+os.Getenv("VM_TEST_TOKEN"))
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, env, args...)) }
	defer func() { _ = command(t, env, "rm", "--force", "web", "one", "two").Run() }() // after a failure
	sh := func(name, script string) string {
		t.Helper()
		got := msb("exec", name, "--", "sh", "-c", script)
		if got.code != 0 {
			t.Fatalf("%s: %q: %+v", name, script, got)
		}
		return strings.TrimSpace(got.out)
	}

	msb("create", "-q", "--vm", "qemu", "--disk", "256M", "--trust", "--policy", policy, "-p", "8080", "web").want(t, 0, "web\n")
	msb("start", "-q", "web").want(t, 0, "web\n")
	const plant = `echo first > /f; mkdir -p /etc/ssh /var/lib/dbus /var/lib/systemd; echo 0123456789abcdef0123456789abcdef > /etc/machine-id
ln -s /etc/machine-id /var/lib/dbus/machine-id; for k in ed25519 rsa; do echo PARENTS > /etc/ssh/ssh_host_${k}_key; echo PARENTS > /etc/ssh/ssh_host_${k}_key.pub; done
echo PARENTS > /var/lib/systemd/random-seed; mkdir -p /root; echo $TOKEN > /root/token`
	sh("web", plant)
	// While it runs and writes: the files are pairs, each pair one write apart.
	writes := command(t, env, "exec", "web", "--", "sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > /a; echo $i > /b; done")
	if err := writes.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writes.Process.Kill(); _ = writes.Wait() }()
	sh("web", "until test -e /b; do :; done")
	msb("snapshot", "create", "web").want(t, 0, "web-1\n")
	before, err := strconv.Atoi(sh("web", "until x=$(cat /a) && test -n \"$x\"; do :; done; echo $x")) // a write empties it first
	if err != nil {
		t.Fatal(err)
	}
	sh("web", "until test $(cat /a || echo 0) -gt "+strconv.Itoa(before)+"; do :; done") // it was thawed
	_ = writes.Process.Kill()
	_ = writes.Wait()
	msb("snapshot", "restore", "web-1").says(t, exitSandbox, "running", "msb stop web")
	msb("clone", "web", "one").want(t, 0, "one\n")
	if out, err := exec.CommandContext(t.Context(), "/sbin/e2fsck", "-fn", filepath.Join(dir, "sandboxes", "one", "upper.ext4")).CombinedOutput(); err != nil {
		t.Errorf("the clone of a sandbox that runs: %v\n%s", err, out)
	}
	sh("web", "echo second > /f; rm /etc/machine-id")
	msb("stop", "web").want(t, 0, "web\n")
	msb("snapshot", "create", "--label", "a=b", "web", "second").want(t, 0, "second\n")
	msb("snapshot", "restore", "web-1").want(t, 0, "")
	msb("clone", "second", "two").want(t, 0, "two\n")
	for _, name := range []string{"web", "one", "two"} {
		msb("start", "-q", name).want(t, 0, name+"\n")
	}
	for name, want := range map[string]string{"web": "first", "one": "first", "two": "second"} {
		if got := sh(name, "cat /f"); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	pair := strings.Fields(sh("web", "cat /a /b"))
	if a, err := strconv.Atoi(pair[0]); err != nil || len(pair) > 2 || len(pair) == 2 && pair[1] != strconv.Itoa(a) && pair[1] != strconv.Itoa(a-1) {
		t.Errorf("the pair in the snapshot is %q (%v)", pair, err)
	}

	// The parent keeps what it is; the clones have their own.
	if got := sh("web", "cat /etc/machine-id /etc/ssh/ssh_host_rsa_key /var/lib/systemd/random-seed"); got != "0123456789abcdef0123456789abcdef\nPARENTS\nPARENTS" {
		t.Errorf("a restore changed the identity: %q", got)
	}
	if got := sh("one", "ls /etc/ssh; ls /var/lib/systemd; head -n 1 /etc/ssh/ssh_host_ed25519_key; cat /etc/ssh/*.pub | cut -c1-11"); got != "ssh_host_ed25519_key\nssh_host_ed25519_key.pub\n-----BEGIN OPENSSH PRIVATE KEY-----\nssh-ed25519" {
		t.Errorf("the clone's keys: %q", got)
	}
	const card = "cat /sys/class/net/eth0/address"
	const authority = "grep -c BEGIN /etc/ssl/certs/ca-certificates.crt; tail -n 5 /etc/ssl/certs/ca-certificates.crt | head -n 3"
	for what, script := range map[string]string{
		"host name": "hostname; cat /etc/hostname", "machine-id": "test -e /etc/machine-id && cat /etc/machine-id || echo none $(hostname)", "dbus": "readlink /var/lib/dbus/machine-id; hostname", "MAC address": card, "placeholder": "echo $TOKEN",
		"authority": authority, "boot id": "cat /proc/sys/kernel/random/boot_id", "random numbers": "head -c 16 /dev/urandom | od -x",
	} {
		got := []string{sh("web", script), sh("one", script), sh("two", script)}
		if slices.Sort(got); got[0] == "" || len(slices.Compact(got)) != 3 {
			t.Errorf("%s: %q, want three", what, got)
		}
	}
	for _, name := range []string{"web", "one", "two"} {
		if got := sh(name, "grep -c BEGIN /etc/ssl/certs/ca-certificates.crt"); got != "1" {
			t.Errorf("%s trusts %s authorities", name, got)
		}
		if got := sh(name, `msb-tour get "https://echo.msb.internal/" >/dev/null && echo trusted`); got != "trusted" {
			t.Errorf("%s: %q", name, got)
		}
	}
	ports := map[uint16]string{}
	for _, name := range []string{"web", "one", "two"} {
		var st sandbox.Status
		if err := json.Unmarshal([]byte(msb("inspect", name).out), &st); err != nil || len(st.Info.Ports) != 1 {
			t.Fatalf("%s: %+v, %v", name, st, err)
		}
		ports[st.Info.Ports[0].Host] = name
	}
	if len(ports) != 3 {
		t.Errorf("the ports are %v, want three", ports)
	}
	parents := sh("web", "echo $TOKEN")
	if got := sh("one", `msb-tour get "https://echo.msb.internal/?elsewhere=`+parents+`" 2>&1 | grep -o secret_of_parent; hostname`); got != "secret_of_parent\none" {
		t.Errorf("the parent's placeholder in the clone: %q", got)
	}
	var one sandbox.Status
	if err := json.Unmarshal([]byte(msb("inspect", "--parent-files", "one").out), &one); err != nil || !slices.Equal(one.ParentFiles, []string{"/root/token"}) || one.MoreParentFiles || one.ParentPlaceholders[parents] != "TOKEN" {
		t.Errorf("the files with the parent's placeholder: %+v, %v", one, err)
	}
	machine := sh("one", "cat /etc/machine-id")
	msb("restart", "-q", "one").want(t, 0, "one\n")
	if got := sh("one", "cat /etc/machine-id"); got != machine {
		t.Errorf("the clone's machine-id is %q at its second start, was %q", got, machine)
	}
	var snapshots []sandbox.Snapshot
	if err := json.Unmarshal([]byte(msb("snapshot", "ls", "--json").out), &snapshots); err != nil || len(snapshots) != 2 || !snapshots[1].Running || snapshots[0].Running || snapshots[0].Labels["a"] != "b" || snapshots[0].Parent != "web-1" {
		t.Errorf("%+v, %v", snapshots, err)
	}
	var taken sandbox.Snapshot
	if err := json.Unmarshal([]byte(msb("snapshot", "inspect", "second").out), &taken); err != nil || taken.Name != "second" || taken.Parent != "web-1" {
		t.Errorf("snapshot inspect: %+v, %v", taken, err)
	}
	if got := msb("snapshot", "diff", "web-1", "second"); got.code != 0 || !strings.Contains(got.out, "total") {
		t.Errorf("%+v", got)
	}
	archive := filepath.Join(t.TempDir(), "archive")
	msb("snapshot", "export", "second", archive).want(t, 0, "")
	msb("snapshot", "import", archive, "back").want(t, 0, "back\n")
	msb("snapshot", "import", write(t, "hostile", "no archive")).says(t, exitImageRefused, "not the archive of a snapshot")
	msb("stop", "two").want(t, 0, "two\n")
	msb("rm", "two").want(t, 0, "two\n")
	msb("clone", "back", "two").want(t, 0, "two\n")
	msb("start", "-q", "two").want(t, 0, "two\n")
	if got := sh("two", "cat /f; grep -c BEGIN /etc/ssl/certs/ca-certificates.crt; echo no $TOKEN"); got != "second\n1\nno" {
		t.Errorf("what came in an archive: %q", got)
	}
	msb("rm", "-f", "web", "one", "two").want(t, 0, "web\none\ntwo\n")
	msb("snapshot", "rm", "web-1", "second", "back").want(t, 0, "web-1\nsecond\nback\n")
	if left, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
