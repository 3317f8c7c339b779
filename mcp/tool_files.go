package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"
	"syscall"

	"github.com/msb-project/msb/agentd/agentclient"
)

const (
	// maxFiles bounds one call of fs_write; its bytes are bounded by maxLine.
	maxFiles = 256
	// maxEntries bounds what is listed of a directory.
	maxEntries = 500
	// maxListings bounds the directories that are read at once: each may have a million entries, which take 200 MB of
	// memory.
	maxListings = 2
)

// fileTools are the tools on a sandbox's files.
type fileTools struct {
	*boxes
	listing chan struct{} // held by calls that list a directory
}

func (t fileTools) fsRead(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		Sandbox string `json:"sandbox"`
		Path    string `json:"path"`
		Offset  int64  `json:"offset"`
		Length  int64  `json:"length"`
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	if err := guestPath(a.Path); err != nil {
		return "", err
	}
	if a.Offset < 0 || a.Length < 0 || a.Offset > math.MaxInt64-maxRead {
		return "", wrong("offset and length are bytes, at least 0, and lie in a file")
	}
	if a.Length == 0 {
		a.Length = outputBudget
	}
	a.Length = min(a.Length, maxRead)
	m, _, err := t.use(ctx, a.Sandbox)
	if err != nil {
		return "", err
	}
	defer func() { _ = m.Close() }() // the session's
	info, err := m.Files().Stat(ctx, a.Path, true)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return "", say("%s is a directory: fs_list shows what is in it", printed(a.Path))
	}
	r, err := m.Files().Open(ctx, a.Path, a.Offset, a.Length)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }() // it was only read
	part, err := io.ReadAll(io.LimitReader(r, a.Length))
	if err != nil {
		return "", err
	}
	n := int64(len(part))
	c := capture{head: part, total: n}
	more := n == a.Length && a.Offset+n != info.Size()
	if more {
		n -= c.cut()
	}
	text, _ := c.shown("file", max(int(a.Length), outputBudget))
	return readPart(a.Path, a.Offset, a.Offset+n, info.Size(), more) + "\n" + text, nil
}

// readPart says which part of a file was read, and whether there is more. The guest's size is wrong for files of /proc and
// /sys, and for a file that changes.
func readPart(path string, from, to, size int64, more bool) string {
	if from == to && from > size && size > 0 {
		return fmt.Sprintf("%s has %d bytes: there is nothing at offset %d", printed(path), size, from)
	}
	line := fmt.Sprintf("%s: bytes %d to %d", printed(path), from, to)
	if to == size || more && to < size {
		line += fmt.Sprintf(" of %d", size)
	}
	if more {
		line += fmt.Sprintf("; go on with offset %d", to)
	}
	return line
}

// textArgs are what a client writes into a file.
type textArgs struct {
	Content string `json:"content"`
	Base64  bool   `json:"base64"`
}

func (a *textArgs) bytes(path string) ([]byte, error) {
	if !a.Base64 {
		return []byte(a.Content), nil
	}
	b, err := base64.StdEncoding.DecodeString(a.Content)
	if err != nil {
		return nil, wrong("%s: content is not base64: %w", printed(path), err)
	}
	return b, nil
}

func (t fileTools) fsWrite(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		Sandbox string `json:"sandbox"`
		Files   []struct {
			Path string `json:"path"`
			textArgs
			Executable bool `json:"executable"`
		} `json:"files"`
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	if len(a.Files) < 1 || len(a.Files) > maxFiles {
		return "", wrong("%d files; give 1 to %d", len(a.Files), maxFiles)
	}
	for i := range a.Files { // check all of them before any is written
		f := &a.Files[i]
		if err := guestFile(f.Path); err != nil {
			return "", err
		}
		content, err := f.bytes(f.Path)
		if err != nil {
			return "", err
		}
		f.Content = string(content)
	}
	m, st, err := t.use(ctx, a.Sandbox)
	if err != nil {
		return "", err
	}
	defer func() { _ = m.Close() }() // the session's
	total := 0
	for i := range a.Files {
		f := &a.Files[i]
		if err := m.Files().Mkdir(ctx, path.Dir(f.Path), agentclient.MkdirOptions{Parents: true}); err != nil {
			return "", fmt.Errorf("%d of %d files written: %w", i, len(a.Files), err)
		}
		o := agentclient.WriteOptions{Mode: 0o644}
		if f.Executable {
			o.Mode = 0o755
		}
		if _, err := m.Files().WriteFile(ctx, f.Path, strings.NewReader(f.Content), o); err != nil {
			return "", fmt.Errorf("%d of %d files written: %w", i, len(a.Files), err)
		}
		total += len(f.Content)
	}
	return fmt.Sprintf("%d files written in sandbox %s, %d bytes", len(a.Files), st.Name, total), nil
}

func (t fileTools) fsList(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		Sandbox string `json:"sandbox"`
		Path    string `json:"path"`
	}
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	if err := guestPath(a.Path); err != nil {
		return "", err
	}
	m, _, err := t.use(ctx, a.Sandbox)
	if err != nil {
		return "", err
	}
	defer func() { _ = m.Close() }() // the session's
	select {
	case t.listing <- struct{}{}:
		defer func() { <-t.listing }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	entries, err := m.Files().ReadDir(ctx, a.Path)
	if errors.Is(err, syscall.ENOTDIR) {
		if info, statErr := m.Files().Stat(ctx, a.Path, true); statErr == nil && !info.IsDir() {
			return "", say("%s is a file: fs_read reads it", printed(a.Path))
		}
	}
	if err != nil {
		return "", err
	}
	var c capture
	for i := range entries[:min(len(entries), maxEntries)] {
		e := &entries[i]
		line := fmt.Sprintf("%s %d %s", e.Mode(), e.Size(), printed(e.Name()))
		if e.Target != "" {
			line += " -> " + printed(e.Target)
		}
		_, _ = c.Write([]byte(line + "\n")) // it never fails
	}
	head := fmt.Sprintf("%s: %d entries", printed(a.Path), len(entries))
	if len(entries) > maxEntries {
		head += fmt.Sprintf(", the first %d", maxEntries)
	}
	return head + "\n" + c.untrusted("directory"), nil
}
