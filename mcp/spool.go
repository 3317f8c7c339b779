package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync/atomic"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/lazyregexp"
)

const (
	// maxSpool bounds what is kept of one output after its head, to be written to a file in the guest, in bytes.
	maxSpool = 16 << 20
	// maxSpools bounds what is kept of all outputs at once, in bytes: the directory of temporary files may be in memory.
	maxSpools = 8 * maxSpool
	// outputDir is the guest's directory of such files, of which the newest maxOutputs are kept.
	outputDir  = "/tmp/msb-output"
	maxOutputs = 16
)

// spool keeps an output on this machine until it is known whether the result shows all of it. Its zero value is ready, and
// creates a nameless file when there is something to keep. If that fails, the result is still complete up to its usual
// length.
type spool struct {
	room  *atomic.Int64 // shared by all spools; nil for no bound
	f     *os.File
	n     int64 // bytes in f
	taken int64 // of room
	full  bool
	err   error
}

// take is how much of b may be kept.
func (s *spool) take(b []byte) []byte {
	n := min(int64(len(b)), maxSpool-s.taken)
	if s.room != nil && s.room.Add(-n) < 0 { // another spool takes the rest
		s.room.Add(n)
		n = 0
	}
	s.taken += n
	return b[:n]
}

func (s *spool) write(b []byte) {
	if s == nil || s.err != nil || s.full {
		return
	}
	if taken := s.take(b); len(taken) < len(b) { // later bytes would follow a gap
		s.full, b = true, taken
	}
	if len(b) == 0 {
		return
	}
	if s.f == nil {
		if s.f, s.err = os.CreateTemp("", "msb-mcp-"); s.err == nil {
			s.err = os.Remove(s.f.Name())
		}
	}
	if s.err == nil {
		var n int
		n, s.err = s.f.Write(b)
		s.n += int64(n)
	}
}

func (s *spool) close() {
	if s != nil && s.f != nil {
		_ = s.f.Close() // nobody reads it any more
	}
	if s != nil && s.room != nil {
		s.room.Add(s.taken)
	}
}

// keep writes an output that a result doesn't show in full into a file of the guest, and says how to read it.
func (c *capture) keep(ctx context.Context, to files, what string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rest == nil || c.rest.err != nil {
		return ""
	}
	all := io.Reader(bytes.NewReader(c.head))
	if c.rest.f != nil {
		all = io.MultiReader(all, io.NewSectionReader(c.rest.f, 0, c.rest.n))
	}
	name := outputDir + "/" + what + "-" + rand.Text()[:8] + ".txt"
	if err := to.Mkdir(ctx, outputDir, agentclient.MkdirOptions{Mode: 0o755, Parents: true}); err != nil {
		return "" // the guest has no room, or no /tmp: the result stays without the file
	}
	dropOutputs(ctx, to)
	if _, err := to.WriteFile(ctx, name, all, agentclient.WriteOptions{Mode: 0o600}); err != nil {
		_ = to.Remove(ctx, name, false) // whether the file was written
		return ""
	}
	if n := int64(len(c.head)) + c.rest.n; n < c.total {
		return fmt.Sprintf("the first %d bytes of %s are in %s; read on with fs_read and its offset\n", n, what, name)
	}
	return fmt.Sprintf("all of %s is in %s; read on with fs_read and its offset\n", what, name)
}

// dropOutputs makes room for one more file in outputDir. The guest may have files of its own there, so only those with such
// a name are removed.
func dropOutputs(ctx context.Context, in files) {
	all, err := in.ReadDir(ctx, outputDir)
	if err != nil {
		return // the next output tries again
	}
	for _, f := range surplus(all) {
		_ = in.Remove(ctx, path.Join(outputDir, f.Name()), false) // as above
	}
}

// surplus are the oldest outputs, but for the newest maxOutputs - 1.
func surplus[F fs.FileInfo](all []F) []F {
	outputs := slices.DeleteFunc(all, func(f F) bool { return !outputName.MatchString(f.Name()) })
	slices.SortFunc(outputs, func(a, b F) int { return a.ModTime().Compare(b.ModTime()) })
	return outputs[:max(0, len(outputs)+1-maxOutputs)]
}

var outputName = lazyregexp.New(`^std(out|err)-[A-Z2-7]{8}\.txt$`)
