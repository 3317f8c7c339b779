//go:build vmtest

package main

import "testing"

// TestVMCaches has one sandbox whose cache is committed, one that changes its own and is not, and one of another user.
func TestVMCaches(t *testing.T) {
	dir, env := otherHome(t)
	msb := func(args ...string) result { return finish(t, command(t, env, args...)) }
	start := func(name string, flags ...string) {
		msb(append(append([]string{"run", "--vm", "qemu", "-q", "-d", "--no-net", "--name", name}, flags...), "--", "sleep", "1000")...).want(t, 0, name+"\n")
	}
	sh := func(name, script string) result { return msb("exec", name, "--", "sh", "-c", script) }
	start("maker", "--cache", "pip,npm")
	sh("maker", "cd ~/.cache/pip && echo wheel > wheel && mkdir sub && echo x > sub/x && ln -s ../npm way && mknod pipe p && chmod 4711 wheel").want(t, 0, "")
	sh("maker", "echo tarball > ~/.npm/tarball").want(t, 0, "")
	start("early", "--cache", "pip")
	msb("cache", "commit", "maker").want(t, 0, "")
	sh("early", "ls ~/.cache/pip").want(t, 0, "")
	msb("rm", "--force", "early").want(t, 0, "early\n")

	// What others change is theirs.
	start("reader", "--cache", "pip,npm")
	sh("reader", "cd ~/.cache/pip && cat wheel sub/x ~/.npm/tarball && ls -A . && stat -c %a wheel").want(t, 0, "wheel\nx\ntarball\nsub\nway\nwheel\n777\n")
	sh("reader", "cd ~/.cache/pip && echo bad > wheel && rm -r sub && echo bad > new && cat wheel").want(t, 0, "bad\n")
	if got := sh("reader", "mount -o remount,rw ~/.cache/pip; blockdev --setrw /dev/vdd; mount -t ext4 /dev/vdd /mnt && echo bad > /mnt/pip/wheel"); got.code == 0 {
		t.Error("a guest writes to what sandboxes share")
	}
	msb("exec", "-u", "1000", "maker", "--", "sh", "-c", "cat ~/.cache/pip/wheel || true").want(t, 0, "")
	start("other", "--cache", "pip", "-u", "1000", "-e", "PIP_CACHE_DIR=/srv/pip")
	msb("exec", "-u", "1000", "other", "--", "sh", "-c", "cat /srv/pip/wheel /srv/pip/sub/x && echo mine > /srv/pip/sub/mine && echo mine >> /srv/pip/wheel && stat -c %u /srv/pip").want(t, 0, "wheel\nx\n1000\n")
	msb("rm", "--force", "other").want(t, 0, "other\n")

	// A commit of pip leads nowhere else: a link that is there already is no way to the files of npm.
	start("third", "--cache", "pip,npm")
	sh("reader", "cd ~/.cache/pip && rm way && mkdir way && echo bad > way/tarball").want(t, 0, "")
	msb("cache", "commit", "reader", "pip").want(t, 0, "")
	sh("third", "cat ~/.cache/pip/wheel").want(t, 0, "wheel\n")
	msb("stop", "third").want(t, 0, "third\n")
	msb("start", "third").want(t, 0, "third\n")
	sh("third", "cat ~/.cache/pip/wheel ~/.cache/pip/new ~/.cache/pip/way/tarball ~/.npm/tarball").want(t, 0, "bad\nbad\nbad\ntarball\n")
	msb("cache", "rm", "pip").want(t, 0, "")
	if got := msb("cache", "ls", "-q"); got.out != "npm\n" {
		t.Errorf("%q", got.out)
	}
	msb("rm", "--force", "maker", "reader", "third").want(t, 0, "maker\nreader\nthird\n")
	if got := msb("cache", "prune", "--dry-run"); got.code != 0 {
		t.Errorf("cache prune: %+v", got)
	}
	msb("cache", "rm", "--all").want(t, 0, "")
	nothingLeft(t, dir)
}
