package cachefile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// SumSuffix is behind the name of a file in that of its sum.
	SumSuffix = ".sum"
	// newPrefix begins the name of a file that is being written, and asidePrefix that of a directory that was found in
	// a file's place. Digits follow.
	newPrefix   = ".new-"
	asidePrefix = ".aside-"
)

// mode is every cached file's: nothing writes to one that is in place.
const mode = 0o400

// settled is how long after its last change a file's times tell a later change. Within one tick of the clock that a
// file system takes its times from (10 ms, 2 s on some) they don't.
const settled = 3 * time.Second

// maxSumBytes bounds what is read as a sum.
const maxSumBytes = 512

// Ensure returns once the file at path is what write writes. It calls write only where the file is not there, or was
// changed since. Several processes may do this at once.
func Ensure(path string, write func(io.Writer) error) error {
	return ensure(path, time.Now(), write)
}

func ensure(path string, now time.Time, write func(io.Writer) error) error {
	if intact(path, now) {
		return nil
	}
	h := sha256.New()
	err := replace(path, mode, func(w io.Writer) error { return write(io.MultiWriter(w, h)) })
	if err != nil {
		return err
	}
	return remember(path, hex.EncodeToString(h.Sum(nil)), "")
}

// Write puts a small file in place, whatever is there.
func Write(path string, perm os.FileMode, data []byte) error {
	return replace(path, perm, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// intact compares a file with what is remembered of it.
func intact(path string, now time.Time) bool {
	sum, remembered := recall(path)
	st, ok := look(path)
	if !ok || sum == "" {
		return false
	}
	stamp := stampOf(&st) // from before the file is read: a change meanwhile makes another
	if stamp == remembered {
		return true
	}
	got, err := hash(path)
	if err != nil || got != sum {
		return false
	}
	if now.Sub(time.Unix(st.Ctim.Unix())) > settled {
		_ = remember(path, sum, stamp) // else the next start reads the file again
	}
	return true
}

// look tells whether path is a file as replace leaves it.
func look(path string) (st unix.Stat_t, ok bool) {
	if err := unix.Lstat(path, &st); err != nil {
		return st, false
	}
	return st, st.Mode == unix.S_IFREG|mode && st.Uid == uint32(os.Geteuid())
}

func stampOf(st *unix.Stat_t) string {
	return fmt.Sprintf("%d:%d:%d:%d:%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
}

// recall reads what remember wrote.
func recall(path string) (sum, stamp string) {
	f, err := os.OpenFile(path+SumSuffix, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSumBytes))
	if err != nil {
		return "", ""
	}
	sum, stamp, _ = strings.Cut(strings.TrimSuffix(string(b), "\n"), " ")
	return sum, stamp
}

func remember(path, sum, stamp string) error {
	return Write(path+SumSuffix, 0o600, fmt.Appendf(nil, "%s %s\n", sum, stamp))
}

func hash(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// replace writes a file beside path and renames it: a killed process leaves no half of it under the name that is used.
func replace(path string, perm os.FileMode, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), newPrefix+"*")
	if err != nil {
		return err
	}
	err = write(f)
	err = errors.Join(err, f.Chmod(perm), f.Sync(), f.Close())
	if err == nil {
		err = place(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// place renames a file into place. A directory that is there moves aside: msb made nothing in it, so it deletes nothing.
func place(from, path string) error {
	err := os.Rename(from, path)
	if info, statErr := os.Lstat(path); err == nil || statErr != nil || !info.IsDir() {
		return err
	}
	aside, err := os.MkdirTemp(filepath.Dir(path), asidePrefix+"*")
	if err == nil {
		err = os.Rename(path, filepath.Join(aside, filepath.Base(path)))
	}
	if err != nil {
		return fmt.Errorf("%s is a directory in a file's place: %w; remove it", path, err)
	}
	return os.Rename(from, path)
}
