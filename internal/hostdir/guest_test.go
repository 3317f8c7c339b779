//go:build linux

package hostdir

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// guest is a guest's kernel: it sends raw requests and reads the replies.
type guest struct {
	t     *testing.T
	s     *Server
	asker owner
}

// newGuest serves a directory.
func newGuest(t *testing.T, dir string, o Options) *guest {
	t.Helper()
	s, err := New(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	served(dir, 1)
	s.conn = silent{}
	g := &guest{t: t, s: s}
	t.Cleanup(func() {
		g.forgetAll()
		_ = s.Close()
		noneOpen(t, dir)
	})
	return g
}

// forgetAll closes and forgets all that the guest knows; nothing but the top is left then (I11).
func (g *guest) forgetAll() {
	g.t.Helper()
	for fh, h := range maps.Clone(g.s.handles) {
		if err := g.close(h.node.id, fh); err != nil {
			g.t.Error(err)
		}
	}
	for id := range maps.Clone(g.s.nodes) {
		g.s.tell(request{op: opForget, node: id, body: put64(nil, 1<<60)})
	}
	if g.s.count != 1 || len(g.s.nodes) != 1 || len(g.s.known) != 1 || len(g.s.dirs) != 1 {
		g.t.Errorf("%d nodes, %d, %d known, %d directories are left", g.s.count, len(g.s.nodes), len(g.s.known), len(g.s.dirs))
	}
}

// silent is a connection nobody listens to.
type silent struct{}

func (silent) Recv() ([]byte, error) { return nil, io.EOF }
func (silent) Send([]byte) error     { return nil }

func message(op opcode, node uint64, body []byte) []byte {
	b := put32(nil, uint32(headerBytes+len(body)), uint32(op))
	b = put64(b, 7, node)
	return append(put32(b, 0, 0, 0, 0), body...)
}

// ask returns a reply's content and error.
func (g *guest) ask(op opcode, node uint64, body []byte) ([]byte, error) {
	g.t.Helper()
	r, ok := parseRequest(message(op, node, body))
	if !ok {
		g.t.Fatal("the test's own request is malformed")
	}
	r.asker = g.asker
	b := g.s.answer(r)
	if int(order.Uint32(b)) != len(b) || order.Uint64(b[8:]) != 7 {
		g.t.Fatalf("reply %x", b)
	}
	if e := -int32(order.Uint32(b[4:])); e != 0 {
		return nil, unix.Errno(e)
	}
	if b = b[replyBytes:]; op == opLookup && order.Uint64(b) == 0 {
		if !bytes.Equal(b, append(put64(nil, 0, 0, 1), make([]byte, entryBytes-24)...)) {
			g.t.Fatalf("of a missing name: %x", b)
		}
		return nil, unix.ENOENT // as the kernel, which believes it for a second
	}
	return b, nil
}

func name(names ...string) (b []byte) {
	for _, n := range names {
		b = append(append(b, n...), 0)
	}
	return b
}

// walk looks a path up, an element at a time.
func (g *guest) walk(names ...string) (uint64, error) {
	g.t.Helper()
	id := uint64(rootID)
	for _, n := range names {
		b, err := g.ask(opLookup, id, name(n))
		if err != nil {
			return 0, err
		}
		id = order.Uint64(b)
	}
	return id, nil
}

func (g *guest) must(id uint64, err error) uint64 {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	return id
}

func (g *guest) open(id uint64, flags uint32) (uint64, error) {
	g.t.Helper()
	b, err := g.ask(opOpen, id, put32(nil, flags, 0))
	if err != nil {
		return 0, err
	}
	return order.Uint64(b), nil
}

func (g *guest) read(id, fh uint64, size uint32) (string, error) {
	g.t.Helper()
	b, err := g.ask(opRead, id, append(put32(put64(nil, fh, 0), size), make([]byte, 20)...))
	return string(b), err
}

func (g *guest) write(id, fh, offset uint64, text string) error {
	g.t.Helper()
	b := append(put32(put64(nil, fh, offset), uint32(len(text))), make([]byte, 20)...)
	_, err := g.ask(opWrite, id, append(b, text...))
	return err
}

func (g *guest) close(id, fh uint64) error {
	g.t.Helper()
	_, err := g.ask(opRelease, id, append(put64(nil, fh), make([]byte, 16)...))
	return err
}

// cat reads a file as cat(1) does.
func (g *guest) cat(names ...string) (string, error) {
	g.t.Helper()
	id, err := g.walk(names...)
	if err != nil {
		return "", err
	}
	fh, err := g.open(id, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = g.close(id, fh) }()
	return g.read(id, fh, maxIO)
}

func (g *guest) create(parent uint64, file string, flags uint32) (id, fh uint64, err error) {
	g.t.Helper()
	b, err := g.ask(opCreate, parent, append(put32(nil, flags|unix.O_CREAT, 0o644, 0, 0), name(file)...))
	if err != nil {
		return 0, 0, err
	}
	return order.Uint64(b), order.Uint64(b[entryBytes:]), nil
}

func (g *guest) mkdir(parent uint64, file string) (uint64, error) {
	g.t.Helper()
	b, err := g.ask(opMkdir, parent, append(put32(nil, 0o755, 0), name(file)...))
	if err != nil {
		return 0, err
	}
	return order.Uint64(b), nil
}

func (g *guest) rename(from uint64, old string, to uint64, file string, flags uint32) error {
	g.t.Helper()
	_, err := g.ask(opRename2, from, append(put32(put64(nil, to), flags, 0), name(old, file)...))
	return err
}

// list returns the names in a directory, with READDIR or READDIRPLUS.
func (g *guest) list(id uint64, op opcode, size uint32) map[string]uint64 {
	g.t.Helper()
	b, err := g.ask(opOpendir, id, put32(nil, 0, 0))
	if err != nil {
		g.t.Fatal(err)
	}
	fh, at, found := order.Uint64(b), uint64(0), map[string]uint64{}
	for {
		b, err := g.ask(op, id, append(put32(put64(nil, fh, at), size), make([]byte, 20)...))
		if err != nil {
			g.t.Fatal(err)
		}
		if len(b) == 0 {
			break
		}
		for len(b) > 0 {
			node := uint64(0)
			if op == opReaddirplus {
				node, b = order.Uint64(b), b[entryBytes:]
			}
			at = order.Uint64(b[8:])
			length := int(order.Uint32(b[16:]))
			found[string(b[24:24+length])] = node
			b = b[24+(length+7)&^7:]
		}
	}
	if _, err := g.ask(opReleasedir, id, append(put64(nil, fh), make([]byte, 16)...)); err != nil {
		g.t.Error(err)
	}
	return found
}

func want(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// put makes files below dir; a name that ends in a slash is a directory.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for file, text := range files {
		path := filepath.Join(dir, file)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// pipe is a connection whose messages a test sends.
type pipe struct {
	requests chan []byte
	replies  chan []byte
	ctx      context.Context
}

func (p *pipe) Recv() ([]byte, error) {
	b, ok := <-p.requests
	if !ok {
		return nil, io.EOF
	}
	return b, nil
}

func (p *pipe) Send(b []byte) error {
	select {
	case p.replies <- b:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}
