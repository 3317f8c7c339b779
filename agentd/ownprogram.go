//go:build linux

package agentd

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/pkg/sftp"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/childctl"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// self is the agent's own program. It is opened in the agent's root, which the workload doesn't see.
var self = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/exe") })

// RunOwnProgram is the whole life of a process that Exec started as one of the agent's own programs, or by way of it: it returns its exit
// code, and false in every other process. What such a process reads comes from the host's client; it has the rights of
// the user it runs as.
func RunOwnProgram() (code int, ok bool) {
	switch {
	case os.Args[0] == workload.ContainerStageName: // which is the first process of its own namespace
		return workload.RunContainerStage(), true
	case os.Getpid() == 1:
		return 0, false
	case os.Args[0] == workload.StageName:
		return workload.RunStage(os.Args), true
	case filepath.Base(os.Args[0]) == filepath.Base(agentpb.ChildProgram):
		return childctl.Run(os.Args[1:], agentpb.ChildSocket, os.Stdout, os.Stderr), true
	case os.Args[0] != agentpb.SFTPServer:
		return 0, false
	}
	if err := serveFiles(); err != nil {
		os.Stderr.WriteString("sftp: " + err.Error() + "\n")
		return 1, true
	}
	return 0, true
}

// serveFiles is an SFTP server on standard input and output, which begins in the user's home as sshd's does.
func serveFiles() error {
	_ = os.Chdir(os.Getenv("HOME")) // an image may have a user without one: then it begins in "/"
	server, err := sftp.NewServer(stdio{os.Stdin, os.Stdout})
	if err != nil {
		return err
	}
	defer server.Close()
	if err := server.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

type stdio struct {
	io.Reader
	io.WriteCloser
}
