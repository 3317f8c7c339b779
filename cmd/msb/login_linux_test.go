package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// TestI8_PasswordsAreNotShown on the terminal, and a signal leaves the terminal as it was.
func TestI8_PasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	host := registryOf(t, "secret")
	for _, interrupted := range []bool{false, true} {
		master, slave, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		cmd := command(t, []string{"DOCKER_CONFIG=" + t.TempDir(), "HOME=" + t.TempDir()}, "login", host)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var seen bytes.Buffer
		until := func(text string) {
			b := make([]byte, 1)
			for !strings.Contains(seen.String(), text) {
				if _, err := master.Read(b); err != nil {
					t.Fatalf("%v after %q", err, &seen)
				}
				seen.Write(b)
			}
		}
		type_ := func(keys string) {
			if _, err := io.WriteString(master, keys); err != nil {
				t.Fatal(err)
			}
		}
		until("Username: ")
		type_("me\n")
		until("Password: ")
		for echoes(t, slave) { // it is switched off right after the question
		}
		if interrupted {
			type_("sec\x03")
			until("\n")
			_ = cmd.Wait()
			if cmd.ProcessState.ExitCode() != exitSignalled(syscall.SIGINT) || !echoes(t, slave) {
				t.Errorf("code %d, echo %t", cmd.ProcessState.ExitCode(), echoes(t, slave))
			}
		} else {
			type_("secret\n")
			until("Login Succeeded")
			if err := cmd.Wait(); err != nil || strings.Contains(seen.String(), "secret") {
				t.Errorf("%v; %q", err, &seen)
			}
		}
		_, _ = slave.Close(), master.Close()
	}
}

func echoes(t *testing.T, terminal *os.File) bool {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return mode.Lflag&unix.ECHO != 0
}
