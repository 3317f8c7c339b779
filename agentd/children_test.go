//go:build linux

package agentd

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// ctlEnv makes the test's own program connect to a socket, as whoever it runs as.
const ctlEnv = "MSB_TEST_DIAL"

func TestDialAsAnother(t *testing.T) {
	if path := os.Getenv(ctlEnv); path != "" {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

// TestI15_ChildSocketIsForOneUser: the kernel lets nobody else connect. The twin is a socket that all may write to.
func TestI15_ChildSocketIsForOneUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	dir, err := os.MkdirTemp("/tmp", "msb-children-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "test")
	program, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(self, program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := listenAs(path, "4321:4322")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	info, err := os.Stat(path)
	if st, ok := info.Sys().(*syscall.Stat_t); err != nil || !ok || st.Uid != 4321 || st.Gid != 4322 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	reaches := func(uid uint32) bool {
		cmd := exec.Command(self, "-test.run=^TestDialAsAnother$")
		cmd.Env, cmd.Dir = append(os.Environ(), ctlEnv+"="+path), dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 4322}}
		return cmd.Run() == nil
	}
	for uid, want := range map[uint32]bool{0: true, 4321: true, 4320: false, 65534: false} {
		if got := reaches(uid); got != want {
			t.Errorf("user %d connects: %v, want %v", uid, got, want)
		}
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if !reaches(4320) {
		t.Error("nobody else could connect anyway: the test shows nothing")
	}
	if _, err := listenAs(path, "nobody-of-this-name"); err == nil {
		t.Error("a user that there isn't has a socket")
	}
}

// TestI15_ChildSocketIsTheSupervisorsAlone: it carries what a program sends, and no client of a supervisor can have it.
func TestI15_ChildSocketIsTheSupervisorsAlone(t *testing.T) {
	dir := t.TempDir()
	s := dial(t, agentclient.Options{}, func(s *server) {
		s.children = func(_ *workload.Root, user string) (net.Listener, error) {
			if user != "app" {
				return nil, errors.New("the user is " + user)
			}
			return net.Listen("unix", filepath.Join(dir, "s"))
		}
	})
	ask := agentclient.ListenOptions{Back: agentclient.BackChildren, User: "app"}
	if _, err := proxied(t, s).Listen(t.Context(), ask); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("a client: %v", err)
	}
	if _, err := s.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackChildren}); !errors.Is(err, agentclient.ErrRefused) || !strings.Contains(err.Error(), "children") {
		t.Errorf("a user that can't have it: %v", err)
	}
	l, err := s.Listen(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if l.Path != agentpb.ChildSocket {
		t.Errorf("at %q", l.Path)
	}
	program, err := net.Dial("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	echo(t, l, program)
	l.Close()
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the end of the listener removed what isn't its own: %v", err)
	}
}
