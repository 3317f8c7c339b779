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
	// supervisorArg makes it a supervisor, which starts a VMM and waits to be killed. Its arguments are those of supervisor.
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

// What a VMM is executed from.
const (
	fromItself = "the program that runs"
	fromMemory = "a sealed file without a name"
)

// supervisor says what its VMM was executed from. The small program is the one that runs, if it may have one.
func supervisor(namespaces, small, forbidden, disk string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test has done what it wants to this program's file
	if forbidden != "" {
		if err := forbidMemory(forbidden); err != nil {
			return err
		}
	}
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
		Plan: Plan{Argv: []string{self, victimArg}, Itself: true, ReadWrite: []string{disk}, Devices: []string{"/dev/null"}},
	}
	if small == "true" {
		l.Program = ofFile(ThisProgram)
	}
	log, err := newConsole("")
	if err != nil {
		return err
	}
	m, err := l.attempt(context.Background(), log, namespaces == "true")
	if err != nil {
		return err
	}
	from, err := executedFrom(m.PID(), ThisProgram)
	if err != nil {
		return err
	}
	fmt.Println("ready:", from)
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
	for _, tt := range supervisors {
		supervise(t, exe(t), tt, nil, func(string) error { return nil })
	}
}

// way is how a supervisor starts its VMM: the first arguments of supervisor, and what the VMM is executed from.
type way struct{ namespaces, small, forbidden, from string }

var supervisors = []way{
	{"true", "false", "", fromItself}, {"false", "false", "", fromItself},
	{"true", "true", "", fromMemory}, {"false", "true", "", fromMemory},
}

// supervise starts a supervisor, changes its file before it starts its VMM, looks at that and kills the supervisor.
func supervise(t *testing.T, program string, tt way, attr *unix.SysProcAttr, change func(program string) error) {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write, over := alive(t)
	cmd := exec.CommandContext(t.Context(), program, supervisorArg, tt.namespaces, tt.small, tt.forbidden, disk)
	cmd.ExtraFiles, cmd.SysProcAttr = []*os.File{write}, attr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, unix.EPERM) && attr != nil {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(change(program), in.Close()); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 500)
	if n, err := out.Read(said); err != nil || string(said[:n]) != "ready: "+tt.from+"\n" {
		t.Errorf("%+v: the supervisor says %q, %v", tt, said[:n], err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := over(); err != nil {
		t.Errorf("%+v: the VMM outlives its supervisor: %v", tt, err)
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
		t.Log(name)
		for _, tt := range supervisors {
			build, err := os.ReadFile(exe(t))
			if err != nil {
				t.Fatal(err)
			}
			installed := filepath.Join(t.TempDir(), "msb")
			if err := os.WriteFile(installed, build, 0o700); err != nil {
				t.Fatal(err)
			}
			supervise(t, installed, tt, nil, upgrade)
		}
	}
}
