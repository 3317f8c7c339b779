package main

import (
	"testing"
	"time"
)

func TestLogFlagsMatchOtherTools(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for since, want := range map[string]time.Time{
		"": {}, "10m": now.Add(-10 * time.Minute), "1699999999": time.Unix(1_699_999_999, 0), "2023-11-14T22:13:20Z": now,
		"2023-11-14T22:13:20.5Z": now.Add(time.Second / 2), "2023-11-14": time.Date(2023, 11, 14, 0, 0, 0, 0, time.Local),
	} {
		f := logFlags{since: since, tail: "all"}
		if o, err := f.options(now); err != nil || !o.Since.Equal(want) {
			t.Errorf("--since %q: %v, %v; want %v", since, o.Since, err, want)
		}
	}
	for tail, want := range map[string]int{"all": 0, "0": -1, "1": 1, "25": 25, "-1": 0, "-7": 0} {
		f := logFlags{tail: tail}
		if o, err := f.options(now); err != nil || o.Tail != want {
			t.Errorf("--tail %q: %d, %v; want %d", tail, o.Tail, err, want)
		}
	}
	for _, f := range []logFlags{{tail: "x"}, {tail: ""}, {tail: "all", since: "yesterday"}, {tail: "all", json: true, timestamps: true}, {tail: "all", grep: "("}} {
		if o, err := f.options(now); err == nil {
			t.Errorf("%+v is taken: %+v", f, o)
		}
	}
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"a\nb\nc\n", 1, "c\n"}, {"a\nb\nc", 1, "c"}, {"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\n", 9, "a\nb\n"}, {"a\nb\n", 2, "a\nb\n"}, {"a\n", 0, "a\n"}, {"a\n", -1, ""}, {"", 1, ""}, {"\n\n", 1, "\n"}} {
		if got := string(lastLines([]byte(c.text), c.n)); got != c.want {
			t.Errorf("the last %d of %q: %q, want %q", c.n, c.text, got, c.want)
		}
	}
}
