package policies

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnits are the letters after a number of bytes, as powers of 1024, the
// custom of memory and disk flags elsewhere.
const sizeUnits = "KMGT"

// ParseSize reads "512M", "10G", "64K", "1T" or a plain number of bytes. Units
// are powers of 1024; "512MB" and "512MiB" mean the same.
func ParseSize(s string) (int64, error) {
	bad := fmt.Errorf("%q is not a size; write a whole number with K, M, G or T, such as \"512M\"", s)
	digits := strings.TrimRight(s, "KMGTkmgtiIbB")
	unit := strings.ToUpper(s[len(digits):])
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || digits[0] == '+' {
		if errors.Is(err, strconv.ErrRange) {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return 0, bad
	}
	if n < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	if unit == "" || unit == "B" {
		return n, nil
	}
	power := strings.IndexByte(sizeUnits, unit[0]) + 1
	if rest := unit[1:]; power == 0 || rest != "" && rest != "B" && rest != "IB" {
		return 0, bad
	}
	shift := 10 * power
	if n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return n << shift, nil
}

// FormatSize writes n bytes so that ParseSize reads it back exactly.
func FormatSize(n int64) string {
	for power := len(sizeUnits); power > 0; power-- {
		if shift := 10 * power; n != 0 && n%(1<<shift) == 0 {
			return strconv.FormatInt(n>>shift, 10) + sizeUnits[power-1:power]
		}
	}
	return strconv.FormatInt(n, 10)
}

// parseRate reads a size per second, "100M/s", in bytes.
func parseRate(s string) (int64, error) {
	size, ok := strings.CutSuffix(s, "/s")
	if !ok {
		return 0, fmt.Errorf("%q is not a rate; write bytes per second, such as \"100M/s\"", s)
	}
	return ParseSize(size)
}

// parseDuration reads "60s", "1h30m" and so on; it refuses zero and negative
// spans, which no key has a use for.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write a number with a unit, such as \"60s\", \"5m\" or \"1h\"", s)
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is not above zero", s)
	}
	return d, nil
}

// parsePorts reads 443, "443" or "1000-2000".
func parsePorts(v any) (PortRange, error) {
	text := fmt.Sprint(v)
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	switch {
	case errA != nil || errB != nil || a == 0 || first[0] == '+' || last[0] == '+':
		return PortRange{}, fmt.Errorf("%q is not a port; write a number from 1 to 65535, or a range such as \"8000-8099\"", text)
	case a > b:
		return PortRange{}, fmt.Errorf("the range %q ends before it starts", text)
	}
	return PortRange{uint16(a), uint16(b)}, nil
}
