package mask

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"testing"
)

// FuzzMask hides the value between bytes of the fuzzer's choice, in a spelling
// and in pieces of its choice. The value must never come out, and what comes
// out must not depend on the pieces.
func FuzzMask(f *testing.F) {
	f.Add([]byte("before"), []byte("after"), byte(0), uint64(1))
	f.Add([]byte("%"), []byte("\\u00"), byte(1), uint64(3))
	f.Add([]byte("ghp_R3"), []byte(testValue[:5]), byte(2), uint64(77))
	f.Add([]byte("dXNlcjo"), []byte("=="), byte(3), uint64(0xffff))
	f.Add([]byte("\r\n\r\n\x00&#1"), []byte("&am"), byte(4), uint64(12345))
	set, replace := compile()
	f.Fuzz(func(t *testing.T, before, after []byte, spelling byte, pieces uint64) {
		data := append(append(append([]byte(nil), before...), spell(spelling)...), after...)
		data = append(data, before...)
		want := feed(t, NewStream(set, replace, false), data, 0)
		if got := feed(t, NewStream(set, replace, false), data, pieces|1); !bytes.Equal(got, want) {
			t.Errorf("in pieces %q, whole %q", got, want)
		}
		for _, out := range [][]byte{want, feed(t, NewStream(set, replace, true), data, pieces|1)} {
			if bytes.Contains(out, []byte(testValue)) || bytes.Contains(out, []byte(url.QueryEscape(testValue))) {
				t.Errorf("the value came out: %q", out)
			}
			// Decoding is what a guest would do.
			for _, word := range bytes.FieldsFunc(out, func(r rune) bool { _, ok := sextet(byte(r)); return r > 127 || !ok }) {
				for skip := range min(4, len(word)) {
					cut := word[skip:]
					plain := make([]byte, base64.RawStdEncoding.DecodedLen(len(cut)))
					n, _ := base64.RawStdEncoding.Decode(plain, cut)
					if bytes.Contains(plain[:n], []byte(testValue)) {
						t.Errorf("the value came out in base64: %q", out)
					}
				}
			}
		}
	})
}

func spell(how byte) []byte {
	switch how % 6 {
	case 0:
		return []byte(testValue)
	case 1:
		return []byte(url.QueryEscape(testValue))
	case 2:
		return []byte(base64.StdEncoding.EncodeToString([]byte("user:" + testValue)))
	case 3:
		return []byte(base64.RawURLEncoding.EncodeToString([]byte("u" + testValue + "x")))
	case 4:
		return bytes.ReplaceAll([]byte(testValue), []byte("/"), []byte(`\/`))
	}
	return nil
}

// feed pushes data in pieces whose lengths come from the bits of pieces; 0 is one
// piece.
func feed(t *testing.T, st *Stream, data []byte, pieces uint64) []byte {
	t.Helper()
	var out []byte
	for i := 0; ; i++ {
		n := len(data)
		if pieces != 0 {
			n = min(n, int(pieces>>(i*3%60)&7)+1)
		}
		var err error
		out, err = st.Push(out, data[:n], n == len(data))
		if err != nil {
			t.Fatal(err)
		}
		if n == len(data) {
			return out
		}
		data = data[n:]
	}
}

// FuzzDecode feeds foreign bytes to every decoder.
func FuzzDecode(f *testing.F) {
	f.Add("gzip", []byte("\x1f\x8b\x08\x00"))
	f.Add("br", []byte{0x0b, 0x02, 0x80, 'a'})
	f.Add("zstd", []byte{0x28, 0xb5, 0x2f, 0xfd})
	f.Add("deflate, gzip", []byte{0x78, 0x9c})
	f.Fuzz(func(_ *testing.T, encodings string, data []byte) {
		r, err := Decode(bytes.NewReader(data), encodings)
		if err != nil {
			return
		}
		var buf [4096]byte
		for range 256 { // a bomb is cut off here; in use it streams
			if _, err := r.Read(buf[:]); err != nil {
				return
			}
		}
	})
}
