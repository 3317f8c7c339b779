package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// TestBracketsInTextsAreNoLevels: only the structure of a message counts toward its bounds.
func TestBracketsInTextsAreNoLevels(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", maxDepth+1)
	for text, want := range map[string]bool{
		`{"a":"` + deep + `"}`:   true,
		`{"a":"\"` + deep + `"}`: true,
		`{"a":"\\","b":` + deep + strings.Repeat("]", maxDepth+1) + `}`: false,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth):   true,
		deep + strings.Repeat("]", maxDepth+1):                          false,
		"[" + strings.Repeat("0,", maxValues) + "0]":                    false,
		`["` + strings.Repeat("0,", maxValues) + `"]`:                   true,
	} {
		if !json.Valid([]byte(text)) {
			t.Fatalf("no JSON: %.40s", text)
		}
		if plain([]byte(text)) != want {
			t.Errorf("%.40s…: taken %v, want %v", text, !want, want)
		}
	}
}

// TestI11_NotificationsAreTakenOnce: go-sdk keeps those that it hasn't handled, however many come.
func TestI11_NotificationsAreTakenOnce(t *testing.T) {
	t.Parallel()
	id, err := jsonrpc.MakeID("one")
	if err != nil {
		t.Fatal(err)
	}
	third, err := jsonrpc.MakeID("three")
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{open: map[jsonrpc.ID]*inflight{}}
	for _, one := range []jsonrpc.ID{id, third} {
		if why := c.admit(one, 1); why != "" {
			t.Fatal(why)
		}
	}
	taken := func(method, params string) (n int) {
		for range 100 {
			if c.wanted(&jsonrpc.Request{Method: method, Params: json.RawMessage(params)}) {
				n++
			}
		}
		return n
	}
	for _, tt := range []struct {
		method, params string
		want           int
	}{
		{"notifications/cancelled", `{"requestId":"one"}`, 1},
		{"notifications/cancelled", `{"requestId":"two"}`, 0},
		{"notifications/cancelled", `{"requestId":["one"]}`, 0},
		{"notifications/initialized", `{"_meta":"` + strings.Repeat("x", maxID) + `"}`, 0},
		{"notifications/cancelled", `{"reason":"` + strings.Repeat("x", 1<<16) + `","requestId":"three"}`, 0},
		{"notifications/cancelled", `{"reason":"` + strings.Repeat("x", 1<<15) + `","requestId":"three"}`, 1},
		{"notifications/nosuch", `{}`, 0},
	} {
		if got := taken(tt.method, tt.params); got != tt.want {
			t.Errorf("%s %.50s: taken %d times of 100, want %d", tt.method, tt.params, got, tt.want)
		}
	}
	c = &conn{open: map[jsonrpc.ID]*inflight{}}
	if got := taken("notifications/initialized", "{}"); got != maxInitialized {
		t.Errorf("initialized: taken %d times of 100, want %d", got, maxInitialized)
	}
}
