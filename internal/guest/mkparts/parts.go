package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"sort"
	"strings"
)

// agentRoot is what the kernel starts: the agent and its mount points.
func agentRoot(agentd string) (*tree, error) {
	t := &tree{}
	t.dirs("dev", "proc", "run", "sys")
	// The kernel opens it for PID 1 before anything is mounted.
	t.device("dev/console", 5, 1)
	return t, t.program("init", agentd)
}

// builtin is a small system around busybox.
func builtin(busybox, tour string) (*tree, error) {
	t := &tree{}
	t.dirs("bin", "dev", "etc", "etc/ssl", "etc/ssl/certs", "home", "lib", "mnt", "opt", "proc", "run",
		"sbin", "srv", "sys", "usr", "usr/bin", "usr/lib", "usr/local", "usr/local/bin", "usr/local/sbin",
		"usr/sbin", "usr/share", "var", "var/cache", "var/lib", "var/log", "var/spool")
	t.dir("root", 0o700)
	t.dir("tmp", 0o1777)
	t.dir("var/tmp", 0o1777)
	t.link("var/run", "../run")
	t.file("etc/passwd", 0o644, passwd)
	t.file("etc/group", 0o644, group)
	t.file("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n")
	t.file("etc/hosts", 0o644, "127.0.0.1\tlocalhost\n::1\tlocalhost\n")
	t.file("etc/profile", 0o644, "export PS1='\\w \\$ '\n")
	t.file("etc/shells", 0o644, "/bin/sh\n/bin/ash\n")
	t.file("etc/os-release", 0o644, "NAME=\"msb builtin\"\nID=msb-builtin\nPRETTY_NAME=\"msb builtin image\"\n")
	// Empty: the agent adds the sandbox's own CA; public roots come with images.
	t.file("etc/ssl/certs/ca-certificates.crt", 0o644, "")
	t.link("etc/ssl/cert.pem", "certs/ca-certificates.crt")
	if err := static(busybox); err != nil {
		return nil, err
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	if program, err = renameWget(program); err != nil {
		return nil, fmt.Errorf("%s: %w", busybox, err)
	}
	t.file("bin/busybox", 0o755, string(program))
	if err := t.program("bin/msb-tour", tour); err != nil {
		return nil, err
	}
	return t, applets(t, busybox)
}

//nolint:gosec // no password is in it
const passwd = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
nobody:x:65534:65534:nobody:/:/bin/false
user:x:1000:1000:user:/home:/bin/sh
`

const group = `root:x:0:
daemon:x:1:
tty:x:5:
nogroup:x:65534:
user:x:1000:
`

// static refuses a program that needs a loader: the image has no libraries.
func static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static; install busybox-static in its place", path)
		}
	}
	return nil
}

// renameWget gives busybox's applet wget the name wftp: Debian's shell runs an applet before it looks at PATH, and
// this one speaks a TLS that servers refuse. In its place is msb-tour (guest/tour), which runs wftp for FTP. The
// names in busybox's table are sorted, with wc before and which behind.
func renameWget(busybox []byte) ([]byte, error) {
	from, to := []byte("\x00wc\x00wget\x00which\x00"), []byte("\x00wc\x00wftp\x00which\x00")
	if n := bytes.Count(busybox, from); n != 1 {
		return nil, fmt.Errorf("found %d tables of applets with wc, wget and which; install Debian's busybox-static", n)
	}
	return bytes.Replace(busybox, from, to, 1), nil
}

// applets links every name that busybox answers to.
func applets(t *tree, busybox string) error {
	out, err := exec.CommandContext(context.Background(), busybox, "--list-full").Output()
	if err != nil {
		return fmt.Errorf("list the applets of %s: %w", busybox, err)
	}
	names := strings.Fields(string(out))
	sort.Strings(names)
	for _, n := range names {
		dir := path.Dir(n)
		switch dir {
		case "bin", "sbin", "usr/bin", "usr/sbin":
			switch path.Base(n) {
			case "busybox":
			case "wget":
				t.link(n, "/bin/msb-tour")
			default:
				t.link(n, "/bin/busybox")
			}
		}
	}
	return nil
}
