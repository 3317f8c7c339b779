package review_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

// TestI12_DamageHasItsRemedy has each file that is no whole capture, and what is said of it.
func TestI12_DamageHasItsRemedy(t *testing.T) {
	t.Parallel()
	_, file := caseOf(t, "ssh")
	foreign := bytes.Clone(classic(t, file, 1<<16))
	foreign[20] = 113 // its link
	spoiled := bytes.Clone(classic(t, file, 1<<16))
	spoiled[24+11] = 0xff // the length of its first packet
	dir := t.TempDir()
	for name, c := range map[string]struct {
		content []byte
		want    string // "" is whole
	}{
		"whole.pcapng": {file, ""},
		"whole.pcap":   {classic(t, file, 1<<16), ""},
		"empty":        {[]byte{}, "it is empty; a recording that was begun has at least its head: record it again, with --pcap"},
		"gzip":         {[]byte("\x1f\x8bxx"), "it is compressed; unpack it first"},
		"bzip2":        {[]byte("BZh9"), "it is compressed; unpack it first"},
		"xz":           {[]byte("\xfd7zXZ"), "it is compressed; unpack it first"},
		"zstd":         {[]byte("\x28\xb5\x2f\xfd"), "it is compressed; unpack it first"},
		"zip":          {[]byte("PK\x03\x04"), "it is compressed; unpack it first"},
		"short gzip":   {[]byte("\x1f\x8b"), "it is compressed; unpack it first"},
		"text":         {[]byte("BZ is text"), "name a pcap or pcapng file, such as --pcap writes"},
		"three bytes":  {[]byte("abc"), "name a pcap or pcapng file, such as --pcap writes"},
		"foreign":      {foreign, "(tcpdump -i eth0), not on \"any\"; what else was readable is shown"},
		"cut":          {file[:len(file)-5], "what was readable is shown; the recording goes on still, or was killed, or was copied in part"},
		"spoiled":      {spoiled, "bytes; what was readable is shown"},
		"a directory":  {nil, "it is a directory; name the captures in it, as in DIR/*.pcapng*"},
		"missing":      {nil, "no such file or directory; check its path"},
	} {
		path := filepath.Join(dir, name)
		if c.content != nil {
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if name != "missing" {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		r, err := review.Run(t.Context(), review.Options{Policy: policies.Default(), Captures: []string{path}})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(r.Summary()[1:], "\n")
		unread := c.want != "" && name != "cut" && name != "spoiled"
		if c.want == "" && len(r.Damage) > 0 || !strings.HasSuffix(got, c.want) || c.want != "" && (!strings.HasPrefix(got, "damaged: "+path+": ") || len(r.Damage) != 1) ||
			(r.Unread() == 1) != unread || r.Count(review.Unreadable) != len(r.Damage) {
			t.Errorf("%s: %d unread, %q, want %q", name, r.Unread(), got, c.want)
		}
	}
	r, err := review.Run(t.Context(), review.Options{Policy: policies.Default(), Captures: []string{"-"}})
	if err != nil || r.Unread() != 1 || !strings.Contains(r.Damage[0].String(), "/dev/stdin") {
		t.Errorf("%v, %v", r.Damage, err)
	}
}

// answered is a frame as the server of frame would answer it: its ends are changed over.
func answered(frame []byte) []byte {
	f := bytes.Clone(frame)
	copy(f, frame[6:12])
	copy(f[6:], frame[:6])
	copy(f[26:], frame[30:34])
	copy(f[30:], frame[26:30])
	copy(f[34:], frame[36:38])
	copy(f[36:], frame[34:36])
	return f
}

// TestFlowsBeginWithWhatIsThere has captures that begin in the middle, with directions and without: who the guest is, and
// how much each side said.
func TestFlowsBeginWithWhatIsThere(t *testing.T) {
	t.Parallel()
	data, long := segmentTo(443, 40000, capture.ACK, 1000, "hello"), segmentTo(443, 40000, capture.ACK, 1005, "more")
	reply := answered(segmentTo(443, 40000, capture.ACK, 2000, "an answer"))
	low := segmentTo(40000, 443, capture.ACK, 1000, "hello")
	both := answered(segmentTo(443, 40000, capture.SYN|capture.ACK, 1999, ""))
	syn := segmentTo(443, 40000, capture.SYN, 999, "")
	again := segmentTo(443, 40000, capture.SYN, 5999, "")
	ping := append(packet(1, 8+4), 8, 0, 0, 0, 0, 1, 0, 1, 'd', 'a', 't', 'a')
	pong := answered(ping)
	copy(pong[34:], []byte{0, 0, 0, 0}) // a reply has another type, and no ports
	dhcp := append(packet(17, 8), 0, 68, 0, 67, 0, 8, 0, 0)
	const up, down = capture.FromGuest, capture.ToGuest
	type sent struct {
		direction capture.Direction
		frame     []byte
	}
	for name, c := range map[string]struct {
		sent     []sent
		directed string // the flows: from, to, up, down
		guessed  string // the same where no direction was recorded
	}{
		"from its beginning":               {[]sent{{up, syn}, {down, both}, {up, data}, {down, reply}}, "40000 > 93.184.215.14:443 5 9", "40000 > 93.184.215.14:443 5 9"},
		"from the guest on":                {[]sent{{up, data}, {down, reply}, {up, long}}, "40000 > 93.184.215.14:443 9 9", "40000 > 93.184.215.14:443 9 9"},
		"from the answer on":               {[]sent{{down, reply}, {up, data}}, "40000 > 93.184.215.14:443 5 9", "40000 > 93.184.215.14:443 5 9"},
		"from a SYN-ACK on":                {[]sent{{down, both}, {up, data}}, "40000 > 93.184.215.14:443 5 0", "40000 > 93.184.215.14:443 5 0"},
		"from a SYN-ACK of a high port on": {[]sent{{down, answered(segmentTo(50000, 40000, capture.SYN|capture.ACK, 1999, ""))}}, "40000 > 93.184.215.14:50000 0 0", "40000 > 93.184.215.14:50000 0 0"},
		"from a low port":                  {[]sent{{up, low}}, "443 > 93.184.215.14:40000 5 0", "40000 > 192.168.127.2:443 0 5"},
		"a port used again":                {[]sent{{up, syn}, {up, data}, {up, syn}, {up, again}, {up, data}}, "40000 > 93.184.215.14:443 5 0, 40000 > 93.184.215.14:443 5 0", "40000 > 93.184.215.14:443 5 0, 40000 > 93.184.215.14:443 5 0"},
		"a ping":                           {[]sent{{up, ping}, {down, pong}}, "0 > 93.184.215.14 4 4", "0 > 93.184.215.14 4 4"},
		"a reply to nothing":               {[]sent{{down, pong}}, "", ""},
		"DHCP":                             {[]sent{{up, dhcp}}, "", ""},
	} {
		var out bytes.Buffer
		w := capture.NewWriter(&out, capture.Options{})
		for _, s := range c.sent {
			w.Packet(s.direction, s.frame, "")
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		const short = 56 // bytes of each frame, of which 2 are payload
		for file, want := range map[string]string{
			out.String(): c.directed, string(classic(t, out.Bytes(), 1<<16)): c.guessed, string(classic(t, out.Bytes(), short)): c.guessed,
		} {
			r := read(t, []byte(file), review.Options{Policy: policy(t, "[egress]\ndefault = \"public\"\n")})
			var flows []string
			for f := range r.Flows() {
				to := f.Dst.String()
				if f.Dst.Port() == 0 {
					to = f.Dst.Addr().String()
				}
				flows = append(flows, fmt.Sprint(f.Src.Port(), " > ", to, " ", f.BytesUp, " ", f.BytesDown))
			}
			if got := strings.Join(flows, ", "); got != want || r.Packets != int64(len(c.sent)) {
				t.Errorf("%s: %s of %d packets, want %s", name, got, r.Packets, want)
			}
		}
	}
}

// TestLostVerdictsAreMissed: verdicts that the capture couldn't hold are reported, and fail the review of a capture that
// is complete otherwise.
func TestLostVerdictsAreMissed(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string]int{"": 0, "msb: verdicts lost: 0": 0, capture.LostVerdicts(3): 1} {
		l := newLink()
		l.w.Packet(capture.FromGuest, segmentTo(443, 40000, capture.SYN, 999, ""), comment)
		r := l.review(t)
		text := strings.Join(r.Summary(), "\n")
		if got := r.Count(review.Unreadable); got != want || strings.Contains(text, "3 verdicts are missing: ") != (want > 0) {
			t.Errorf("%q: %d faults\n%s", comment, got, text)
		}
	}
}

// TestFlowsWithoutABeginningAreUndecided where a name would decide, and say that something is missing.
func TestFlowsWithoutABeginningAreUndecided(t *testing.T) {
	t.Parallel()
	l := newLink()
	l.w.Packet(capture.FromGuest, segmentTo(443, 40000, capture.ACK, 1000, "hello"), "")
	if err := l.w.Close(); err != nil {
		t.Fatal(err)
	}
	r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, "[[egress.allow]]\nhosts = [\"good.example\"]\nprotocol = \"tls\"\n")})
	for f := range r.Flows() {
		if !f.Cut || f.Verdict.Action != review.Undecided {
			t.Errorf("cut %v, %s", f.Cut, f.Verdict.Action)
		}
	}
	if r.Len() != 1 {
		t.Errorf("%d flows", r.Len())
	}
}
