//go:build linux && !(vmtest && amd64)

package agentd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
)

// TestContainersAreAsDescribed makes a container with one field of its description each, and looks from the inside.
func TestContainersAreAsDescribed(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		type c = agentclient.ContainerConfig
		umask, oom := uint32(0o37), 321
		tmpfs := func(target string, m agentclient.ContainerMount) agentclient.ContainerMount {
			m.Type, m.Target = "tmpfs", target
			return m
		}
		host := t.TempDir()
		must(t, os.Chmod(host, 0o755), os.WriteFile(filepath.Join(host, "file"), []byte("of the host\n"), 0o644))
		bind := func(m agentclient.ContainerMount) agentclient.ContainerMount {
			m.Type = "bind"
			return m
		}
		for name, tt := range map[string]struct {
			change     func(*c)
			line, want string
		}{
			"options of mounts": {
				func(c *c) {
					c.Mounts = append(c.Mounts, tmpfs("/m/plain", agentclient.ContainerMount{}), tmpfs("/m/ro", agentclient.ContainerMount{ReadOnly: true}),
						tmpfs("/m/nosuid", agentclient.ContainerMount{NoSuid: true}), tmpfs("/m/noexec", agentclient.ContainerMount{NoExec: true}),
						tmpfs("/m/nodev", agentclient.ContainerMount{NoDev: true}), tmpfs("/m/size", agentclient.ContainerMount{SizeBytes: 8192, Mode: 0o750}),
						bind(agentclient.ContainerMount{Source: host, Target: "/b/plain"}), bind(agentclient.ContainerMount{Source: host, Target: "/b/all", ReadOnly: true, NoSuid: true, NoExec: true}))
				},
				`sed -En 's/^[^ ]* (\/[mb]\/[^ ]*) [^ ]* ((rw|ro)(,nosuid)?(,nodev)?(,noexec)?).*/\1 \2/p' /proc/mounts | sort; grep -c '/m/size .*size=8k' /proc/mounts; stat -c '%a %n' /m/plain /m/size`,
				"/b/all ro,nosuid,nodev,noexec\n/b/plain rw,nodev\n/m/nodev rw,nodev\n/m/noexec rw,nodev,noexec\n/m/nosuid rw,nosuid,nodev\n/m/plain rw,nodev\n/m/ro ro,nodev\n/m/size rw,nodev\n1\n1777 /m/plain\n750 /m/size\n",
			},
			"the kernel's file systems": {
				func(c *c) {
					c.Mounts = append(c.Mounts, agentclient.ContainerMount{Type: "sysfs", Target: "/sys", ReadOnly: true}, agentclient.ContainerMount{Type: "cgroup", Target: "/sys/fs/cgroup", ReadOnly: true},
						tmpfs("/dev", agentclient.ContainerMount{}), agentclient.ContainerMount{Type: "devpts", Target: "/dev/pts"},
						agentclient.ContainerMount{Type: "mqueue", Target: "/dev/mqueue", NoSuid: true, NoExec: true})
				},
				`sed -En 's/^[^ ]* ([^ ]*) ([^ ]*) ((rw|ro)(,nosuid)?(,nodev)?(,noexec)?).*/\1 \2 \3/p' /proc/mounts | sort; touch /sys/x; grep -c ' /dev tmpfs .*size=65536k' /proc/mounts; cat /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/cgroup.max.depth /sys/fs/cgroup/cgroup.max.descendants`,
				"/ overlay rw,nodev\n/dev tmpfs rw,nosuid,nodev,noexec\n/dev/full tmpfs rw,nosuid,noexec\n/dev/mqueue mqueue rw,nosuid,nodev,noexec\n/dev/null tmpfs rw,nosuid,noexec\n/dev/pts devpts rw,nosuid,noexec\n/dev/random tmpfs rw,nosuid,noexec\n/dev/tty tmpfs rw,nosuid,noexec\n/dev/urandom tmpfs rw,nosuid,noexec\n/dev/zero tmpfs rw,nosuid,noexec\n" +
					"/proc proc rw,nodev\n/sys sysfs ro,nodev\n/sys/fs/cgroup cgroup2 ro,nodev\ntouch: /sys/x: Read-only file system\n1\n1\n16\n1024\n",
			},
			"devices": {
				nil,
				"ls /dev | sort | tr '\\n' ' '; cd /dev; stat -c '%n %a %t %T' null zero full random urandom tty; for l in fd stdin stdout stderr ptmx; do readlink $l; done; head -c 3 zero | wc -c; head -c 5 urandom | wc -c; head -c 5 random | wc -c; (echo x > full) || echo $?; echo x > null && wc -c < null; stat -c %a /dev/pts/ptmx",
				"fd full null ptmx pts random stderr stdin stdout tty urandom zero null 666 1 3\nzero 666 1 5\nfull 666 1 7\nrandom 666 1 8\nurandom 666 1 9\ntty 666 5 0\n/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\npts/ptmx\n3\n5\n5\nsh: write error: No space left on device\n1\n0\n666\n",
			},
			"user and groups": {
				func(c *c) {
					c.Process.UID, c.Process.GID, c.Process.AdditionalGIDs, c.Process.Umask = 11, 22, []uint32{33, 44}, &umask
					c.Process.Capabilities = agentclient.Capabilities{}
				},
				"id -u; id -g; id -G; umask; grep -E '^(Uid|Gid|Cap)' /proc/self/status | tr '\\t' ' '",
				"11\n22\n22 33 44\n0037\nUid: 11 11 11 11\nGid: 22 22 22 22\nCapInh: 0000000000000000\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\nCapBnd: 0000000000000000\nCapAmb: 0000000000000000\n",
			},
			"capabilities": {
				func(c *c) {
					c.Process.UID = 11
					c.Process.Capabilities = agentclient.Capabilities{
						Bounding: strings.Fields("CAP_CHOWN CAP_KILL CAP_SETUID CAP_BPF"), Permitted: strings.Fields("CAP_CHOWN CAP_KILL CAP_SETUID CAP_BPF"), Effective: strings.Fields("CAP_CHOWN CAP_KILL"),
						Inheritable: strings.Fields("CAP_CHOWN CAP_BPF"), Ambient: []string{"CAP_BPF"},
					}
				},
				"grep ^Cap /proc/self/status | tr '\\t' ' '", // what execve makes of them
				"CapInh: 0000008000000001\nCapPrm: 0000008000000000\nCapEff: 0000008000000000\nCapBnd: 00000080000000a1\nCapAmb: 0000008000000000\n",
			},
			"no new privileges": {func(c *c) { c.Process.NoNewPrivileges = true }, "grep NoNewPrivs /proc/self/status", "NoNewPrivs:\t1\n"},
			"new privileges":    {nil, "grep -h NoNewPrivs /proc/self/status", "NoNewPrivs:\t0\n"},
			"limits of resources": {
				func(c *c) {
					c.Process.Rlimits = []agentclient.Rlimit{{Name: "RLIMIT_NOFILE", Soft: 40, Hard: 50}, {Name: "core", Soft: 0, Hard: 4096}}
				},
				"grep -E 'open files|core file' /proc/self/limits | sed 's/  */ /g'",
				"Max core file size 0 4096 bytes \nMax open files 40 50 files \n",
			},
			"environment": {
				func(c *c) { c.Process.Env, c.Process.UID = []string{"PATH=/bin", "A=1", "A=2", "HOME=/h"}, 5 }, "env | sort", "A=2\nHOME=/h\nPATH=/bin\nPWD=/\nSHLVL=1\n",
			},
			"a directory that is made": {func(c *c) { c.Process.Cwd = "/made/here" }, "pwd; stat -c %a .", "/made/here\n755\n"},
			"host name":                {func(c *c) { c.Hostname = "web-0" }, "hostname", "web-0\n"},
			"priority of the OOM killer": {
				func(c *c) { c.Process.OOMScoreAdj = &oom }, "cat /proc/self/oom_score_adj", "321\n",
			},
			"terminal": {
				func(c *c) {
					c.Process.Terminal, c.Process.ConsoleSize = true, agentclient.Size{Rows: 33, Cols: 99}
				},
				"stty size; tty; echo x > /dev/tty", "33 99\r\n/dev/pts/0\r\nx\r\n",
			},
			"sysctls": {
				func(c *c) {
					c.Sysctls = map[string]string{"kernel.shmmax": "4096", "net/ipv4/ip_local_port_range": "3000 4000", "fs.mqueue.msg_max": "7"}
					c.ReadOnlyPaths = []string{"/proc/sys"}
				},
				"cat /proc/sys/kernel/shmmax /proc/sys/net/ipv4/ip_local_port_range /proc/sys/fs/mqueue/msg_max; echo 1 > /proc/sys/kernel/shmmax",
				"4096\n3000\t4000\n7\nsh: can't create /proc/sys/kernel/shmmax: Read-only file system\n",
			},
			"masked paths": {
				func(c *c) {
					c.Mounts = append(c.Mounts, bind(agentclient.ContainerMount{Source: host, Target: "/b"}), tmpfs("/d", agentclient.ContainerMount{}))
					c.MaskedPaths = []string{"/b/file", "/d", "/none", "/b/file/none"}
				},
				"wc -c < /b/file; echo x > /b/file; wc -c < /b/file; ls -A /d | wc -l; touch /d/x; grep -c ' /d tmpfs ro,nosuid,nodev,noexec,.*size=4k' /proc/mounts; ls /none",
				"0\n0\n0\ntouch: /d/x: Read-only file system\n1\nls: /none: No such file or directory\n",
			},
			"read-only paths": {
				func(c *c) {
					c.Mounts = append(c.Mounts, bind(agentclient.ContainerMount{Source: host, Target: "/b"}), tmpfs("/b/deep", agentclient.ContainerMount{}))
					c.ReadOnlyPaths = []string{"/b", "/none", "/bin/busybox/none"}
				},
				"echo x > /b/file; touch /b/deep/x; touch /here && ls -d /here",
				"sh: can't create /b/file: Read-only file system\ntouch: /b/deep/x: Read-only file system\n/here\n",
			},
			"a read-only root": {
				func(c *c) {
					c.ReadOnlyRoot, c.Process.Cwd = true, "/made"
					c.Mounts = append(c.Mounts, tmpfs("/m", agentclient.ContainerMount{}))
				},
				"pwd; touch /x; touch /made/x; touch /m/x && ls /m; touch /dev/x && ls /dev/x; : > /dev/null && echo null",
				"/made\ntouch: /x: Read-only file system\ntouch: /made/x: Read-only file system\nx\n/dev/x\nnull\n",
			},
			"a file of the host": {
				func(c *c) {
					c.Mounts = append(c.Mounts, bind(agentclient.ContainerMount{Source: filepath.Join(host, "file"), Target: "/etc/deep/conf", ReadOnly: true}))
				},
				"cat /etc/deep/conf; echo x > /etc/deep/conf; touch /etc/deep/other && ls /etc/deep",
				"of the host\nsh: can't create /etc/deep/conf: Read-only file system\nconf\nother\n",
			},
		} {
			t.Run(name, func(t *testing.T) {
				cfg := p.box("a", tt.line)
				if tt.change != nil {
					tt.change(&cfg)
				}
				if got := p.run(t, cfg); got != tt.want {
					t.Errorf("got\n%s\nwant\n%s", got, tt.want)
				}
			})
		}
	})
}
