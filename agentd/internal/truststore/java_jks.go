//go:build linux

package truststore

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the keystore format's own checksum, no signature
	"encoding/binary"
	"fmt"
	"time"
	"unicode/utf16"
)

// The JKS format, as sun.security.provider.JavaKeyStore writes it: magic, version, number of entries,
// entries, and a SHA-1 over the password, a phrase and all that.
const (
	jksMagic   = 0xfeedfeed
	jksVersion = 2
	jksHeader  = 12
	jksTrusted = 2
	jksPhrase  = "Mighty Aphrodite"
)

func addToJKS(have []byte, certs [][]byte) ([]byte, error) {
	body := len(have) - sha1.Size
	if body < jksHeader || binary.BigEndian.Uint32(have[4:]) != jksVersion {
		return nil, fmt.Errorf("%w: it is cut short, or of a version other than %d", errJavaStore, jksVersion)
	}
	if !bytes.Equal(jksSum(have[:body]), have[body:]) {
		return nil, fmt.Errorf("%w: it is damaged, or its password is not %q", errJavaStore, javaPassword)
	}
	out := bytes.Clone(have[:body])
	count := binary.BigEndian.Uint32(out[8:])
	binary.BigEndian.PutUint32(out[8:], count+uint32(len(certs)))
	for i, der := range certs {
		out = binary.BigEndian.AppendUint32(out, jksTrusted)
		out = appendJavaText(out, fmt.Sprintf("msb-sandbox-ca-%d", i))
		out = binary.BigEndian.AppendUint64(out, uint64(time.Now().UnixMilli()))
		out = appendJavaText(out, "X.509")
		out = binary.BigEndian.AppendUint32(out, uint32(len(der)))
		out = append(out, der...)
	}
	return append(out, jksSum(out)...), nil
}

func appendJavaText(out []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(out, uint16(len(s))), s...)
}

func jksSum(body []byte) []byte {
	h := sha1.New() //nolint:gosec // see above
	for _, c := range utf16.Encode([]rune(javaPassword)) {
		h.Write([]byte{byte(c >> 8), byte(c)})
	}
	h.Write([]byte(jksPhrase))
	h.Write(body)
	return h.Sum(nil)
}
