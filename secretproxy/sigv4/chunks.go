package sigv4

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/msb-project/msb/secretproxy/memory"
)

const (
	// maxSignedChunk bounds a chunk, which is held whole since its signature
	// stands before it. SDKs send 64 KiB to 1 MiB; S3 asks for 8 KiB at least.
	maxSignedChunk = 16 << 20
	// chunkSignature is the extension that carries a chunk's signature.
	chunkSignature = ";chunk-signature="
	// maxLine bounds the line before a chunk.
	maxLine = 256
)

var errSignedChunk = errors.New("the signed chunks of the body are malformed")

// chunkSigner signs the chunks of an aws-chunked body again. Sizes don't
// change, so neither does the body's length.
type chunkSigner struct {
	ctx    context.Context // a body's reader has no other way to its request's
	held   *memory.Hold
	body   io.Closer
	in     *bufio.Reader
	signer *v4.StreamSigner
	at     time.Time
	data   []byte // of the chunk
	out    io.Reader
	err    error
}

func newChunkSigner(ctx context.Context, held *memory.Hold, body io.ReadCloser, signer *v4.StreamSigner, at time.Time) io.ReadCloser {
	if body == nil {
		body = http.NoBody
	}
	return &chunkSigner{ctx: ctx, held: held, body: body, in: bufio.NewReader(body), out: bytes.NewReader(nil), signer: signer, at: at}
}

// Read implements io.Reader.
func (c *chunkSigner) Read(p []byte) (int, error) {
	for {
		n, err := c.out.Read(p)
		if n > 0 || len(p) == 0 {
			return n, nil
		}
		if c.err != nil {
			return 0, c.err
		}
		if !errors.Is(err, io.EOF) {
			return 0, err
		}
		c.err = c.chunk()
	}
}

// Close implements io.Closer.
func (c *chunkSigner) Close() error {
	c.held.Release()
	return c.body.Close()
}

// chunk reads one chunk and writes it with its new signature; io.EOF comes with
// the last one.
func (c *chunkSigner) chunk() error {
	c.held.Give(int64(cap(c.data)))
	c.data = nil
	line, err := c.line()
	if err != nil {
		return err
	}
	digits, _, ok := strings.Cut(line, chunkSignature)
	size, err := strconv.ParseUint(digits, 16, 32)
	if !ok || err != nil || size > maxSignedChunk {
		return errSignedChunk
	}
	c.data, err = c.held.ReadAll(io.LimitReader(c.in, int64(size)+2), int64(size)+2)
	if errors.Is(err, memory.ErrFull) {
		return err
	}
	if err != nil || len(c.data) != int(size)+2 || !bytes.HasSuffix(c.data, []byte("\r\n")) {
		return errSignedChunk
	}
	signature, err := c.signer.GetSignature(c.ctx, nil, c.data[:size], c.at)
	if err != nil {
		return err
	}
	head := digits + chunkSignature + hex.EncodeToString(signature) + "\r\n"
	c.out = io.MultiReader(strings.NewReader(head), bytes.NewReader(c.data))
	if size == 0 {
		return io.EOF
	}
	return nil
}

// line reads the line before a chunk, without its end.
func (c *chunkSigner) line() (string, error) {
	var line []byte
	for len(line) <= maxLine {
		b, err := c.in.ReadByte()
		if err != nil {
			return "", fmt.Errorf("%w: %w", errSignedChunk, err)
		}
		if line = append(line, b); b == '\n' {
			return strings.TrimSuffix(string(line), "\r\n"), nil
		}
	}
	return "", errSignedChunk
}
