package review_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/internal/pcapgen"
)

// maxSeed bounds a seed's file in bytes: fuzzing begins with all of them, and small ones are quick.
const maxSeed = 8000

// seedKind says what the seeds of fuzz targets are taken from the attack suite.
type seedKind struct {
	// targets are directories of seeds; what stands behind the space are the target's other arguments.
	targets []string
	// cases begin the names of the cases that seeds come from.
	cases []string
	// of takes a seed out of a capture; nil for none.
	of func(file []byte) []byte
}

var seedKinds = []seedKind{
	{[]string{"netstack/frameguard/testdata/fuzz/FuzzFrame", "capture/testdata/fuzz/FuzzDecode"},
		[]string{"link-", "ip", "icmp-", "ping", "tcp-odd", "udp-allowed", "dual-stack"}, lastFrame},
	{[]string{"egress/clienthello/testdata/fuzz/FuzzClientHello"}, []string{"tls-", "curl-h", "quic"}, clientSays(443)},
	{[]string{"egress/httphead/testdata/fuzz/FuzzParse", "secretproxy/testdata/fuzz/FuzzHead byte('\\x07')", "secretproxy/testdata/fuzz/FuzzReplay byte('\\x07')"},
		[]string{"http-", "apt", "curl-h1", "starttls"}, clientSays(80)},
	{[]string{"review/testdata/fuzz/FuzzReview", "capture/testdata/fuzz/FuzzCapture"},
		[]string{"addr-gateway", "dns-tcp", "dns-https", "http-second", "http-smuggle", "icmp-", "ip-fragments", "ip-lies", "link-short", "ping", "private-rule", "tls-sni", "udp-allowed"}, whole},
	{[]string{"review/testdata/fuzz/FuzzReview cut", "capture/testdata/fuzz/FuzzCapture cut"},
		[]string{"http-second", "link-short", "ip-lies"}, damaged},
}

func whole(file []byte) []byte { return file }

// damaged is a capture whose last block is cut, and of which a length in the middle lies.
func damaged(file []byte) []byte {
	file = bytes.Clone(file[:len(file)-6])
	file[len(file)/2&^3] ^= 0x40
	return file
}

// lastFrame is the last frame that the guest sent.
func lastFrame(file []byte) (frame []byte) {
	for rec := range packets(file) {
		if rec.Direction == capture.FromGuest {
			frame = bytes.Clone(rec.Frame)
		}
	}
	return frame
}

// clientSays gives all that the guest's clients sent to a port, in the order of the frames.
func clientSays(port uint16) func(file []byte) []byte {
	return func(file []byte) (said []byte) {
		for rec := range packets(file) {
			if h, ok := capture.Decode(rec.Frame); ok && h.Transport == capture.TransportTCP && h.Dst.Port() == port {
				said = append(said, h.Payload...)
			}
		}
		return said
	}
}

// packets gives the packets of a capture, as far as it can be read.
func packets(file []byte) func(yield func(*capture.Record) bool) {
	return func(yield func(*capture.Record) bool) {
		r, err := capture.NewReader(bytes.NewReader(file))
		for err == nil {
			var rec *capture.Record
			if rec, err = r.Next(); err == nil && rec.Kind == capture.PacketRecord && !yield(rec) {
				return
			}
		}
	}
}

// TestFuzzSeedsAreOfTheCaptures: fuzzing begins with what attacks look like. With -update the seeds are written again.
func TestFuzzSeedsAreOfTheCaptures(t *testing.T) {
	t.Parallel()
	for _, kind := range seedKinds {
		for _, target := range kind.targets {
			directory, more, _ := strings.Cut(target, " ")
			written := 0
			for _, c := range pcapgen.Cases() {
				file, _ := c.Capture()
				seed := kind.of(file)
				if seed == nil || !begins(c.Name, kind.cases) {
					continue
				}
				name, text := "case-"+c.Name, "go test fuzz v1\n[]byte("+strconv.Quote(string(seed))+")\n"
				if more == "cut" {
					name += "-cut"
				} else if more != "" {
					text += more + "\n"
				}
				if len(text) > maxSeed {
					continue
				}
				written++
				path := filepath.Join("..", filepath.FromSlash(directory), name)
				if *update {
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				golden(t, path, []byte(text))
			}
			if written == 0 {
				t.Errorf("%s: no seed", target)
			}
		}
	}
}

func begins(name string, any []string) bool {
	for _, prefix := range any {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
