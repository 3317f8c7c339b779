//go:build vmtest

package main

import "testing"

// TestVMCommit makes an image of a sandbox that runs, and of the same one when it is stopped, and starts from them.
func TestVMCommit(t *testing.T) {
	dir, env := otherHome(t)
	msb := func(args ...string) result { return finish(t, command(t, env, args...)) }
	msb("run", "--vm", "qemu", "-q", "-d", "--name", "maker", "--cache", "pip", "-v", "data:/data", "-e", "MINE=1", "--", "sleep", "1000").want(t, 0, "maker\n")
	msb("exec", "maker", "--", "sh", "-c", `cd /root && echo text > file && chmod 640 file && chown 7:8 file && ln file hard && ln -s file soft && rm /bin/vi &&
		echo v > /data/v && echo c > .cache/pip/c && mkdir -p /etc/ssh && echo key > /etc/ssh/ssh_host_rsa_key && cp /etc/ssl/certs/ca-certificates.crt had`).want(t, 0, "")
	if got := msb("commit", "-q", "maker", "tools:1"); got.code != 0 || len(got.out) != len("sha256:")+64+1 {
		t.Fatalf("%d, %q, %s", got.code, got.out, got.err)
	}
	const look = `cd /root && cat file hard soft && stat -c '%a %u %g %h' file && ls /data .cache/pip; ls /bin/vi /etc/ssh/ssh_host_rsa_key; echo "$MINE"; hostname | cut -c 1-3
		wc -c < had | grep -q '^0$' || grep -c "$(sed -n 2p had)" /etc/ssl/certs/ca-certificates.crt`
	for _, from := range []string{"a sandbox that runs", "one that is stopped"} {
		got := msb("run", "--vm", "qemu", "-q", "--pull", "never", "tools:1", "sh", "-c", look)
		if want := "text\ntext\ntext\n640 7 8 2\n.cache/pip:\n\n/data:\n\nsb-\n0\n"; got.out != want {
			t.Errorf("%s: printed %q and said %q, want %q", from, got.out, got.err, want)
		}
		if from == "one that is stopped" {
			break
		}
		msb("stop", "maker").want(t, 0, "maker\n")
		if got := msb("commit", "-q", "maker", "tools:1"); got.code != 0 {
			t.Fatalf("%d, %s", got.code, got.err)
		}
	}
	msb("rm", "maker").want(t, 0, "maker\n")
	msb("volume", "rm", "data").want(t, 0, "data\n")
	nothingLeft(t, dir)
}
