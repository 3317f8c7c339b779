package secretproxy

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
)

const (
	// maxSignedChunk bounds a chunk, which is held whole since its signature
	// stands before it. SDKs send 64 KiB to 1 MiB; S3 asks for 8 KiB at least.
	maxSignedChunk = 16 << 20
	// chunkSignature is the extension that carries a chunk's signature.
	chunkSignature = ";chunk-signature="
)

var errSignedChunk = errors.New("the signed chunks of the body are malformed")

// chunkSigner signs the chunks of an aws-chunked body again. Sizes don't
// change, so neither does the body's length.
type chunkSigner struct {
	ctx    context.Context //nolint:containedctx // a body's reader has no other way to its request's
	body   io.Closer
	in     *bufio.Reader
	signer streamSigner
	at     time.Time
	out    bytes.Buffer
	err    error
}

func newChunkSigner(ctx context.Context, body io.ReadCloser, signer streamSigner, at time.Time) io.ReadCloser {
	if body == nil {
		body = http.NoBody
	}
	return &chunkSigner{ctx: ctx, body: body, in: bufio.NewReader(body), signer: signer, at: at}
}

// Read implements io.Reader.
func (c *chunkSigner) Read(p []byte) (int, error) {
	for c.out.Len() == 0 {
		if c.err != nil {
			return 0, c.err
		}
		c.err = c.chunk()
	}
	return c.out.Read(p)
}

// Close implements io.Closer.
func (c *chunkSigner) Close() error { return c.body.Close() }

// chunk reads one chunk and writes it with its new signature; io.EOF comes with
// the last one.
func (c *chunkSigner) chunk() error {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%w: %w", errSignedChunk, err)
	}
	digits, _, ok := strings.Cut(strings.TrimSuffix(line, "\r\n"), chunkSignature)
	size, err := strconv.ParseUint(digits, 16, 32)
	if !ok || err != nil || size > maxSignedChunk {
		return errSignedChunk
	}
	data := make([]byte, size+2)
	if _, err := io.ReadFull(c.in, data); err != nil || !bytes.HasSuffix(data, []byte("\r\n")) {
		return errSignedChunk
	}
	signature, err := c.signer.GetSignature(c.ctx, nil, data[:size], c.at)
	if err != nil {
		return err
	}
	c.out.WriteString(digits + chunkSignature + hex.EncodeToString(signature) + "\r\n")
	c.out.Write(data)
	if size == 0 {
		return io.EOF
	}
	return nil
}
