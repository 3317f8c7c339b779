package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// namedFile is a file that an option names; path is empty if it isn't given.
type namedFile struct {
	option, path string
	written      bool
}

// beginnings are what the files of an option begin with.
var beginnings = map[string]string{
	"--audit":  "{",
	"--pcap":   "\n\r\r\n",
	"--learn":  "# Learned from",
	"--html":   "<!doctype html>",
	"--ca-out": "-----BEGIN CERTIFICATE-----",
}

// holdsOther reports whether there is a non-empty file at path that begins in another way.
func holdsOther(path, beginning string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false // writing to it tells
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, len(beginning))
	n, err := io.ReadFull(f, head)
	return (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) && string(head[:n]) != beginning
}

// readFiles are arguments that are read.
func readFiles(paths []string) []namedFile {
	files := make([]namedFile, 0, len(paths))
	for _, path := range paths {
		files = append(files, namedFile{option: "the argument", path: path})
	}
	return files
}

// apart refuses options whose files can't be written, that would overwrite a file which another option reads or writes, or
// that would overwrite a file of another kind: a typing error must not cost anybody a policy or a capture.
func apart(files []namedFile, help string) error {
	for _, f := range files {
		if !f.written || f.path == "" {
			continue
		}
		if dir := filepath.Dir(f.path); !isDirectory(dir) {
			return &usageError{err: fmt.Errorf("%s %s: there is no directory %s; make it first", f.option, f.path, dir), help: help}
		}
		if isDirectory(f.path) {
			return &usageError{err: fmt.Errorf("%s %s: it is a directory; name a file in it", f.option, f.path), help: help}
		}
	}
	for i, a := range files {
		for _, b := range files[i+1:] {
			if a.path == "" || b.path == "" || !a.written && !b.written || !sameFile(a.path, b.path) {
				continue
			}
			if !a.written {
				a, b = b, a
			}
			return &usageError{err: fmt.Errorf("%s %s would write over the file of %s", a.option, a.path, b.option), help: help}
		}
	}
	for _, f := range files {
		if beginning, ok := beginnings[f.option]; ok && holdsOther(f.path, beginning) {
			return &usageError{err: fmt.Errorf("%s %s: the file holds something else than %s writes; name another one, or remove it first", f.option, f.path, f.option), help: help}
		}
	}
	return nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// sameFile reports whether two paths lead to one regular file, or would once it exists. A pipe or /dev/stdout may be named
// twice.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX == nil && errY == nil {
		return x.Mode().IsRegular() && os.SameFile(x, y)
	}
	if errX == nil || errY == nil {
		return false
	}
	a, errX = filepath.Abs(a)
	b, errY = filepath.Abs(b)
	return errX == nil && errY == nil && a == b
}

// writeWhole replaces a file in one step; if that fails, the old file stays. A pipe or device is written to directly.
func writeWhole(path string, mode os.FileMode, content []byte) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, content, mode)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already if all went well
	_, err = f.Write(content)
	for _, step := range []func() error{func() error { return f.Chmod(mode) }, f.Close} {
		if stepErr := step(); err == nil {
			err = stepErr
		}
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
