//go:build linux && !(vmtest && amd64)

package agentd

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/system"
	"github.com/msb-project/msb/agentd/internal/workload"
	"github.com/msb-project/msb/internal/hostdir"
)

// hostPort is the port by which the kernel's FUSE requests of the test's own process reach directories that are served.
type hostPort struct {
	*hostdir.Port
	carrier *carrier
	work    sync.WaitGroup
	close   func()
}

func newHostPort(t *testing.T) *hostPort {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	guests, err := newRawFile(ends[0])
	must(t, err)
	host := os.NewFile(uintptr(ends[1]), "host")
	p := &hostPort{Port: hostdir.NewPort(host), carrier: newCarrier(guests)}
	p.close = func() {
		must(t, host.Close())
		p.work.Wait()
		until(t, "the carrier has ended", func() bool {
			p.carrier.mu.Lock()
			defer p.carrier.mu.Unlock()
			return p.carrier.err != nil
		})
		must(t, guests.Close())
	}
	p.work.Go(func() { _ = p.Serve() }) // until close
	return p
}

// offer opens a directory or file, and serves it from serve on until the port ends.
func (p *hostPort) offer(t *testing.T, path string, o hostdir.Options) (server *hostdir.Server, number uint32, serve func()) {
	t.Helper()
	server, err := hostdir.New(path, o)
	must(t, err)
	conn := p.Open()
	return server, conn.Number, func() {
		p.work.Go(func() {
			_ = server.Serve(context.Background(), conn) // it ends with the port
			_ = server.Close()                           // nothing is written behind
		})
	}
}

// agentsMount is what this process has mounted last at a place: kind, and options.
func agentsMount(t *testing.T, place string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/mounts") // /proc/self may be the thread of the guest's processes
	must(t, err)
	found := ""
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[1] == place {
			found = f[2] + "," + f[3]
		}
	}
	return found
}

// TestContainersShareMountsOfTheHost: each directory and file is mounted once for all who use it, and is gone with the last.
func TestContainersShareMountsOfTheHost(t *testing.T) {
	inNamespaces(t, func() {
		p, dir := newHostPort(t), t.TempDir()
		defer p.close()
		files(t, dir, map[string]string{"a": "of the host"})
		_, tree, serve := p.offer(t, dir, hostdir.Options{Writable: true, HostOwners: true})
		serve()
		_, one, serve := p.offer(t, filepath.Join(dir, "a"), hostdir.Options{File: true, HostOwners: true})
		serve()
		var carries atomic.Bool
		m := &hostMounts{carrier: p.carrier, carries: &carries, log: slog.New(slog.DiscardHandler), all: map[uint32]*hostMount{}}
		if _, err := m.take(&agentpb.HostDirectory{}, 0); err == nil || agentsMount(t, system.HostPlace(0)) != "" {
			t.Errorf("what nobody serves is mounted: %v", err)
		}
		for _, d := range []*agentpb.HostDirectory{{Number: tree}, {Number: one, File: true}} {
			place := system.HostPlace(d.Number)
			first, err := m.take(d, unix.MOUNT_ATTR_RDONLY)
			must(t, err)
			second, err := m.take(d, 0)
			must(t, err)
			if got := agentsMount(t, place); !strings.HasPrefix(got, "fuse,rw,nodev,") || !strings.Contains(got, "default_permissions,allow_other") {
				t.Errorf("%v is mounted as %q", d, got)
			}
			if _, err := m.take(&agentpb.HostDirectory{Number: d.Number, File: !d.File}, 0); err == nil {
				t.Errorf("%v is mounted as something else", d)
			}
			must(t, first.Close(), second.Close())
			m.release(d.Number)
			if !carries.Load() || agentsMount(t, place) == "" || len(m.all) != 1 {
				t.Errorf("%v is used still, and mounted as %q", d, agentsMount(t, place))
			}
			m.release(d.Number)
			if _, err := os.Lstat(place); !os.IsNotExist(err) || len(m.all) != 0 || agentsMount(t, place) != "" {
				t.Errorf("%v is not used, and left: %v, %v", d, err, m.all)
			}
		}
		for n := range uint32(agentpb.MaxDirectories) {
			m.all[100+n] = nil
		}
		if _, err := m.take(&agentpb.HostDirectory{Number: tree}, 0); err == nil || agentsMount(t, system.HostPlace(tree)) != "" {
			t.Errorf("one more than %d is mounted: %v", agentpb.MaxDirectories, err)
		}
	})
}

// TestHostDirectoriesAreMounted: what the workload sees of the host, and where it writes to.
func TestHostDirectoriesAreMounted(t *testing.T) {
	inNamespaces(t, func() {
		devices(t)
		p := newHostPort(t)
		s, err := boot(t, agentclient.Options{Root: &agentclient.Root{Image: disk(t, "vda", imageOf(t))}}, func(s *server) { s.carrier = p.carrier })
		must(t, err)
		defer p.close()
		for name, o := range map[string]agentclient.DirectoryOptions{
			"written": {Path: "/written/to"}, "read": {Path: "/read", ReadOnly: true}, "copied": {Path: "/copied", ReadOnly: true, CopyOnWrite: true},
		} {
			dir := t.TempDir()
			files(t, dir, map[string]string{"old": "of the host"})
			server, number, serve := p.offer(t, dir, hostdir.Options{Writable: !o.ReadOnly, PollName: agentpb.PollName, ByName: o.CopyOnWrite})
			o.User, o.Number = "node", number
			d, err := s.AttachDirectory(t.Context(), o)
			must(t, err)
			defer d.Close()
			server.SetOwner(d.UID, d.GID)
			serve()
			<-server.Polled()
			written := "new"
			if name == "read" {
				written = "/bin/sh: can't create " + o.Path + "/new: Read-only file system"
			}
			s.wantLines(t, map[string]string{
				"cat " + o.Path + "/old": "of the host", "(echo new > " + o.Path + "/new) && cat " + o.Path + "/new": written,
				"stat -c %u:%g " + o.Path + "/old": "1000:1000", "stat -c %u:%g " + o.Path: "1000:1000",
			})
			if _, err := os.Stat(filepath.Join(dir, "new")); (err == nil) != (name == "written") {
				t.Errorf("%s: the host has the guest's file: %v", name, err)
			}
			mount := s.sh(t, "grep ' "+o.Path+" ' /proc/mounts")
			for option, wanted := range map[string]bool{",nosuid,nodev,": true, " ro,": name == "read", "redirect_dir=nofollow": name == "copied", "metacopy=on": false} {
				if strings.Contains(mount, option) != wanted {
					t.Errorf("%s is mounted as %q, %q: want %v", name, mount, option, wanted)
				}
			}
			if layer, err := s.Changes(t.Context(), o.Path); name == "copied" && (err != nil || len(layer.Entries) != 1 || layer.Entries[0].Path != "new") {
				t.Errorf("the guest changed %+v, %v", layer, err)
			}
		}
	})
}

// TestI15_ChildDirectoriesAreTheAgents: nobody can change the program in them, or fill them.
func TestI15_ChildDirectoriesAreTheAgents(t *testing.T) {
	inNamespaces(t, func() {
		thread, reaper := workload.NewThread(), workload.NewReaper(false)
		defer reaper.Close()
		defer thread.Close()
		l, err := openChildSocket(workload.NewSpawner(thread, reaper).Root(), "4321:4322")
		must(t, err)
		defer func() { must(t, l.Close()) }()
		if got := agentsMount(t, agentpb.ChildDir); !strings.HasPrefix(got, "tmpfs,rw,nosuid,nodev,") || !strings.Contains(got, "size=64k,nr_inodes=16,mode=755") {
			t.Errorf("the directory is mounted as %q", got)
		}
		if _, options, _ := strings.Cut(agentsMount(t, agentpb.ChildProgram), ","); !strings.HasPrefix(options, "ro,nosuid,nodev") {
			t.Errorf("the program is mounted as %q", options)
		}
	})
}
