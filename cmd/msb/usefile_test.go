package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// asFileUser makes the test's program do with a file, in a guest, what no command does: see useFile.
const asFileUser = "MSB_TEST_USES_FILE"

// useFile maps a file, locks a range of it as SQLite does, opens it exclusively, or does all of posixCases below it.
func useFile(what, file string) error {
	if what == "posix" {
		return checkPOSIX(file)
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	switch what {
	case "map":
		if err := f.Truncate(8192); err != nil {
			return err
		}
		m, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		copy(m[4090:], "over a page's end")
		return unix.Munmap(m)
	case "lock", "hold":
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: 1 << 30, Len: 512}
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l); err != nil {
			return err
		}
		fmt.Println("locked")
		for what == "hold" {
			time.Sleep(time.Hour)
		}
		return nil
	case "exclusive":
		_, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		return err
	}
	return errors.New(what)
}

// maybeUseFile is the whole program where asFileUser is set.
func maybeUseFile() {
	what := os.Getenv(asFileUser)
	if what == "" {
		return
	}
	if err := useFile(what, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
