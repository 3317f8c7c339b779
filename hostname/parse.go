package hostname

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxLength is the longest name in bytes, without the trailing dot: 255 octets
// on the wire less the length octet of the first label and the root label
// (RFC 1035, section 2.3.4).
const MaxLength = 253

// maxLabelLength is the longest label in bytes (RFC 1035, section 2.3.4).
const maxLabelLength = 63

// maxInput bounds what is handed to the IDNA tables: a full name of four-byte
// runes. Guests choose the text of SNI and Host, so work on it is bounded
// before any mapping starts.
const maxInput = 4 * MaxLength

// Sentinels that callers may test for with errors.Is.
var (
	// ErrInvalid is wrapped by every error of this package.
	ErrInvalid = errors.New("invalid host name")
	// ErrAddress says that the text is an IP address, or a spelling that
	// resolvers take for one (0x7f000001, 2130706433, 127.1, 0177.0.0.1).
	ErrAddress = fmt.Errorf("%w: it is an IP address", ErrInvalid)
)

// profile is idna.Lookup (UTS #46 non-transitional, mapped, with the bidi and
// joiner rules) without STD3: what STD3 refuses and this package refuses too is
// checked on the ASCII form, because "_sip._tcp.example" must pass. It is
// immutable, and building it for each name would cost more than using it.
var profile = idna.New(
	idna.MapForLookup(),
	idna.BidiRule(),
	idna.CheckJoiners(true),
	idna.CheckHyphens(false),
	idna.StrictDomainName(false),
	idna.Transitional(false),
)

// Parse normalises s into a Name. It accepts one trailing dot, any case,
// Unicode (mapped by IDNA, so full-width letters and dots are fine) and
// underscores, which SRV and TXT names need. It refuses wildcards, empty
// labels, IP addresses in every spelling, brackets, ports and white space.
func Parse(s string) (Name, error) {
	if len(s) > maxInput {
		return Name{}, fmt.Errorf("%w: longer than %d bytes", ErrInvalid, MaxLength)
	}
	ascii, err := toASCII(s)
	if err != nil {
		return Name{}, fmt.Errorf("%w %q: %w", ErrInvalid, s, err)
	}
	ascii = strings.TrimSuffix(ascii, ".")
	if err := checkASCII(ascii); err != nil {
		if errors.Is(err, ErrAddress) {
			return Name{}, fmt.Errorf("%w: %q", ErrAddress, s)
		}
		return Name{}, fmt.Errorf("%w %q: %w", ErrInvalid, s, err)
	}
	return Name{ascii}, nil
}

// MustParse is Parse for constants and tests: it panics on an error.
func MustParse(s string) Name {
	n, err := Parse(s)
	if err != nil {
		panic(err)
	}
	return n
}

// toASCII maps s to lower-case A-labels. Plain ASCII, the hot path, only has
// its case folded: the tables would refuse real names such as
// "r3---sn-4g5e6nsz.example" for the hyphens in their third and fourth place.
func toASCII(s string) (string, error) {
	ascii := true
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		lower := strings.ToLower(s)
		if !hasPunycode(lower) {
			return lower, nil
		}
		s = lower
	}
	mapped, err := profile.ToASCII(s)
	if err != nil {
		return "", errors.New("it is not valid under IDNA (UTS #46)")
	}
	// An A-label is only ours if it is the one that its Unicode form encodes
	// to; otherwise one host would have two names.
	unicode, err := profile.ToUnicode(mapped)
	if err != nil {
		return "", errors.New("its xn-- label is not valid punycode")
	}
	if again, err := profile.ToASCII(unicode); err != nil || again != mapped {
		return "", errors.New("its xn-- label is not the one IDNA gives")
	}
	return mapped, nil
}

// hasPunycode reports whether any label of the lower-case name s starts with
// the ACE prefix.
func hasPunycode(s string) bool {
	return strings.HasPrefix(s, "xn--") || strings.Contains(s, ".xn--")
}

// checkASCII checks length, labels and characters of a lower-case name.
func checkASCII(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	if looksLikeAddress(s) {
		return ErrAddress
	}
	if len(s) > MaxLength {
		return fmt.Errorf("it is longer than %d bytes", MaxLength)
	}
	start := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			if !isNameByte(s[i]) {
				return fmt.Errorf("a name can't hold %q", s[i])
			}
			continue
		}
		if err := checkLabel(s[start:i]); err != nil {
			return err
		}
		start = i + 1
	}
	return nil
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("it has an empty label (two dots in a row, or one in front)")
	case len(label) > maxLabelLength:
		return fmt.Errorf("a label is longer than %d bytes", maxLabelLength)
	case label[0] == '-' || label[len(label)-1] == '-':
		return errors.New("a label can't start or end with a hyphen")
	}
	return nil
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// looksLikeAddress reports whether s is an IPv6 address, or ends in a number
// as the URL standard defines it (https://url.spec.whatwg.org/#ends-in-a-number-checker):
// inet_aton and browsers read such text as an IPv4 address, so "127.1" or
// "0x7f000001" taken for a name would walk past every check on addresses.
func looksLikeAddress(s string) bool {
	if strings.ContainsAny(s, ":[]") {
		_, err := netip.ParseAddr(strings.Trim(s, "[]"))
		return err == nil
	}
	last := s[strings.LastIndexByte(s, '.')+1:]
	if last == "" {
		return false
	}
	digits, hex := last, strings.HasPrefix(last, "0x")
	if hex {
		digits = last[2:]
	}
	for i := range len(digits) {
		c := digits[i]
		if (c < '0' || c > '9') && (!hex || c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
