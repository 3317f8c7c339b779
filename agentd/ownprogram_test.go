//go:build linux

package agentd

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pkg/sftp"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
)

// TestSFTPServerIsTheAgentsOwn works with files over the SFTP server that Exec starts.
func TestSFTPServerIsTheAgentsOwn(t *testing.T) {
	s := dial(t, agentclient.Options{})
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan agentclient.ExitStatus, 1)
	dir := t.TempDir()
	go func() {
		st, err := s.Exec(t.Context(), agentclient.ExecOptions{
			Argv: []string{agentpb.SFTPServer}, AgentsOwn: true, Env: []string{"HOME=" + dir}, Stdin: in, Stdout: out,
		})
		if err != nil {
			t.Error(err)
		}
		out.Close()
		ended <- st
	}()
	c, err := sftp.NewClientPipe(fromServer, toServer)
	if err != nil {
		t.Fatal(err)
	}
	if wd, err := c.Getwd(); err != nil || wd != dir {
		t.Errorf("it begins in %q, %v", wd, err)
	}
	want := make([]byte, 1<<20)
	_, _ = rand.Read(want)
	f, err := c.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFrom(bytes.NewReader(want)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(f.Close(), c.Chmod(f.Name(), 0o640)); err != nil {
		t.Error(err)
	}
	got, err := os.ReadFile(f.Name())
	if info, e := os.Stat(f.Name()); err != nil || !bytes.Equal(got, want) || e != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%d bytes, %v, %v", len(got), info, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	toServer.Close()
	if st := <-ended; st.Code != 0 {
		t.Errorf("it ended with %+v", st)
	}
}

// TestAgentsOwnProgramsAreNamed asks for the agent's programs by other names, and for the image's by the agent's.
func TestAgentsOwnProgramsAreNamed(t *testing.T) {
	s := dial(t, agentclient.Options{})
	for _, argv := range [][]string{{"sh"}, {agentpb.SFTPServer, "-x"}, {"agentd"}} {
		if _, err := s.Exec(t.Context(), agentclient.ExecOptions{Argv: argv, AgentsOwn: true}); !errors.Is(err, agentclient.ErrRefused) {
			t.Errorf("%q: got %v", argv, err)
		}
	}
	if got := s.run(t, agentclient.ExecOptions{Argv: []string{agentpb.SFTPServer}}); got.StartError != agentclient.NotFound {
		t.Errorf("without AgentsOwn: got %+v", got)
	}
}

// TestI11_BadSFTPPacketsEndTheServer, with little memory however long a packet is said to be, and leave the agent as it is:
// clients of ssh send what they like.
func TestI11_BadSFTPPacketsEndTheServer(t *testing.T) {
	s := dial(t, agentclient.Options{})
	hello := []byte{0, 0, 0, 5, 1, 0, 0, 0, 3}
	for what, c := range map[string]struct {
		packets []byte
		ends    int32
	}{
		"only a greeting":       {hello, 0},
		"nothing":               {nil, 0},
		"4 GiB":                 {append(slices.Clone(hello), 0xff, 0xff, 0xff, 0xff, 5), 1},
		"1 MiB":                 {append(slices.Clone(hello), 0, 0x10, 0, 0, 5), 1},
		"cut short":             {append(slices.Clone(hello), 0, 0, 0, 9, 5), 1},
		"without a type":        {append(slices.Clone(hello), 0, 0, 0, 0), 1},
		"of an unknown type":    {append(slices.Clone(hello), 0, 0, 0, 5, 99, 0, 0, 0, 1), 1},
		"a string out of range": {append(slices.Clone(hello), 0, 0, 0, 9, 17, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff), 1},
	} {
		var out bytes.Buffer
		st, err := s.Exec(t.Context(), agentclient.ExecOptions{
			Argv: []string{agentpb.SFTPServer}, AgentsOwn: true, Stdin: bytes.NewReader(c.packets), Stdout: &out, Stderr: io.Discard,
		})
		if err != nil || int32(st.Code) != c.ends || st.Signal != 0 {
			t.Errorf("%s: it ended with %+v, %v, want exit code %d", what, st, err, c.ends)
		}
		if got := s.run(t, agentclient.ExecOptions{Argv: []string{"true"}}); got.Code != 0 {
			t.Errorf("%s: the agent then starts nothing: %+v", what, got)
		}
	}
}
