package upstream

import (
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
)

// TestI6_AnswersMatchTheirQuery in every bit of id and question; only the case of the name may differ, which is reported.
func TestI6_AnswersMatchTheirQuery(t *testing.T) {
	t.Parallel()
	query := Query{Name: []byte("\x03api\x07example\x00"), Type: dns.TypeA}.packet(false)
	answer := slices.Clone(query)
	answer[2] |= wire.FlagQR
	if got := matches(query, answer); got != matchExact {
		t.Fatalf("its answer: %d, want %d", got, matchExact)
	}
	letter := func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
	for i := range answer {
		for bit := range 8 {
			forged := slices.Clone(answer)
			forged[i] ^= 1 << bit
			want := matchNone
			switch {
			case i == 2 && byte(1)<<bit&(wire.FlagQR|wire.MaskOpcode) == 0, i == 3, i >= 6 && i < wire.HeaderLen: // flags, code, counts
				want = matchExact
			case i >= wire.HeaderLen && bit == 5 && letter(answer[i]):
				want = matchFolded
			}
			if got := matches(query, forged); got != want {
				t.Errorf("byte %d, bit %d: %d, want %d", i, bit, got, want)
			}
		}
		if i < wire.QuestionEnd(query) && matches(query, answer[:i]) != matchNone {
			t.Errorf("an answer of %d bytes is taken", i)
		}
	}
}
