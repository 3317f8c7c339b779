//go:build vmtest && linux

package sandbox_test

import (
	"path"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// sharedTmpfs: containers that name one have the same file system in the guest's memory, also one that is made again. Its size,
// mode and owner are the first one's. A sub path that is a link of a container's leads nowhere outside of it.
func (p *pod) sharedTmpfs(t *testing.T) {
	config := func(id string, m sandbox.ContainerMount, line string) sandbox.ContainerConfig {
		cfg := containerConfig(t, id, "sh", "-c", line)
		m.Type, m.Target = "tmpfs", "/shared"
		cfg.Mounts = append(cfg.Mounts, m)
		return cfg
	}
	const wait = "echo ready; exec sleep 1000"
	a, _ := p.background(t, config("a", sandbox.ContainerMount{Shared: "v", SizeBytes: 1 << 20, Mode: 0o2770, UID: 3, GID: 2000}, wait), "ready")
	b, _ := p.background(t, config("b", sandbox.ContainerMount{Shared: "v", ReadOnly: true}, wait), "ready")
	p.want(t, a, "stat -f -c %T /shared; stat -c '%a %u %g' /shared", "tmpfs\n2770 3 2000")
	p.want(t, a, "echo of a > /shared/file; ln -s / /shared/root; ln -s /proc/1/root /shared/magic; ln -s ../../etc /shared/up", "")
	p.want(t, b, "cat /shared/file; echo x > /shared/no", "of a\nsh: can't create /shared/no: Read-only file system")
	p.want(t, a, "head -c 2000000 /dev/zero > /shared/big 2> /dev/null || echo full; rm /shared/big", "full")
	for sub, want := range map[string]string{"made/below": "2770 0 2000 directory", "file": "644 0 2000 regular file"} {
		got, _ := p.run(t, config("sub-"+path.Base(sub), sandbox.ContainerMount{Shared: "v", SubPath: sub}, "stat -c '%a %u %g %F' /shared"))
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: got %q, want %q", sub, got, want)
		}
	}
	for _, sub := range []string{"root", "root/etc", "magic", "up", "up/x"} {
		if c, err := p.Add(p.ctx(), config("out", sandbox.ContainerMount{Shared: "v", SubPath: sub}, "ls /shared")); err == nil {
			t.Errorf("the sub path %s is mounted", sub)
			_ = c.Delete(p.ctx())
		}
	}
	other, _ := p.run(t, config("other", sandbox.ContainerMount{Shared: "w"}, "ls /shared; stat -c %a /shared"))
	if strings.TrimSpace(other) != "1777" {
		t.Errorf("another tmpfs: %q", other)
	}
}
