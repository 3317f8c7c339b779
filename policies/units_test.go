package policies

import (
	"math"
	"testing"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"0": 0, "1": 1, "1024": 1024, "64K": 64 << 10, "512M": 512 << 20, "10G": 10 << 30, "2T": 2 << 40,
		"512m": 512 << 20, "512MB": 512 << 20, "512MiB": 512 << 20, "7B": 7, "8388607T": 8388607 << 40,
		"9223372036854775807": math.MaxInt64,
	} {
		got, err := ParseSize(in)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
			continue
		}
		if back, err := ParseSize(FormatSize(got)); err != nil || back != got {
			t.Errorf("FormatSize(%d) = %q, which is %d, %v", got, FormatSize(got), back, err)
		}
	}
	for _, in := range []string{"", "M", "1.5G", "-1", "-1M", "+1M", "1 M", "1X", "1MM", "1iB", "1KK", "0x10", "8388608T", "9223372036854775808", "1M/s", "1_000"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d", in, got)
		}
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	if got, err := parseRate("100M/s"); err != nil || got != 100<<20 {
		t.Errorf("100M/s is %d, %v", got, err)
	}
	for _, in := range []string{"100M", "/s", "100M/m", "100M/sec", "-1/s"} {
		if got, err := parseRate(in); err == nil {
			t.Errorf("ParseRate(%q) = %d", in, got)
		}
	}
}
