//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// insideVerb makes this program the one that works in the guest. It prints figures as JSON.
const insideVerb = "inside"

func inside(args []string) error {
	if len(args) == 2 && args[0] == "memory" {
		return serveMemory(args[1])
	}
	if len(args) < 3 {
		return errors.New("inside: want what, directory, number")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	f := values{}
	switch args[0] {
	case "exec":
		err = insideExec(f, n)
	case "meta":
		err = insideMeta(f, filepath.Join(args[1], "meta"), n)
	case "stream":
		err = insideStream(f, filepath.Join(args[1], "stream"), n)
	case "tool":
		err = insideTool(f, args[1], args[3:])
	default:
		err = fmt.Errorf("inside: no %q", args[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// dropCaches makes the guest forget what it has read.
func dropCaches() error {
	unix.Sync()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}

func insideExec(f values, n int) error {
	for range n + 1 {
		began := time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			return err
		}
		f.took(seriesFork, time.Since(began))
	}
	f[seriesFork] = f[seriesFork][1:] // the first reads the program from the disk
	return nil
}

// smallFile is what a small file holds.
var smallFile = make([]byte, 1000)

// insideMeta makes n files in 10 directories and does to them what tools do.
func insideMeta(f values, dir string, n int) error {
	name := func(i int) string { return filepath.Join(dir, strconv.Itoa(i%10), fmt.Sprintf("file-%d", i)) }
	each := func(do func(path string) error) func() error {
		return func() error {
			for i := range n {
				if err := do(name(i)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for i := range 10 {
		if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(i)), 0o755); err != nil {
			return err
		}
	}
	missing := func(path string) error {
		if _, err := os.Lstat(path + ".missing"); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s.missing: %w", path, err)
		}
		return nil
	}
	steps := []struct {
		series string
		cold   bool
		do     func() error
	}{
		{"make", false, each(func(p string) error { return os.WriteFile(p, smallFile, 0o644) })},
		{"stat", true, each(func(p string) error { _, err := os.Lstat(p); return err })},
		{"stat missing", false, each(missing)},
		{"stat missing again", false, each(missing)},
		{"list", true, func() error {
			return filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
				if err == nil {
					_, err = d.Info()
				}
				return err
			})
		}},
		{"read", true, each(func(p string) error { _, err := os.ReadFile(p); return err })},
		{"read again", false, each(func(p string) error { _, err := os.ReadFile(p); return err })},
		{"rename", false, each(func(p string) error { return os.Rename(p, p+".new") })},
		{"remove", false, each(func(p string) error { return os.Remove(p + ".new") })},
	}
	var all time.Duration
	for _, s := range steps {
		if s.cold {
			if err := dropCaches(); err != nil {
				return err
			}
		}
		began := time.Now()
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.series, err)
		}
		took := time.Since(began)
		all += took
		f.add(s.series+metaSuffix, float64(n)/took.Seconds())
	}
	f.add(seriesMeta, float64(n*len(steps))/all.Seconds())
	return os.RemoveAll(dir)
}

// insideStream writes a file in order, synced, and reads it with nothing cached.
func insideStream(f values, path string, mib int) error {
	rate := func(began time.Time) float64 { return float64(mib) / time.Since(began).Seconds() }
	buf := make([]byte, 1<<20)
	for i := range buf {
		buf[i] = byte(i*7 + i>>8)
	}
	w, err := os.Create(path)
	if err != nil {
		return err
	}
	began := time.Now()
	for range mib {
		if _, err := w.Write(buf); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	if err := errors.Join(w.Sync(), w.Close()); err != nil {
		return err
	}
	f.add(seriesWrite, rate(began))
	if err := dropCaches(); err != nil {
		return err
	}
	r, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was read
	began = time.Now()
	if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf); err != nil || n != int64(mib)<<20 {
		return fmt.Errorf("read %d bytes: %w", n, err)
	}
	f.add(seriesRead, rate(began))
	return os.Remove(path)
}

// insideTool times a command in a directory.
func insideTool(f values, dir string, argv []string) error {
	if err := dropCaches(); err != nil {
		return err
	}
	cmd := exec.Command(argv[1], argv[2:]...)
	cmd.Dir = dir
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", argv[1], err, out)
	}
	f.took(argv[0], time.Since(began))
	return nil
}
