package grants

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/policies"
)

// Bounds of what a command may reach: they are read through at each run.
const (
	maxEntries = 50_000
	maxContent = 256 << 20 // bytes
)

// Check refuses a command whose files are others than those that were approved.
func Check(h *policies.Hold) error {
	if h == nil || h.Content == "" {
		return nil
	}
	now, err := content(h)
	if err != nil {
		return err
	}
	if now != h.Content {
		return fmt.Errorf("files in %s changed since this command was approved", policies.QuoteArgs(h.Trees))
	}
	return nil
}

// content is the SHA-256 over all names, kinds, modes, links and bytes in the trees
// of h. Pipes, sockets and devices count by name: opening one would wait, or do
// something.
func content(h *policies.Hold) (string, error) {
	c := counter{sum: sha256.New(), hold: h}
	for _, tree := range h.Trees {
		if err := filepath.WalkDir(tree, c.entry); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(c.sum.Sum(nil)), nil
}

// counter adds entries to a digest.
type counter struct {
	sum     hash.Hash
	hold    *policies.Hold
	entries int
	bytes   int64
}

func (c *counter) entry(path string, d fs.DirEntry, err error) error {
	if path == c.hold.Skip && c.hold.Skip != "" {
		return fs.SkipDir
	}
	if c.entries++; c.entries > maxEntries {
		return c.tooMuch()
	}
	if err != nil { // what can't be read can't be run either; it is another content once it can
		_, _ = fmt.Fprintf(c.sum, "%q unreadable\n", path)
		if d != nil && d.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	info, err := d.Info()
	if err != nil {
		_, _ = fmt.Fprintf(c.sum, "%q gone\n", path)
		return nil //nolint:nilerr // it was removed since the directory was read
	}
	_, _ = fmt.Fprintf(c.sum, "%q %s ", path, info.Mode())
	switch {
	case info.Mode().IsRegular():
		if c.bytes += info.Size(); c.bytes > maxContent {
			return c.tooMuch()
		}
		c.file(path, info.Size())
	case info.Mode()&fs.ModeSymlink != 0:
		target, _ := os.Readlink(path) // one that is gone has no target
		_, _ = fmt.Fprintf(c.sum, "%q", target)
	}
	_, _ = fmt.Fprintln(c.sum)
	return nil
}

func (c *counter) tooMuch() error {
	return fmt.Errorf("%w: %s holds more than %d entries or %d MiB; give the policy a directory of its own, or name a program with plain arguments",
		errTooMuch, policies.QuoteArgs(c.hold.Trees), maxEntries, maxContent>>20)
}

// file adds a file of size bytes; one that grows meanwhile has another digest.
func (c *counter) file(path string, size int64) {
	f, err := openRegular(path)
	if err != nil {
		_, _ = io.WriteString(c.sum, "unreadable")
		return
	}
	defer func() { _ = f.Close() }()
	own := sha256.New()
	from := io.LimitReader(f, size+1)
	if slices.Contains(c.hold.Rules, path) {
		b, _ := io.ReadAll(from)
		from = bytes.NewReader(withoutRules(b))
	}
	_, _ = io.Copy(own, from) // what can't be read to its end has another digest
	_, _ = fmt.Fprintf(c.sum, "%x", own.Sum(nil))
}

// A line of a policy file that is one key of a rule, with values that are plain
// words: it can be edited without being asked about, and says nothing to whatever
// might read a policy file as a program.
var ruleLine = lazyregexp.New(`^\s*(?:(?:name|why|hosts|cidrs|ports|protocol|methods|paths|default|mode)\s*=[\w \t"\[\],.:/*+-]*|\[\[egress\.(?:allow|deny)\]\]\s*|)$`)

// withoutRules returns a policy file without the lines of its rules.
func withoutRules(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		if !ruleLine.Get().Match(bytes.TrimRight(line, "\r\n")) {
			out = append(out, line...)
		}
	}
	return out
}
