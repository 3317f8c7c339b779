package secretproxy

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// codings are the content encodings that a body may come in, alone or one in the other.
var codings = []string{"", "gzip", "br", "zstd", "deflate", "identity", "gzip, br", "deflate, zstd", "zstd, gzip"}

// flusher is what all encoders are.
type flusher interface {
	io.WriteCloser
	Flush() error
}

// inPieces cuts data into pieces whose lengths come from the bits of pieces, three at a time.
func inPieces(data []byte, pieces uint64) [][]byte {
	var out [][]byte
	for i := 0; len(data) > 0; i++ {
		n := min(len(data), int(pieces>>(i*3%60)&7)+1)
		out, data = append(out, data[:n]), data[n:]
	}
	return out
}

// encoder writes to out in one coding; it is nil for those that change nothing.
func encoder(t *testing.T, coding string, out io.Writer) flusher {
	t.Helper()
	switch coding {
	case "gzip":
		return gzip.NewWriter(out)
	case "deflate":
		return zlib.NewWriter(out)
	case "br":
		return brotli.NewWriter(out)
	case "zstd":
		w, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	return nil
}

// encode returns data in one coding, flushed behind each piece.
func encode(t *testing.T, coding string, data []byte, pieces uint64) []byte {
	t.Helper()
	var out bytes.Buffer
	w := encoder(t, coding, &out)
	if w == nil {
		return data
	}
	for _, piece := range inPieces(data, pieces) {
		if _, err := w.Write(piece); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// pieceReader gives one piece for each Read, as a network does.
type pieceReader struct{ pieces [][]byte }

// Read implements io.Reader.
func (r *pieceReader) Read(p []byte) (int, error) {
	if len(r.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.pieces[0])
	if r.pieces[0] = r.pieces[0][n:]; len(r.pieces[0]) == 0 {
		r.pieces = r.pieces[1:]
	}
	return n, nil
}

// Close implements io.Closer.
func (*pieceReader) Close() error { return nil }

// FuzzBody hides the value in bodies of every content encoding, encoded and sent in pieces of the fuzzer's
// choice. The oracle: the value never comes out whole, and a body of known length comes out the same
// however it was encoded and cut.
func FuzzBody(f *testing.F) {
	for i := range codings {
		f.Add([]byte("before "), []byte(" after"), uint8(i), uint64(1)<<i, uint64(0x5555)<<i, i%2 == 0)
		f.Add([]byte(realValue[:7]), []byte("\\u00%"), uint8(i), uint64(0), ^uint64(0), i%2 != 0)
	}
	file := filepath.Join(f.TempDir(), "token")
	if err := os.WriteFile(file, []byte(realValue), 0o600); err != nil {
		f.Fatal(err)
	}
	policy := policies.Default()
	policy.Secrets = []policies.Secret{{
		Name: "T", From: policies.Source{Kind: policies.FromFile, Value: file}, Placeholder: "ghp_{36}",
		Hosts: []policies.SecretHost{{Pattern: hostname.MustParsePattern(apiHost)}}, In: []policies.Place{header("Authorization")},
	}}
	nowhere := func(context.Context, hostname.Name, netip.AddrPort) (net.Conn, error) { return nil, os.ErrPermission }
	p, err := New(Config{Sandbox: "test", Policy: policy, Judge: fakeJudge{}, Dial: nowhere})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = p.Close() })
	f.Fuzz(func(t *testing.T, before, after []byte, coding uint8, flushes, reads uint64, live bool) {
		plain := bytes.Join([][]byte{before, []byte(realValue), after, []byte(url.QueryEscape(realValue)), before}, nil)
		name := codings[int(coding)%len(codings)]
		data := plain
		for _, one := range strings.Split(name, ", ") {
			data = encode(t, one, data, flushes)
		}
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: &pieceReader{inPieces(data, reads)}, ContentLength: int64(len(data))}
		if name != "" {
			resp.Header.Set("Content-Encoding", name)
		}
		if live {
			resp.ContentLength = -1
		}
		st := p.state.Load()
		ex := &exchange{guest: &guestConn{}, state: st, table: st.table.Load(), masked: true}
		if fault := p.maskResponse(ex, resp); fault != nil {
			t.Fatalf("%q was refused: %s", name, fault.message)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if bytes.Contains(got, []byte(realValue)) || bytes.Contains(got, []byte(url.QueryEscape(realValue))) {
			t.Errorf("%q: the value came out: %q", name, got)
		}
		m := p.known.newest()
		want, _, err := m.set.ReplaceBytes(plain, m.replace)
		if err != nil {
			t.Fatal(err)
		}
		if !live && !bytes.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	})
}
