package mcp

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"
)

// plain reports whether valid JSON is within maxValues and maxDepth.
func plain(b []byte) bool {
	depth, values, quoted := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch {
		case quoted && b[i] == '\\':
			i++
		case b[i] == '"':
			quoted = !quoted
		case quoted:
		case b[i] == '[' || b[i] == '{':
			depth++
			values++
		case b[i] == ']' || b[i] == '}':
			depth--
		case b[i] == ',':
			values++
		}
		if depth > maxDepth || values > maxValues {
			return false
		}
	}
	return true
}

// member is the raw value of an object's key, nil if there is none, and reports whether the key occurs at most once. go-sdk
// distinguishes case, which encoding/json doesn't.
func member(object []byte, key string) (value json.RawMessage, once bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil, true
	}
	for d.More() {
		var v json.RawMessage
		k, err := d.Token()
		if err != nil || d.Decode(&v) != nil || k == key && value != nil {
			return nil, false
		}
		if k == key {
			value = v
		}
	}
	return value, true
}

// idOf is the raw id of a message, nil if there is none, and reports whether it occurs at most once.
func idOf(line []byte) (id json.RawMessage, once bool) {
	id, once = member(line, "id")
	if string(id) == "null" {
		return nil, once
	}
	return id, once
}

// usable reports whether an id is a string or an integer, which go-sdk returns unchanged. It would cut off fractions.
func usable(id json.RawMessage) bool {
	if len(id) > maxID {
		return false
	}
	if id[0] == '"' { // what is no UTF-8, and half a surrogate pair, is decoded to this
		var text string
		return json.Unmarshal(id, &text) == nil && !strings.ContainsRune(text, utf8.RuneError)
	}
	var n float64
	return json.Unmarshal(id, &n) == nil && n == math.Trunc(n) && math.Abs(n) < 1<<53
}
