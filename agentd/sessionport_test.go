//go:build linux

package agentd

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
)

// cutConn is the host's end of a port until the machine is saved: what its host does from then on doesn't reach the guest
// that goes on from there.
type cutConn struct {
	net.Conn
	gone atomic.Bool
}

var _ net.Conn = (*cutConn)(nil)

var errCut = errors.New("the machine was saved")

func (c *cutConn) cut() {
	c.gone.Store(true)
	_ = c.SetReadDeadline(time.Unix(1, 0))
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.gone.Load() {
		return 0, errCut
	}
	return n, err
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.gone.Load() {
		return 0, errCut
	}
	return c.Conn.Write(b)
}

func (*cutConn) Close() error { return nil }

func keyOf(b byte) []byte { return bytes.Repeat([]byte{b}, agentpb.ResumeKeyBytes) }

// awaitThat looks until is is true.
func awaitThat(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}

// TestSavedSessionsKeepTheirProcesses: a machine is saved while a process floods its output, another reads its input, and
// HTTP/2 is in the middle of frames. The host that it goes on with has a session as good as the first, and the processes
// are there. The twin has the stream end: they are killed.
func TestSavedSessionsKeepTheirProcesses(t *testing.T) {
	t.Run("goes on", func(t *testing.T) { savedSession(t, true) })
	t.Run("its stream ends", func(t *testing.T) { savedSession(t, false) })
}

func savedSession(t *testing.T, resumed bool) {
	t.Helper()
	s := newSession(t)
	port := &cutConn{Conn: s.host}
	first, err := agentclient.Dial(t.Context(), port, agentclient.Options{ResumeKey: keyOf(1), Env: []string{"WHICH=first"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	counted, read, stop := filepath.Join(dir, "counted"), filepath.Join(dir, "read"), filepath.Join(dir, "stop")
	ended := make(chan struct{}, 2)
	exec := func(o agentclient.ExecOptions) {
		go func() {
			_, _ = first.Exec(t.Context(), o) // its client goes with the host
			ended <- struct{}{}
		}()
	}
	flood := script(`until [ -e ` + stop + ` ]; do echo . >>` + counted + `; head -c 300000 /dev/zero; done; echo over >>` + counted)
	flood.Stdout = discardSlowly{}
	exec(flood)
	stdin, feed := net.Pipe()
	cat := script(`cat >>` + read + `; echo end >>` + read)
	cat.Stdin = stdin
	exec(cat)
	if _, err := feed.Write([]byte("before ")); err != nil {
		t.Fatal(err)
	}
	awaitThat(t, "both run", func() bool { return sizeOf(counted) > 0 && sizeOf(read) > 0 })
	port.cut()
	<-ended
	<-ended
	_ = feed.Close()
	_ = first.Close()
	if !resumed {
		_ = s.host.Close()
		s.served <- <-s.served
		size := sizeOf(counted)
		time.Sleep(50 * time.Millisecond)
		if sizeOf(counted) != size {
			t.Error("the host has gone, and its processes run")
		}
		return
	}
	if err := s.host.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	conn, err := agentclient.Rejoin(t.Context(), s.host, keyOf(1))
	if err != nil {
		t.Fatal(err)
	}
	second, err := agentclient.Dial(t.Context(), conn, agentclient.Options{Resumed: true, ResumeKey: keyOf(2), Env: []string{"WHICH=second"}})
	if err != nil {
		t.Fatal(err)
	}
	if req := s.machine.request; !req.GetResumed() || len(req.GetEntropy()) == 0 || bytes.Equal(req.GetEntropy(), make([]byte, 64)) {
		t.Errorf("the guest got %v", req)
	}
	size := sizeOf(counted)
	awaitThat(t, "the process whose output nobody reads goes on", func() bool { return sizeOf(counted) > size+20 })
	awaitThat(t, "the other one's input ends", func() bool { text, _ := os.ReadFile(read); return string(text) == "before end\n" })
	s.Client = second
	if got := s.run(t, script("echo $WHICH; cat "+read)); got.out != "second\nbefore end\n" {
		t.Errorf("%+v", got)
	}
	execs := func() int {
		stats, err := second.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.Execs
	}
	awaitThat(t, "the one that ended gives its place back", func() bool { return execs() == 1 })
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitThat(t, "it ends by itself", func() bool { text, _ := os.ReadFile(counted); return strings.HasSuffix(string(text), "over\n") })
	awaitThat(t, "the other one, too", func() bool { return execs() == 0 })
	_ = second.Close()
}

// discardSlowly keeps the host from reading as fast as a process writes.
type discardSlowly struct{}

func (discardSlowly) Write(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return len(b), nil
}

// TestOnlyTheKeyBeginsAnotherSession: other bytes are the session's, and so are the key's own among others.
func TestOnlyTheKeyBeginsAnotherSession(t *testing.T) {
	s := dial(t, agentclient.Options{ResumeKey: keyOf(1)})
	c := script("cat")
	c.Stdin = bytes.NewReader(append(keyOf(1), keyOf(1)...)) // in HTTP/2's frames
	if got := s.run(t, c); got.out != string(append(keyOf(1), keyOf(1)...)) {
		t.Errorf("%q", got.out)
	}
}

// TestMachinesAreConfiguredOnce: another session only goes on, and no first one does.
func TestMachinesAreConfiguredOnce(t *testing.T) {
	raw := newSession(t)
	first := &cutConn{Conn: raw.host}
	client, err := agentclient.Dial(t.Context(), first, agentclient.Options{ResumeKey: keyOf(3)})
	if err != nil {
		t.Fatal(err)
	}
	first.cut()
	_ = client.Close()
	_ = raw.host.SetReadDeadline(time.Time{})
	conn, err := agentclient.Rejoin(t.Context(), raw.host, keyOf(3))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agentclient.Dial(t.Context(), conn, agentclient.Options{}); !errors.Is(err, agentclient.ErrRefused) || !strings.Contains(err.Error(), "configured once") {
		t.Errorf("configured twice: %v", err)
	}
}

// TestUnsavedMachinesHaveOneSession: without a key, what begins like another session breaks this one.
func TestUnsavedMachinesHaveOneSession(t *testing.T) {
	without := newSession(t)
	port := &cutConn{Conn: without.host}
	client, err := agentclient.Dial(t.Context(), port, agentclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	port.cut()
	_ = client.Close()
	_ = without.host.SetReadDeadline(time.Time{})
	if _, err := agentclient.Rejoin(t.Context(), without.host, keyOf(3)); !errors.Is(err, agentclient.ErrAgentDead) {
		t.Errorf("a session without a key: %v", err)
	}
}

// TestFreshMachinesDontGoOn: one that was never configured.
func TestFreshMachinesDontGoOn(t *testing.T) {
	fresh := newSession(t)
	if _, err := agentclient.Dial(t.Context(), fresh.host, agentclient.Options{Resumed: true}); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("a machine that was never configured: %v", err)
	}
}
