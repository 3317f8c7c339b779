package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// parentArg makes the test's program a VMM with a child, which a filter would refuse; with a second argument it
	// ends then.
	parentArg = "__parent-for-test"
	// supervisorArg makes it a supervisor, which starts a VMM and waits to be killed.
	supervisorArg = "__supervisor-for-test"
	// aliveFD is open in the processes of which a test wants to know whether they live.
	aliveFD = FirstFileFD + 2
	// aliveGrace is how long a process may take that was killed.
	aliveGrace = 30 * time.Second
)

func parent(args []string) {
	self, err := os.Executable()
	if err == nil {
		cmd := exec.Command(self, victimArg)
		cmd.ExtraFiles = []*os.File{os.NewFile(aliveFD, "alive")}
		err = cmd.Start()
	}
	_, _ = fmt.Fprintln(os.NewFile(FirstFileFD, "agent"), errText(err))
	if len(args) == 0 {
		select {}
	}
}

func supervisor(namespaces bool, disk string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test has done what it wants to this program's file
	agent, agentFD, err := StreamPair("agent")
	if err != nil {
		return err
	}
	console, consoleFD, err := StreamPair("console")
	if err != nil {
		return err
	}
	directories, _ := net.Pipe() // the VMM has no end of it
	l := Launch{
		agent: agent, dirs: directories, Console: console, Files: []*os.File{agentFD, consoleFD, os.NewFile(3, "alive")},
		Plan: Plan{Argv: []string{self, victimArg}, Itself: true, ReadOnly: Libraries(ThisProgram), ReadWrite: []string{disk}, Devices: []string{"/dev/null"}},
	}
	log, err := newConsole("")
	if err != nil {
		return err
	}
	m, err := l.attempt(context.Background(), log, namespaces)
	if err != nil {
		return err
	}
	own, err := os.Stat(ThisProgram)
	if err != nil {
		return err
	}
	if vmm, err := os.Stat(fmt.Sprintf("/proc/%d/exe", m.PID())); err != nil || !os.SameFile(own, vmm) {
		return fmt.Errorf("the VMM is another program: %w", err)
	}
	fmt.Println("ready")
	select {}
}

// alive returns a pipe whose writing end is for the processes that are watched, and what waits until all have ended.
func alive(t *testing.T) (write *os.File, over func() error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return w, func() error {
		_ = w.Close() // a launch may have done it
		if err := r.SetReadDeadline(time.Now().Add(aliveGrace)); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, r)
		return err
	}
}

// TestI13_WhatAVMMMadeEndsWithIt: no process of its group outlives it, however it ends. The filter, which lets it make
// none, is off.
func TestI13_WhatAVMMMadeEndsWithIt(t *testing.T) { // not parallel: a child of another test would hold the pipe
	for _, ends := range []string{"killed", "by itself"} {
		_, ro, rw := files(t)
		argv := []string{exe(t), parentArg}
		if ends == "by itself" {
			argv = append(argv, ends)
		}
		l := launch(t, argv, ro, rw)
		l.Recording = new(Recording)
		write, over := alive(t)
		l.Files = append(l.Files, write)
		log, err := newConsole("")
		if err != nil {
			t.Fatal(err)
		}
		m, err := l.attempt(t.Context(), log, false)
		closeAll(l.Files)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := io.ReadAll(io.LimitReader(m.Agent(), 1)); err != nil || string(line) != "\n" {
			t.Fatalf("its child can't be made: %q, %v", line, err)
		}
		if ends == "killed" {
			go func() { _ = m.Kill() }() // it waits for all who write to its standard error
		}
		if err := over(); err != nil {
			t.Errorf("it was ended (%s) and its child lives: %v", ends, err)
			_ = unix.Kill(-m.PID(), unix.SIGKILL)
		}
		<-m.Done()
	}
}

// TestI13_AVMMDiesWithItsSupervisor, though nobody is left who could end it.
func TestI13_AVMMDiesWithItsSupervisor(t *testing.T) { // not parallel: as above
	for _, namespaces := range []string{"true", "false"} {
		write, over := alive(t)
		disk := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(disk, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), exe(t), supervisorArg, namespaces, disk)
		cmd.ExtraFiles = []*os.File{write}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 100)
		if n, err := out.Read(said); err != nil || string(said[:n]) != "ready\n" {
			t.Errorf("namespaces %s: the supervisor says %q, %v", namespaces, said[:n], err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := over(); err != nil {
			t.Errorf("namespaces %s: the VMM outlives its supervisor: %v", namespaces, err)
		}
	}
}

// TestI13_UpgradedSupervisorsStartTheirOwnVMM: an upgrade renames another build over the file of a supervisor that runs, or
// removes it; the machine that it starts after that is its own build's.
func TestI13_UpgradedSupervisorsStartTheirOwnVMM(t *testing.T) { // not parallel: a child of another test would hold the pipe
	for name, upgrade := range map[string]func(installed string) error{
		"as it was": func(string) error { return nil },
		"removed":   os.Remove,
		"replaced": func(installed string) error {
			other := installed + ".new"
			return errors.Join(os.WriteFile(other, []byte("#!/bin/sh\nexit 1\n"), 0o700), os.Rename(other, installed))
		},
	} {
		for _, namespaces := range []string{"true", "false"} {
			build, err := os.ReadFile(exe(t))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			installed, disk := filepath.Join(dir, "msb"), filepath.Join(dir, "disk")
			if err := errors.Join(os.WriteFile(installed, build, 0o700), os.WriteFile(disk, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			write, over := alive(t)
			cmd := exec.CommandContext(t.Context(), installed, supervisorArg, namespaces, disk)
			cmd.ExtraFiles = []*os.File{write}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(upgrade(installed), in.Close()); err != nil {
				t.Fatal(err)
			}
			said := make([]byte, 500)
			if n, err := out.Read(said); err != nil || string(said[:n]) != "ready\n" {
				t.Errorf("%s, namespaces %s: %q, %v", name, namespaces, said[:n], err)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if err := over(); err != nil {
				t.Error(err)
			}
		}
	}
}
