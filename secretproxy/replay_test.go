package secretproxy

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// allowAll lets every request through.
type allowAll struct{}

func (allowAll) Decide(*egress.Flow) egress.Verdict {
	return egress.Verdict{Action: egress.Allow, Reason: egress.ReasonRule}
}

// TestHeadSizesAreExact however few come at once: a slow client's large cookie is no attack.
func TestHeadSizesAreExact(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]bool{50_000: true, maxHeadBytes - 100: true, maxHeadBytes + 1: false} {
		head := []byte("GET / HTTP/1.1\r\nHost: a.example\r\nCookie: " + strings.Repeat("a", size) + "\r\n\r\n")
		for _, n := range []int{1, 6, len(head)} {
			var check headCheck
			var err error
			for piece := range slices.Chunk(head, n) {
				if _, err = check.feed(piece); err != nil {
					break
				}
			}
			if (err == nil) != want {
				t.Errorf("a head of %d bytes, %d at once: %v", len(head), n, err)
			}
		}
	}
}

// FuzzReplay holds that the requests which are found in a connection's bytes don't depend on how they came in pieces,
// and that none is found behind what a Proxy refuses to read.
func FuzzReplay(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\nGET /b HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	flow := egress.Flow{Proto: egress.TCP, Dst: netip.MustParseAddrPort("93.184.215.14:80"), Pinned: []hostname.Name{hostname.MustParse("a.example")}}
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		var once, pieces [][]byte
		collect := func(list *[][]byte) func([]byte) bool {
			return func(head []byte) bool {
				*list = append(*list, bytes.Clone(head))
				said := ReplayHead(allowAll{}, flow, head)
				if said.Verdict.Action == egress.Allow && said.Fault == "" && said.Host.String() != "a.example" {
					t.Fatalf("a request for %q is let through on a connection for a.example", said.Host)
				}
				return !said.Last
			}
		}
		var whole, piecewise Replay
		err := whole.Feed(b, collect(&once))
		var again error
		for rest := b; len(rest) > 0 && again == nil; {
			k := min(len(rest), int(n)+1)
			again = piecewise.Feed(rest[:k], collect(&pieces))
			rest = rest[k:]
		}
		if !bytes.Equal(bytes.Join(once, nil), bytes.Join(pieces, nil)) || len(once) != len(pieces) || (err == nil) != (again == nil) {
			t.Fatalf("at once %q %v, in pieces of %d %q %v", once, err, int(n)+1, pieces, again)
		}
		if err != nil && !whole.Over() {
			t.Fatal("it would read on")
		}
	})
}
