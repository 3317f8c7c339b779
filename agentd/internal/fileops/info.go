//go:build linux

package fileops

import (
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
)

// check refuses what no path of a process can be.
func check(op string, paths ...string) error {
	for _, p := range paths {
		switch {
		case !path.IsAbs(p) || strings.IndexByte(p, 0) >= 0:
			return &os.PathError{Op: op, Path: p, Err: syscall.EINVAL}
		case len(p) >= unix.PathMax:
			return &os.PathError{Op: op, Path: p[:64] + "…", Err: syscall.ENAMETOOLONG}
		}
	}
	return nil
}

// Stat describes the file at p, or with follow what a link at p leads to.
func Stat(p string, follow bool) (*agentpb.FileInfo, error) {
	if err := check("stat", p); err != nil {
		return nil, err
	}
	stat := os.Lstat
	if follow {
		stat = os.Stat
	}
	st, err := stat(p)
	if err != nil {
		return nil, err
	}
	return info(p, st), nil
}

func info(p string, st os.FileInfo) *agentpb.FileInfo {
	out := &agentpb.FileInfo{Name: []byte(st.Name()), Size: st.Size(), ModifiedUnixNs: st.ModTime().UnixNano()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		out.Mode, out.Uid, out.Gid = sys.Mode, sys.Uid, sys.Gid
	}
	if st.Mode().Type() == os.ModeSymlink {
		target, _ := os.Readlink(p) // gone again: the entry stands without it
		out.Target = []byte(target)
	}
	return out
}

// listBatch is how many entries go into one message: with names of 255 bytes
// and targets of 4,095 they stay below agentpb.MaxMessageBytes.
const listBatch = 128

// List calls send with the entries of the directory p, in the order of names.
func List(p string, send func([]*agentpb.FileInfo) error) error {
	if err := check("list", p); err != nil {
		return err
	}
	entries, err := os.ReadDir(p)
	if err != nil {
		return err
	}
	batch := make([]*agentpb.FileInfo, 0, listBatch)
	for i, e := range entries {
		st, err := e.Info()
		if err == nil { // else it was removed meanwhile
			batch = append(batch, info(path.Join(p, e.Name()), st))
		}
		if len(batch) == listBatch || i == len(entries)-1 {
			if err := send(batch); err != nil {
				return err
			}
			batch = batch[:0:0]
		}
	}
	return nil
}
