package clientconfig

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// editTOML sets or, for nil, removes the table [TABLE.msb] of a TOML document. The tables of the document and their
// comments stay where they are: only the lines of that table, and of those below it, are msb's. A document that says the
// same in another way (dotted keys, inline tables) is left alone.
func editTOML(doc []byte, table string, entry any) ([]byte, error) {
	var old map[string]any
	if err := toml.Unmarshal(doc, &old); err != nil {
		return nil, fmt.Errorf("it can't be read as TOML, and is left as it is: %w", err)
	}
	servers, _ := old[table].(map[string]any)
	have, exists := servers[serverName]
	if entry == nil && !exists {
		return doc, nil
	}
	var text bytes.Buffer
	var want any
	if entry != nil {
		fmt.Fprintf(&text, "[%s.%s]\n", table, serverName)
		if err := toml.NewEncoder(&text).Encode(entry); err != nil {
			return nil, err
		}
		var said map[string]any
		if err := toml.Unmarshal(text.Bytes(), &said); err != nil {
			return nil, err
		}
		if want = take(said, table); reflect.DeepEqual(have, want) {
			return doc, nil
		}
	}
	before, after := cutTable(string(doc), table+"."+serverName)
	if err := extensible(before+after, table); err != nil {
		return nil, err
	}
	out := before
	if entry != nil {
		if out = strings.TrimRight(before, "\n"); out != "" {
			out += "\n\n"
		}
		out += text.String()
		if after != "" {
			out += "\n"
		}
	}
	out += after
	return []byte(out), checkTOML(old, out, table, want)
}

// cutTable returns the text before and after the lines of a table and its subtables.
func cutTable(doc, table string) (before, after string) {
	var out [2]strings.Builder
	in, seen := false, 0
	for line := range strings.Lines(doc) {
		if header := strings.TrimSpace(line); strings.HasPrefix(header, "[") {
			name, _, _ := strings.Cut(strings.Trim(header, "["), "]")
			in = strings.TrimSpace(name) == table || strings.HasPrefix(strings.TrimSpace(name), table+".")
			if in {
				seen = 1
			}
		}
		if !in {
			out[seen].WriteString(line)
		}
	}
	return out[0].String(), out[1].String()
}

// checkTOML makes sure that a new document has want as the server, and otherwise is the same as the old one.
func checkTOML(old map[string]any, text, table string, want any) error {
	var got map[string]any
	if toml.Unmarshal([]byte(text), &got) == nil && reflect.DeepEqual(take(got, table), want) {
		take(old, table)
		if reflect.DeepEqual(old, got) {
			return nil
		}
	}
	return byHand(table)
}

// extensible makes sure that a header [TABLE.msb] may be added to a document. TOML forbids it for inline tables: the
// package toml reads such a file all the same, but strict readers, as Codex's, would reject the whole file.
func extensible(doc, table string) error {
	var left map[string]any
	if err := toml.Unmarshal([]byte(doc), &left); err != nil {
		return byHand(table)
	}
	inline := regexp.MustCompile(`(?m)^[ \t]*["']?` + regexp.QuoteMeta(table) + `["']?[ \t]*=`)
	if take(left, table) != nil || inline.MatchString(doc) {
		return byHand(table)
	}
	return nil
}

func byHand(table string) error {
	return fmt.Errorf("%s.%s is written in a way that msb doesn't change (an inline table, or dotted keys); write the headers [%[1]s.NAME] in its place, and run the command again", table, serverName)
}

// take removes the server from a decoded document and returns it.
func take(doc map[string]any, table string) any {
	servers, _ := doc[table].(map[string]any)
	server := servers[serverName]
	if delete(servers, serverName); len(servers) == 0 {
		delete(doc, table)
	}
	return server
}
