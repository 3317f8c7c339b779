//go:build linux && !(vmtest && amd64)

package agentd

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/internal/system"
)

// TestI14_MountsOfContainersStayInTheirRoot: destinations of every kind of mount whose path is a link, leads over one or has dots,
// and the kernel's file systems, of which no path may be a link. Nothing is made or mounted in the agent's root.
func TestI14_MountsOfContainersStayInTheirRoot(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		outside, host := t.TempDir(), t.TempDir()
		must(t, os.WriteFile(filepath.Join(outside, "file"), []byte("the agent's\n"), 0o600), os.WriteFile(filepath.Join(host, "file"), []byte("mounted\n"), 0o644))
		for name, to := range map[string]string{
			"abs": outside, "up": "../../../../.." + outside, "chain": "abs", "abs-file": outside + "/file", "dangling": outside + "/new/deep", "loop": "loop", "self": "/bin/../self-to", "fs": "/bin",
		} {
			must(t, os.Symlink(to, filepath.Join(p.root, name)))
		}
		must(t, os.Mkdir(filepath.Join(p.root, "sys"), 0o755), os.Symlink("/bin", filepath.Join(p.root, "sys/fs")))
		file := filepath.Join(host, "file")
		for _, m := range []agentclient.ContainerMount{
			{Type: "tmpfs", Target: "/abs"}, {Type: "tmpfs", Target: "/up/x/../y"}, {Type: "tmpfs", Target: "/chain/deep"}, {Type: "tmpfs", Target: "/a/../../../b"}, {Type: "tmpfs", Target: "/self"},
			{Type: "bind", Source: host, Target: "/dangling"}, {Type: "bind", Source: host, Target: "/up"}, {Type: "bind", Source: host, Target: "/.." + outside},
			{Type: "bind", Source: file, Target: "/abs-file"}, {Type: "bind", Source: file, Target: "/up/file"}, {Type: "bind", Source: file, Target: "/dangling/conf"},
			{Type: "tmpfs", Target: "/up", Shared: "s"},
		} {
			cfg := p.box("a", "grep -c ' '$(readlink -f "+path.Clean(m.Target)+")' ' /proc/mounts; cat "+path.Clean(m.Target)+" "+path.Clean(m.Target)+"/file 2>/dev/null")
			cfg.Mounts = append(cfg.Mounts, m)
			want := "1\n"
			if m.Type == "bind" {
				want += "mounted\n"
			}
			if got := p.run(t, cfg); got != want {
				t.Errorf("%s at %s: got %q, want %q", m.Type, m.Target, got, want)
			}
		}
		for _, m := range []agentclient.ContainerMount{
			{Type: "tmpfs", Target: "/loop"}, {Type: "cgroup", Target: "/sys/fs/cgroup"}, {Type: "sysfs", Target: "/abs"}, {Type: "proc", Target: "/up"}, {Type: "mqueue", Target: "/chain/x"}, {Type: "sysfs", Target: "/fs"},
		} {
			cfg := p.box("a", "true")
			cfg.Mounts = append(cfg.Mounts, m)
			if err := p.add(cfg); !errors.Is(err, agentclient.ErrRefused) || !strings.Contains(err.Error(), "mounts[1]") {
				t.Errorf("%s at %s: %v", m.Type, m.Target, err)
			}
		}
		all, err := os.ReadDir(outside)
		b, errFile := os.ReadFile(filepath.Join(outside, "file"))
		if err != nil || len(all) != 1 || errFile != nil || string(b) != "the agent's\n" {
			t.Errorf("the agent's root has %v, %q, %v, %v", all, b, err, errFile)
		}
		// The contrast: in the agent's root the link leads there.
		if b, err := os.ReadFile(filepath.Join(p.root, "abs/file")); err != nil || string(b) != "the agent's\n" {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// TestDevicesOfContainersAreShut: nowhere can a container open a device that it makes, whatever its mounts ask for. The contrast is one
// that may remount, and so takes nodev away: there it opens.
func TestDevicesOfContainersAreShut(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		host := t.TempDir()
		must(t, os.Chmod(host, 0o777))
		must(t, unix.Mknod(filepath.Join(host, "before"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))), unix.Mknod(filepath.Join(p.root, "before"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
		line := "for d in / /dev /m /s /b; do mknod $d/own c 1 5; head -c 1 $d/own | wc -c; done; head -c 1 /before | wc -c; head -c 1 /b/before | wc -c; ls -l /b/before | head -c 1; "
		cfg := p.box("a", line)
		cfg.Mounts = append(cfg.Mounts, agentclient.ContainerMount{Type: "tmpfs", Target: "/m"}, agentclient.ContainerMount{Type: "tmpfs", Target: "/s", Shared: "s"}, agentclient.ContainerMount{Type: "bind", Source: host, Target: "/b"})
		got := p.run(t, cfg)
		if strings.Count(got, "Permission denied") != 7 || strings.Count(got, "0\n") != 7 || !strings.HasSuffix(got, "c") {
			t.Errorf("got %s", got)
		}
		cfg = p.box("a", "mount -o remount,dev,bind /m; mknod /m/zero c 1 5; head -c 1 /m/zero | wc -c")
		cfg.Mounts = append(cfg.Mounts, agentclient.ContainerMount{Type: "tmpfs", Target: "/m"})
		if got := p.run(t, cfg); !strings.HasSuffix(got, "Permission denied\n0\n") {
			t.Errorf("without the right to mount: %s", got)
		}
		c := &cfg.Process.Capabilities
		for _, set := range []*[]string{&c.Bounding, &c.Effective, &c.Permitted} {
			*set = append(*set, "CAP_SYS_ADMIN")
		}
		if got := p.run(t, cfg); got != "1\n" {
			t.Errorf("with it: %s", got)
		}
	})
}

// TestSharedTmpfsAreOneForAll: containers see each other's files in a tmpfs of the same name, which has size, mode and owner of the first,
// and lasts; options of mounts are each one's own.
func TestSharedTmpfsAreOneForAll(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		in := func(line string, m agentclient.ContainerMount) string {
			t.Helper()
			m.Type, m.Target = "tmpfs", "/s"
			if m.Shared == "" {
				m.Shared = "cache"
			}
			cfg := p.box("a", line)
			cfg.Mounts = append(cfg.Mounts, m)
			return p.run(t, cfg)
		}
		for _, c := range []struct {
			line  string
			mount agentclient.ContainerMount
			want  string
		}{
			{"stat -c '%a %u %g' /s; echo one > /s/file; head -c 9000 /dev/zero > /s/big 2>/dev/null; wc -c < /s/big; rm /s/big", agentclient.ContainerMount{SizeBytes: 8192, Mode: 0o2770, UID: 5, GID: 6}, "2770 5 6\n4096\n"},
			{"stat -c '%a %u %g' /s; cat /s/file; echo x > /s/file; grep -c ' /s tmpfs ro,nosuid,nodev,noexec,' /proc/mounts", agentclient.ContainerMount{SizeBytes: 1 << 20, Mode: 0o700, UID: 7, ReadOnly: true, NoSuid: true, NoExec: true}, "2770 5 6\none\nsh: can't create /s/file: Read-only file system\n1\n"},
			{"grep -c ' /s tmpfs rw,nodev,' /proc/mounts; echo two > /s/file; ls /s", agentclient.ContainerMount{}, "1\nfile\n"},
			{"cat /s; echo three > /s; cat /s", agentclient.ContainerMount{SubPath: "file"}, "two\nthree\n"},
			{"stat -c '%a' /s; touch /s/x", agentclient.ContainerMount{SubPath: "new/deeper"}, "2770\n"},
			{"stat -c '%a' /s/new /s/new/deeper; ls /s/new/deeper; ls /s", agentclient.ContainerMount{}, "2770\n2770\nx\nfile\nnew\n"},
			{"ls -A /s; stat -c '%a %u' /s; touch /s/other", agentclient.ContainerMount{Shared: "other"}, "1777 0\n"},
			{"ls /s", agentclient.ContainerMount{}, "file\nnew\n"},
		} {
			if got := in(c.line, c.mount); got != c.want {
				t.Errorf("%q: got %q, want %q", c.line, got, c.want)
			}
		}
		if all, err := os.ReadDir("/run/msb/tmpfs"); err != nil || len(all) != 2 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

// TestI14_SubPathsStayInTheirTmpfs: a container puts links into a tmpfs that another one mounts a part of. The contrast is the same
// link followed by its path.
func TestI14_SubPathsStayInTheirTmpfs(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		outside := t.TempDir()
		must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("the agent's\n"), 0o600))
		cfg := p.box("evil", "cd /s; ln -s "+outside+" abs; ln -s ../../../../.."+outside+" up; ln -s abs chain; ln -s "+outside+"/secret file; ln -s "+outside+"/new new; mkdir dir; ln -s ../in dir/in; mkdir in; echo inside > in/f; ln -s /run/msb/tmpfs/s/in absin")
		cfg.Mounts = append(cfg.Mounts, agentclient.ContainerMount{Type: "tmpfs", Target: "/s", Shared: "s"})
		if got := p.run(t, cfg); got != "" {
			t.Fatal(got)
		}
		if b, err := os.ReadFile("/run/msb/tmpfs/s/up/secret"); err != nil || string(b) != "the agent's\n" {
			t.Errorf("by its path: %q, %v", b, err)
		}
		mount := func(sub string) agentclient.ContainerConfig {
			cfg := p.box("a", "cat /v/*")
			cfg.Mounts = append(cfg.Mounts, agentclient.ContainerMount{Type: "tmpfs", Target: "/v", Shared: "s", SubPath: sub})
			return cfg
		}
		for _, sub := range []string{"abs", "up", "chain", "file", "new", "absin", "abs/made", "up/secret", "chain/x/y", "..", "../x", "in/../../x", "/in", "."} {
			cfg := mount(sub)
			if err := p.add(cfg); err == nil && sub != "." {
				t.Errorf("%s is mounted", sub)
				must(t, p.host.Containers().Delete(t.Context(), "a"))
			} else if err == nil {
				must(t, p.host.Containers().Delete(t.Context(), "a"))
			} else if !errors.Is(err, agentclient.ErrRefused) {
				t.Errorf("%s: %v", sub, err)
			}
		}
		for _, sub := range []string{"in", "dir/in", "dir/../in"} {
			if got := p.run(t, mount(sub)); got != "inside\n" {
				t.Errorf("%s: %q", sub, got)
			}
		}
		if all, err := os.ReadDir(outside); err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
		if _, _, err := (&system.SharedTmpfs{Name: "s"}).Clone("up", 0); err == nil {
			t.Error("a link leads out of the tmpfs")
		}
	})
}

// TestI11_SharedTmpfsAreBounded in number.
func TestI11_SharedTmpfsAreBounded(t *testing.T) {
	onMachine(t, agentclient.Options{}, func(t *testing.T, p *pod) {
		s := &p.server.containers.tmpfs
		s.all = map[string]*system.SharedTmpfs{}
		for i := range 63 {
			s.all[strings.Repeat("x", i+1)] = &system.SharedTmpfs{}
		}
		for _, c := range []struct {
			name string
			ok   bool
		}{{"last", true}, {"above", false}, {"last", true}} {
			cfg := p.box("a", "true")
			cfg.Mounts = append(cfg.Mounts, agentclient.ContainerMount{Type: "tmpfs", Target: "/s", Shared: c.name})
			err := p.add(cfg)
			if (err == nil) != c.ok {
				t.Errorf("%s: %v", c.name, err)
			}
			must(t, p.host.Containers().Delete(t.Context(), "a"))
		}
	})
}
