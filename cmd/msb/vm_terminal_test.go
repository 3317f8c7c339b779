//go:build vmtest

package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is an msb whose standard streams are a terminal, as a person's are.
type terminal struct {
	*running
	master, slave *os.File
	before        unix.Termios
}

func onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	return terminalOf(t, command(t, nil, runArgs(args)...))
}

// terminalOf starts a command in a terminal.
func terminalOf(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	tt := &terminal{running: &running{Cmd: cmd, ended: make(chan struct{})}, master: master, slave: slave}
	tt.before = tt.mode(t)
	tt.resize(t, 33, 101)
	tt.Stdin, tt.Stdout, tt.Stderr = slave, slave, slave
	tt.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&tt.out, master) // ends with the terminal
	}()
	t.Cleanup(func() { _ = slave.Close(); _ = master.Close(); <-read })
	tt.start(t)
	return tt
}

func (tt *terminal) mode(t *testing.T) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(tt.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

func (tt *terminal) resize(t *testing.T, rows, cols uint16) {
	t.Helper()
	if err := pty.Setsize(tt.master, &pty.Winsize{Rows: rows, Cols: cols}); err != nil {
		t.Fatal(err)
	}
}

func (tt *terminal) key(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(tt.master, keys); err != nil {
		t.Fatal(err)
	}
}

// end waits for msb and looks at the terminal that it leaves to its user.
func (tt *terminal) end(t *testing.T, code int) {
	t.Helper()
	if got := tt.wait(t); got.code != code {
		t.Errorf("exit %d, want %d:\n%s", got.code, code, got.out)
	}
	if now := tt.mode(t); now != tt.before {
		t.Errorf("the terminal is left as %+v, was %+v", now, tt.before)
	}
	nothingLeft(t, stateDirectory())
}

func TestVMTerminalsHaveSizeAndKeys(t *testing.T) {
	tt := onTerminal(t, "-it", "--", "sh", "-c", `tty; stty size; echo steady; read line; echo "got $line"
		until stty size | grep '^44 111'; do sleep 0.1; done # a key may come before the size that changed before it
		trap 'echo interrupted; exit 9' INT; echo again; while :; do sleep 1; done`)
	tt.out.await(t, "steady")
	if got := tt.out.String(); !strings.Contains(got, "/dev/pts/") || !strings.Contains(got, "33 101") {
		t.Errorf("inside: %q, want a pts of 33 rows and 101 columns", got)
	}
	if tt.mode(t).Lflag&unix.ISIG != 0 {
		t.Error("the user's terminal is not raw: keys do not reach the guest")
	}
	tt.resize(t, 44, 111)
	tt.key(t, "\x1b[A\xc3\xa4 typed\r") // an arrow key and a letter of two bytes go through
	tt.out.await(t, "\u00e4 typed\r\n44 111")
	tt.out.await(t, "again")
	tt.key(t, "\x03")
	tt.out.await(t, "interrupted")
	tt.end(t, 9)
}

func TestVMTerminalsWithoutStdinObeyCtrlC(t *testing.T) {
	tt := onTerminal(t, "-t", "--", "sh", "-c", `trap 'echo interrupted; exit 8' INT; echo steady; while :; do sleep 1; done`)
	tt.out.await(t, "steady")
	tt.key(t, "\x03")
	tt.end(t, 8)
}

func TestVMTerminalsAreRestored(t *testing.T) {
	tt := onTerminal(t, "-it", "--", "sh", "-c", "echo steady; read x; kill -SEGV 1; sleep 1000")
	tt.out.await(t, "steady")
	tt.key(t, "\r")
	tt.end(t, exitAgent)
}

func TestVMTerminalInsideThoughOutsideIsNone(t *testing.T) {
	vmRun(t, "-t", "--", "sh", "-c", "stty size; test -t 1 && test -t 2 && echo terminal").want(t, 0, "24 80\r\nterminal\r\n")
}

func TestVMSignals(t *testing.T) {
	t.Run("Ctrl-C goes to the guest", func(t *testing.T) {
		r := background(t, "--", "sh", "-c", "trap 'echo interrupted; exit 5' INT; echo steady; while :; do sleep 1; done")
		r.out.await(t, "steady")
		r.signal(t, os.Interrupt)
		r.wait(t).want(t, 5, "steady\ninterrupted\n")
		nothingLeft(t, stateDirectory())
	})
	t.Run("a second one kills", func(t *testing.T) {
		r := background(t, "--", "sh", "-c", "trap 'echo again' INT; echo steady; while :; do sleep 1; done")
		r.out.await(t, "steady")
		r.signal(t, os.Interrupt)
		r.out.await(t, "again")
		r.signal(t, os.Interrupt)
		r.wait(t).want(t, exitSignalled(syscall.SIGINT), "steady\nagain\n")
		nothingLeft(t, stateDirectory())
	})
	t.Run("SIGTERM goes to the guest", func(t *testing.T) {
		r := background(t, "--", "sh", "-c", "trap 'echo term; exit 6' TERM; echo steady; while :; do sleep 1; done")
		r.out.await(t, "steady")
		r.signal(t, syscall.SIGTERM)
		r.wait(t).want(t, 6, "steady\nterm\n")
		nothingLeft(t, stateDirectory())
	})
	t.Run("and ends a command that does not care", func(t *testing.T) {
		r := background(t, "--", "sh", "-c", "echo steady; exec sleep 1000")
		r.out.await(t, "steady")
		r.signal(t, syscall.SIGTERM)
		r.wait(t).want(t, exitSignalled(syscall.SIGTERM), "steady\n")
		nothingLeft(t, stateDirectory())
	})
	for name, sig := range map[string]syscall.Signal{"Ctrl-C": syscall.SIGINT, "SIGTERM": syscall.SIGTERM} {
		t.Run(name+" while it boots", func(t *testing.T) {
			r := background(t, "--", "true")
			eventually(t, "a VMM", func() bool { return len(processesBelow(r.Process.Pid)) >= 2 })
			r.signal(t, sig)
			r.wait(t).want(t, exitSignalled(sig), "")
			nothingLeft(t, stateDirectory())
		})
	}
}

func TestI13_VMKilledMSBLeavesNothing(t *testing.T) {
	r := background(t, "--disk", "64M", "--", "sh", "-c", "echo steady; exec sleep 1000")
	r.out.await(t, "steady")
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-r.ended
	eventually(t, "the end of every process", func() bool { return len(processesBelow(os.Getpid())) == 0 })
	nothingLeft(t, stateDirectory())
}
