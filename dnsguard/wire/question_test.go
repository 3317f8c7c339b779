package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// labels is a name on the wire, of labels of these lengths.
func labels(lengths ...int) string {
	var b strings.Builder
	for _, n := range lengths {
		b.WriteByte(byte(n))
		b.WriteString(strings.Repeat("a", n))
	}
	return b.String() + "\x00"
}

// TestI3_QuestionsAreReadByTheLetter has queries at each bound of the form that is taken, and one step beyond it.
func TestI3_QuestionsAreReadByTheLetter(t *testing.T) {
	t.Parallel()
	const head, inA = "\x12\x34\x01\x20\x00\x01\x00\x00\x00\x00\x00\x00", "\x00\x01\x00\x01"
	const withOPT, name = "\x12\x34\x01\x20\x00\x01\x00\x00\x00\x00\x00\x01", "\x01A\x02bC\x00"
	opt := func(size uint16, version byte, length uint16, options string) string {
		b := binary.BigEndian.AppendUint16([]byte{0, 0, 41}, size)
		b = append(b, 0, version, 0, 0)
		return string(binary.BigEndian.AppendUint16(b, length)) + options
	}
	set := func(s string, at int, c byte) string { return s[:at] + string(c) + s[at+1:] }
	whole := head + name + inA
	for what, c := range map[string]struct{ packet, want string }{
		"plain":                    {whole, "a.bc A edns false 512"},
		"the root":                 {head + "\x00" + inA, " A edns false 512"},
		"another type":             {head + name + "\xff\xfe\x00\x01", "a.bc TYPE65534 edns false 512"},
		"recursion not desired":    {set(whole, 2, 0), "a.bc A edns false 512"},
		"nothing":                  {"", ""},
		"a header":                 {head, ""},
		"an answer":                {set(whole, 2, 0x81), ""},
		"an update":                {set(whole, 2, 0x29), ""},
		"a truncated one":          {set(whole, 2, 0x03), ""},
		"no question":              {set(whole, 5, 0), ""},
		"two questions":            {set(whole, 5, 2), ""},
		"an answer record":         {set(whole, 7, 1), ""},
		"an authority record":      {set(whole, 9, 1), ""},
		"two additional records":   {set(whole, 11, 2), ""},
		"an OPT that isn't there":  {set(whole, 11, 1), ""},
		"cut in the class":         {whole[:len(whole)-1], ""},
		"cut in the name":          {head + "\x05abcd", ""},
		"cut behind a label":       {head + "\x04abcd", ""},
		"a byte behind":            {whole + "x", ""},
		"class CH":                 {whole[:len(whole)-1] + "\x03", ""},
		"a pointer":                {head + "\xc0\x0c" + inA, ""},
		"a label of 63":            {head + labels(63) + inA, strings.Repeat("a", 63) + " A edns false 512"},
		"a label of 64":            {head + "\x40" + strings.Repeat("a", 64) + "\x00" + inA, ""},
		"a name of 255":            {head + labels(63, 63, 63, 61) + inA, strings.Join([]string{strings.Repeat("a", 63), strings.Repeat("a", 63), strings.Repeat("a", 63), strings.Repeat("a", 61)}, ".") + " A edns false 512"},
		"a name of 256":            {head + labels(63, 63, 63, 62) + inA, ""},
		"a dot in a label":         {head + "\x03a.b\x00" + inA, "no host A edns false 512"},
		"a space":                  {head + "\x03a b\x00" + inA, "no host A edns false 512"},
		"the character behind it":  {head + "\x03a!b\x00" + inA, "a!b A edns false 512"},
		"a tilde":                  {head + "\x03a~b\x00" + inA, "a~b A edns false 512"},
		"DEL":                      {head + "\x03a\x7fb\x00" + inA, "no host A edns false 512"},
		"letters beside letters":   {head + "\x06@Z[`z{\x00" + inA, "@z[`z{ A edns false 512"},
		"EDNS":                     {withOPT + name + inA + opt(4096, 0, 0, ""), "a.bc A edns true 1232"},
		"EDNS of 513":              {withOPT + name + inA + opt(513, 0, 0, ""), "a.bc A edns true 513"},
		"EDNS of 0":                {withOPT + name + inA + opt(0, 0, 0, ""), "a.bc A edns true 512"},
		"EDNS with options":        {withOPT + name + inA + opt(1000, 0, 4, "\x00\x0a\x00\x00"), "a.bc A edns true 1000"},
		"EDNS 1":                   {withOPT + name + inA + opt(4096, 1, 0, ""), ""},
		"options that go on":       {withOPT + name + inA + opt(4096, 0, 5, "abcd"), ""},
		"bytes behind the options": {withOPT + name + inA + opt(4096, 0, 3, "abcd"), ""},
		"an OPT of a name":         {withOPT + name + inA + "\x01a" + opt(4096, 0, 0, ""), ""},
		"another record":           {withOPT + name + inA + strings.Replace(opt(4096, 0, 0, ""), "\x29", "\x01", 1), ""},
		"an OPT that is cut":       {withOPT + name + inA + opt(4096, 0, 0, "")[:10], ""},
	} {
		var q Question
		got := ""
		if err := q.Read([]byte(c.packet)); err == nil {
			text, ok := q.Text()
			if !ok {
				text = "no host"
			}
			got = fmt.Sprint(text, " ", dns.Type(q.Type), " edns ", q.EDNS, " ", q.Size)
			wire := bytes.ToLower([]byte(c.packet[HeaderLen:q.NameEnd]))
			if !bytes.Equal(q.WireName(), wire) || string(q.CacheKey()) != string(wire)+c.packet[q.NameEnd:q.NameEnd+2] || QuestionEnd(q.Packet) != q.NameEnd+4 {
				t.Errorf("%s: name %q, key %q, the question ends at %d", what, q.WireName(), q.CacheKey(), QuestionEnd(q.Packet))
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// TestPackedAnswersUnpackElsewhere puts a message together of this package's pieces.
func TestPackedAnswersUnpackElsewhere(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "why", strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("x", 199) + "é"} {
		m := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
		packed, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		packed[11] = 1
		const badVersion = 16
		if err := m.Unpack(AppendOPT(packed, badVersion, PackEDE(15, text))); err != nil || m.Rcode != badVersion {
			t.Fatalf("%v, rcode %d", err, m.Rcode)
		}
		o := m.IsEdns0()
		e, ok := o.Option[0].(*dns.EDNS0_EDE)
		if !ok || e.InfoCode != 15 || !strings.HasPrefix(text, e.ExtraText) || len(e.ExtraText) < min(len(text), 199) || len(e.ExtraText) > 200 || o.UDPSize() != MaxUDP || o.Version() != 0 {
			t.Errorf("%d bytes of text: %v", len(text), o)
		}
	}
	m := new(dns.Msg).SetQuestion("www.a.example.", dns.TypeA)
	m.Compress = true
	for _, line := range []string{"www.a.example. 7 IN CNAME b.example.", "b.example. 8 IN A 192.0.2.1", ". 9 IN NS b.example."} {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	body := packed[QuestionEnd(packed):]
	at, err := TTLOffsets(body, 3)
	if err != nil || len(at) != 3 {
		t.Fatal(at, err)
	}
	for i, off := range at {
		if ttl := binary.BigEndian.Uint32(body[off:]); ttl != uint32(7+i) {
			t.Errorf("record %d has a TTL of %d", i, ttl)
		}
	}
	if _, err := TTLOffsets(body, 2); err == nil {
		t.Error("a record behind the last is no error")
	}
	if got := string(Lowered([]byte("@AZ[`az{\xc3\x89"))); got != "@az[`az{\xc3\x89" {
		t.Errorf("%q", got)
	}
}
