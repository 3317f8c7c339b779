package cow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
)

// maxText bounds the files whose text is shown, in bytes.
const maxText = 1 << 20

// Diff is the difference of two versions of a text in the unified format, without
// names; nil for what is no text, or longer than 1 MiB. Apply writes what Diff has
// shown, or nothing.
func (t *Tree) Diff(ctx context.Context, c *Change) ([]byte, error) {
	regular := func(v *Version) bool { return v != nil && v.Mode.IsRegular() && v.Size <= maxText }
	if c.Kind == Mode || c.Old != nil && !regular(c.Old) || c.New != nil && !regular(c.New) {
		return nil, nil
	}
	var before, after []byte
	var err error
	if c.Old != nil {
		f, err := t.openHost(c.Path, c.host)
		if err != nil {
			return nil, err
		}
		before, err = io.ReadAll(io.LimitReader(f, maxText+1))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	if c.New != nil {
		if after, err = t.content(ctx, c); err != nil {
			return nil, err
		}
	}
	if !isText(before) || !isText(after) {
		return nil, nil
	}
	text := diff.Diff("", before, "", after)
	for range 3 { // "diff", "---" and "+++", which name the files
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text, nil
}

// content reads the guest's version, and remembers what it was.
func (t *Tree) content(ctx context.Context, c *Change) ([]byte, error) {
	in, err := t.opts.Open(ctx, c.Path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(in, c.New.Size+1))
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	if int64(len(b)) != c.New.Size {
		return nil, fmt.Errorf("in the sandbox %w", ErrChanged)
	}
	sum := sha256.Sum256(b)
	c.shown, c.digest = true, sum[:]
	return b, nil
}

func isText(b []byte) bool { return utf8.Valid(b) && !bytes.ContainsRune(b, 0) }
