package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/owned"
)

// The marker says that a directory is a state directory: its content is markerText and nothing else.
const (
	markerFile = "msb-home"
	markerText = "This directory holds the state of msb, which removes what its sandboxes leave here.\n"
)

// claim makes sure that dir is a state directory that msb made. One without a marker is adopted if it is empty or holds
// nothing but what msb makes: an older msb wrote no marker, and a killed one perhaps half of it.
func claim(dir string) error {
	home, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrHome, err)
	}
	defer func() { _ = home.Close() }()
	marker := filepath.Join(dir, markerFile)
	fd, err := unix.Openat(int(home.Fd()), markerFile, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	var text []byte
	if err != nil {
		err = &os.PathError{Op: "open", Path: marker, Err: err}
	} else {
		f := os.NewFile(uintptr(fd), marker)
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && info.Mode().IsRegular() {
			text, err = io.ReadAll(io.LimitReader(f, int64(len(markerText))+1))
		}
		err = errors.Join(err, f.Close())
	}
	switch {
	case err == nil && string(text) == markerText:
		return nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), !bytes.HasPrefix([]byte(markerText), text): // a link, a socket
		return foreignHome(dir, marker+" is no marker of msb's")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", ErrHome, err)
	}
	if err := owned.Check(home, homeForm); errors.Is(err, owned.ErrForeign) {
		return foreignHome(dir, err.Error())
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrHome, err)
	}
	fd, err = unix.Openat(int(home.Fd()), markerFile, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("the marker of the state directory %s: %w", dir, err)
	}
	f := os.NewFile(uintptr(fd), filepath.Join(dir, markerFile))
	_, err = f.WriteString(markerText)
	return errors.Join(err, f.Close())
}

func foreignHome(dir, what string) error {
	return fmt.Errorf("%w: %s has no marker of msb's (%s) and is not empty (%s); set %s to an empty directory, or to one that is not there yet",
		ErrHome, dir, markerFile, what, EnvHome)
}
