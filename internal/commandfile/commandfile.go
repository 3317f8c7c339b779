package commandfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Begin is how the scripts begin. Files that don't are somebody else's.
const Begin = "#!/bin/sh\n# Made by msb install; msb uninstall removes it.\n"

// ours reports whether msb install made the file. fs.ErrNotExist if there is none.
func ours(path string) (bool, error) {
	start, err := startOf(path)
	return err == nil && start == Begin, err
}

// startOf is as much of a file as Begin is long. "" is what is no regular file.
func startOf(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // a FIFO may have come in its place
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	b := make([]byte, len(Begin))
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return string(b[:n]), err
}

// Put writes Begin and a script in one step, and replaces only scripts of msb install.
func Put(path, script string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as other installers make it
		return err
	}
	err := fs.ErrExist
	for i := 0; errors.Is(err, fs.ErrExist) && i < maxTries; i++ { // another Put of this name came between
		err = put(path, script)
	}
	return err
}

// maxTries bounds how often others may come between.
const maxTries = 10

func put(path, script string) error {
	made, err := ours(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return link(path, script)
	case err != nil:
		return err
	case !made:
		return fmt.Errorf("%s is there already, and msb install did not make it; choose another --name or --dir", path)
	}
	temporary, err := write(path, script)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}

// link links the script to its name, which fails if another file has taken it.
func link(path, script string) error {
	temporary, err := write(path, script)
	if err != nil {
		return err
	}
	return errors.Join(os.Link(temporary, path), os.Remove(temporary))
}

const (
	// prefix begins the name of a script that is being written.
	prefix = ".msb-install-"
	// grace is how old one is that a kill left.
	grace = time.Minute
)

// write writes a script beside path, and removes those that a kill left there.
func write(path, script string) (temporary string, err error) {
	dir := filepath.Dir(path)
	there, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, old := range there {
		if !strings.HasPrefix(old.Name(), prefix) {
			continue
		}
		info, err := old.Info()
		if err != nil || time.Since(info.ModTime()) <= grace || !info.Mode().IsRegular() {
			continue
		}
		left := filepath.Join(dir, old.Name())
		if start, err := startOf(left); err == nil && strings.HasPrefix(Begin, start) {
			_ = os.Remove(left) // the next Put tries again
		}
	}
	f, err := os.CreateTemp(dir, prefix)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(Begin + script)
	if err = errors.Join(err, f.Chmod(0o700), f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// Remove removes a script that Put wrote.
func Remove(path string) error {
	made, err := ours(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no command %q in %s: %w; --dir names another directory", filepath.Base(path), filepath.Dir(path), fs.ErrNotExist)
	case err != nil:
		return err
	case !made:
		return fmt.Errorf("%s was not made by msb install, and is left as it is", path)
	}
	return os.Remove(path)
}
