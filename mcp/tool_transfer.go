package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/msb-project/msb/sandbox"
)

type transferArgs struct {
	Sandbox string `json:"sandbox"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// fsUpload and fsDownload take paths of the operator's machine and use the same files inside the sandbox. So hidden and
// read-only files, and links that lead out, are treated as in the sandbox, and no path of the machine is opened.
func (t fileTools) fsUpload(ctx context.Context, raw json.RawMessage) (string, error) {
	var a transferArgs
	from := ""
	err := decode(raw, &a)
	if err == nil {
		from, err = t.shared(a.From, false)
	}
	if err == nil {
		err = guestPath(a.To)
	}
	if err != nil {
		return "", err
	}
	return t.transfer(ctx, &a, from, a.To)
}

func (t fileTools) fsDownload(ctx context.Context, raw json.RawMessage) (string, error) {
	var a transferArgs
	to := ""
	err := decode(raw, &a)
	if err == nil {
		to, err = t.shared(a.To, true)
	}
	if err == nil {
		err = guestPath(a.From)
	}
	if err != nil {
		return "", err
	}
	return t.transfer(ctx, &a, a.From, to)
}

// shared translates a path of this machine into the path at which a sandbox sees it.
func (t fileTools) shared(host string, write bool) (string, error) {
	if !filepath.IsAbs(host) {
		return "", wrong("%q: write an absolute path of the operator's machine", printed(host))
	}
	var best *sandbox.Directory // the innermost directory
	var inside string
	for i := range t.opts.Directories {
		d := &t.opts.Directories[i]
		rel, err := filepath.Rel(d.Host, filepath.Clean(host))
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		if best == nil || len(d.Host) > len(best.Host) || len(d.Host) == len(best.Host) && d.Writable { // shared twice
			best, inside = d, rel
		}
	}
	switch {
	case best == nil:
		return "", say("%s is in none of the directories that the operator shares (%s); use fs_write or fs_read", printed(host), t.sharedNames(write))
	case write && !best.Writable:
		return "", say("%s is shared read-only; take another directory (%s), or fs_read", printed(best.Host), t.sharedNames(true))
	}
	return path.Join(best.Guest, inside), nil
}

// sharedNames are the directories of this machine, or those of them that are writable.
func (t fileTools) sharedNames(writable bool) string {
	names := make([]string, 0, len(t.opts.Directories))
	for _, d := range t.opts.Directories {
		if d.Writable || !writable {
			names = append(names, printed(d.Host))
		}
	}
	if len(names) == 0 {
		return "there are none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// transfer copies from one path of a sandbox to another, which is a directory that exists or a new name in one.
func (t fileTools) transfer(ctx context.Context, a *transferArgs, from, to string) (string, error) {
	return t.with(ctx, a.Sandbox, func(m machine) (string, error) {
		dir, name := path.Dir(path.Clean(to)), path.Base(path.Clean(to))
		there, err := m.Files().Stat(ctx, to, true)
		switch {
		case err == nil && there.IsDir():
			dir, name = to, path.Base(path.Clean(from))
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		report, err := m.Copy(ctx, from, dir, name)
		if err != nil {
			return "", err
		}
		text := fmt.Sprintf("the sandbox reports: %d entries, %d bytes copied from %s to %s", report.Entries, report.Bytes, printed(a.From), printed(a.To))
		if n := int64(len(report.Skipped)) + report.SkippedMore; n > 0 {
			text += fmt.Sprintf("; %d devices, FIFOs or sockets left out", n)
		}
		return text, nil
	})
}
