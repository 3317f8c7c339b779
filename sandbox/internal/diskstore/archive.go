package diskstore

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// An archive is a tar in one zstd stream: the manifest, the list that it names by digest, and then each chunk that the list
// names, once and in the order of the list. Nothing else may be in it, and nothing behind it.
const (
	manifestMember = "manifest.json"
	listMember     = listFile
	chunkMember    = "chunks/"

	archiveVersion = 1
	// maxManifestBytes is above what variables and labels of a command line can be.
	maxManifestBytes = 4 << 20
	// maxListBytes is the longest list, each line with its place, a digest and two separators.
	maxListBytes = 64 + maxChunks*(2*sha256.Size+12)
	// archiveWindow is what a reader must hold in memory. Bytes.
	archiveWindow = 8 << 20
	tarBlock      = 512
)

// Manifest is what an archive says of a snapshot beside its disk. It has nothing in it that takes anything from the machine
// that it comes to: no policy, no path, no port.
type Manifest struct {
	Version     int               `json:"version"`
	Name        string            `json:"name"`
	Sandbox     string            `json:"sandbox"`
	Created     time.Time         `json:"created"`
	Labels      map[string]string `json:"labels,omitempty"`
	Running     bool              `json:"running,omitempty"`
	Disk        string            `json:"disk"`
	Image       string            `json:"image"`
	ImageDigest string            `json:"image_digest"`
	CPUs        int               `json:"cpus"`
	Memory      int64             `json:"memory"`
	NoNet       bool              `json:"no_net,omitempty"`
	HTTPProxy   bool              `json:"http_proxy,omitempty"`
	Env         []string          `json:"env,omitempty"`
	ReadOnly    bool              `json:"read_only,omitempty"`
	Tmpfs       []state.Tmpfs     `json:"tmpfs,omitempty"`
	CA          string            `json:"ca,omitempty"`
}

// Export writes the snapshot of that name to out, with what describe makes of it. Each chunk is checked first.
func (s *Store) Export(ctx context.Context, name string, out io.Writer, describe func(*Meta) (*Manifest, error)) error {
	lock, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	meta, list, err := s.Load(name)
	if err != nil {
		return err
	}
	m, err := describe(meta)
	if err != nil {
		return err
	}
	m.Version, m.Disk = archiveVersion, meta.Disk
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(out, zstd.WithWindowSize(archiveWindow))
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	err = errors.Join(writeMember(w, manifestMember, text), writeMember(w, listMember, list.encode()))
	if err == nil {
		err = s.exportChunks(ctx, name, list, w)
	}
	if err == nil {
		err = w.Close()
	}
	return errors.Join(err, z.Close())
}

func (s *Store) exportChunks(ctx context.Context, name string, list *List, w *tar.Writer) error {
	buf := make([]byte, chunkBytes)
	written := make(map[[sha256.Size]byte]bool)
	for i := range list.chunks {
		c := &list.chunks[i]
		if written[c.sum] {
			continue
		}
		written[c.sum] = true
		if err := ctx.Err(); err != nil {
			return err
		}
		data := buf[:list.length(c.at)]
		f, err := s.readChunk(c, data)
		if err != nil {
			return damaged(name, err)
		}
		if err := errors.Join(f.Close(), writeMember(w, chunkMember+c.name(), data)); err != nil {
			return err
		}
	}
	return nil
}

func writeMember(w *tar.Writer, name string, content []byte) error {
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR})
	if err == nil {
		_, err = w.Write(content)
	}
	return err
}

// Import stores the chunks of an archive. An archive that Export didn't write is state.ErrSnapshotArchive. Import
// keeps a twentieth of the file system free.
func (w *Work) Import(ctx context.Context, in io.Reader) (*Manifest, *List, error) {
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(archiveWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, nil, refused(err)
	}
	defer z.Close()
	w.room = w.s.spare
	a := &archiveReader{bounded: bounded{r: z, left: maxManifestBytes + maxListBytes + 16*tarBlock}}
	a.tar = tar.NewReader(&a.bounded)
	m, list, err := a.head()
	if err != nil {
		return nil, nil, refused(err)
	}
	if err := w.importChunks(ctx, a, list); err != nil {
		return nil, nil, err
	}
	if err := a.end(); err != nil {
		return nil, nil, refused(err)
	}
	return m, list, nil
}

func (w *Work) importChunks(ctx context.Context, a *archiveReader, list *List) error {
	lengths := make(map[[sha256.Size]byte]int64, len(list.chunks))
	var bytesLeft int64
	for _, c := range list.chunks {
		length := list.length(c.at)
		if have, ok := lengths[c.sum]; ok && have != length {
			return refused(errors.New("a chunk has two lengths"))
		} else if !ok {
			bytesLeft += 2*tarBlock + length
		}
		lengths[c.sum] = length
	}
	a.left = bytesLeft + 4*tarBlock // of the tar's end
	buf := make([]byte, chunkBytes)
	for i := range list.chunks {
		c := &list.chunks[i]
		length, first := lengths[c.sum]
		if !first {
			continue
		}
		delete(lengths, c.sum)
		if err := ctx.Err(); err != nil {
			return err
		}
		data := buf[:length]
		if err := a.member(chunkMember+c.name(), data); err != nil {
			return refused(err)
		}
		if sha256.Sum256(data) != c.sum {
			return refused(fmt.Errorf("chunk %s holds something else than its name says", c.name()))
		}
		if err := w.store(c, data, nil); err != nil {
			return err
		}
	}
	return nil
}

func refused(err error) error { return fmt.Errorf("%w: %w", state.ErrSnapshotArchive, err) }

// archiveReader reads the members of an archive in their order.
type archiveReader struct {
	bounded
	tar *tar.Reader
}

// head reads the manifest and the list.
func (a *archiveReader) head() (*Manifest, *List, error) {
	text, err := a.small(manifestMember, maxManifestBytes)
	if err != nil {
		return nil, nil, err
	}
	m := new(Manifest)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", manifestMember, err)
	}
	if dec.More() || m.Version != archiveVersion {
		return nil, nil, fmt.Errorf("%s is of version %d, want %d and nothing behind it", manifestMember, m.Version, archiveVersion)
	}
	text, err = a.small(listMember, maxListBytes)
	if err != nil {
		return nil, nil, err
	}
	if digestOf(text) != m.Disk {
		return nil, nil, errors.New("the list of its chunks has another digest")
	}
	list, err := parseList(text)
	return m, list, err
}

// next goes to the next member, which must have that name.
func (a *archiveReader) next(name string) (size int64, err error) {
	h, err := a.tar.Next()
	if errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("it ends before %s", name)
	}
	if err != nil {
		return 0, err
	}
	if h.Name != name || h.Typeflag != tar.TypeReg || len(h.PAXRecords) > 0 {
		return 0, fmt.Errorf("there is %.100q where %s must be", h.Name, name)
	}
	return h.Size, nil
}

// member reads the next member into data, which it must fill.
func (a *archiveReader) member(name string, data []byte) error {
	size, err := a.next(name)
	if err != nil {
		return err
	}
	if size != int64(len(data)) {
		return fmt.Errorf("%s has %d bytes, want %d", name, size, len(data))
	}
	_, err = io.ReadFull(a.tar, data)
	return err
}

// small reads the next member, of at most so many bytes. Memory grows with what comes, and not with what a header says.
func (a *archiveReader) small(name string, most int64) ([]byte, error) {
	size, err := a.next(name)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", name, size, most)
	}
	return io.ReadAll(a.tar)
}

// end makes sure that nothing follows.
func (a *archiveReader) end() error {
	h, err := a.tar.Next()
	if err == nil {
		return fmt.Errorf("there is %.100q behind the last chunk", h.Name)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	n, err := io.ReadFull(&a.bounded, make([]byte, 1))
	if n > 0 {
		return errors.New("something follows its end")
	}
	if !errors.Is(err, io.EOF) {
		return err // cut short, or not zstd behind the end
	}
	return nil
}

// bounded ends a stream of more bytes than there can be.
type bounded struct {
	r    io.Reader
	left int64
}

var errTooLong = errors.New("it is longer than the parts that it lists")

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 && len(p) > 0 {
		return 0, errTooLong
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
