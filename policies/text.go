package policies

import (
	"fmt"
	"slices"
	"strings"
)

// enum ties the values of a small integer type to their spellings in the file.
// The place in the list is the value.
type enum []string

func (e enum) text(i uint8) string {
	if int(i) < len(e) {
		return e[i]
	}
	return fmt.Sprintf("invalid(%d)", i)
}

// value returns the value that s spells.
func (e enum) value(s string) (uint8, bool) {
	i := slices.Index(e, s)
	return uint8(max(i, 0)), i >= 0
}

// list returns the spellings for a message: `"a", "b"`.
func (e enum) list() string {
	return `"` + strings.Join(e, `", "`) + `"`
}

var (
	defaultActions = enum{"deny", "public"}
	modes          = enum{"enforce", "report"}
	protocols      = enum{"any", "https", "http", "tls", "tcp", "udp", "icmp"}
	inspects       = enum{"auto", "all", "none"}
	violations     = enum{"block", "terminate"}
	approvals      = enum{"terminal", "client"}
)

// String returns the value as the file writes it.
func (d DefaultAction) String() string { return defaultActions.text(uint8(d)) }

// String returns the value as the file writes it.
func (m Mode) String() string { return modes.text(uint8(m)) }

// String returns the value as the file writes it.
func (p Protocol) String() string { return protocols.text(uint8(p)) }

// String returns the value as the file writes it.
func (i Inspect) String() string { return inspects.text(uint8(i)) }

// String returns the value as the file writes it.
func (o OnViolation) String() string { return violations.text(uint8(o)) }

// String returns the value as the file writes it.
func (a Approve) String() string { return approvals.text(uint8(a)) }

// String returns "443" or "1-1024".
func (r PortRange) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// String returns the place as the file writes it.
func (p Place) String() string {
	switch p.Kind {
	case InHeader:
		return "header:" + p.Name
	case InBasic:
		return "basic"
	case InQuery:
		return "query:" + p.Name
	case InBody:
		return "body"
	case InWebSocket:
		return "websocket"
	}
	return fmt.Sprintf("invalid(%d)", p.Kind)
}

// String returns "file:line:col", as far as it is known.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}
