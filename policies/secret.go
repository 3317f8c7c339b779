package policies

import (
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Secret is one [secrets.NAME]: a value that only the supervisor reads, and
// that replaces its placeholder in requests to Hosts, in the places In.
type Secret struct {
	// Name is the key of the table and the variable that holds the placeholder
	// in the guest.
	Name string
	From Source
	// Hosts are where the value may go; each is allowed by an https rule.
	Hosts []SecretHost
	In    []Place
	// Placeholder is the shape that clients expect, with one {n} for n random
	// characters of [A-Za-z0-9]: "ghp_{36}".
	Placeholder string
	OnViolation OnViolation
	// Kind is "" or SigV4.
	Kind string
	// Services and Regions are for SigV4: what may be signed for.
	Services, Regions []string
	// Mint, if set, names fields of responses that become placeholders.
	Mint *Mint
	// Upgrades are protocols of the Upgrade field, in lower case, that a connection
	// to the secret's hosts may go over to though nobody looks into them.
	Upgrades []string
	Pos      Position
}

// SigV4 is the Kind of secrets whose requests are signed again with the real
// credentials (AWS Signature Version 4).
const SigV4 = "aws-sigv4"

// Source says where a secret's value is. It is read by the supervisor only.
type Source struct {
	Kind SourceKind
	// Value is the variable for FromEnv, the path for FromFile.
	Value string
	// Argv is for FromCommand; it is run without a shell.
	Argv []string
	// TTL is how long a command's answer is kept; 0 means for good.
	TTL time.Duration
	// RefreshOn401 has a command run again after a server answered 401.
	RefreshOn401 bool
	// Hold, if not nil, is what approval found behind a file or a command: whoever
	// reads the source refuses anything else. It has no key in the file.
	Hold *Hold
}

// String returns the source as the file writes it, quoted where that is needed
// to be shown.
func (s Source) String() string {
	switch s.Kind {
	case FromEnv:
		return "env:" + s.Value
	case FromFile:
		return "file:" + strconv.Quote(s.Value)
	case FromCommand:
		return "command:" + QuoteArgs(s.Argv)
	case FromNone:
	}
	return "nowhere"
}

// QuoteArgs shows a command line so that each argument is seen as one.
func QuoteArgs(argv []string) string {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = a
		if a == "" || strings.ContainsFunc(a, func(c rune) bool { return !unicode.IsPrint(c) || strings.ContainsRune(" \"'`\\$", c) }) {
			quoted[i] = strconv.Quote(a)
		}
	}
	return strings.Join(quoted, " ")
}

// Hold ties a source to what was approved. Package policies/grants makes and
// checks it.
type Hold struct {
	// Path is the real path of the file or the program; "" if there was none.
	Path string `json:"path"`
	// Within is a directory that no link on the way to a file may lead out of, in the place of Path; links in it may
	// change.
	Within string `json:"within,omitempty"`
	// Trees are the directories that whoever wrote the policy may write to: its
	// own, and that of the git repository around it.
	Trees []string `json:"trees"`
	// Dir is a command's working directory.
	Dir string `json:"dir,omitempty"`
	// Program is the SHA-256, in hexadecimal, of a script in Trees, which is run
	// from a copy; "" for a program elsewhere.
	Program string `json:"program,omitempty"`
	// Content is the SHA-256 over all files in Trees but Skip, for a command that
	// may reach them; "" for one that can't.
	Content string `json:"content,omitempty"`
	// Rules are the policy files in Trees: their egress rules don't count for
	// Content.
	Rules []string `json:"rules,omitempty"`
	// Skip is msb's own state directory.
	Skip string `json:"skip,omitempty"`
}

// SourceKind is the kind of a Source.
type SourceKind uint8

// The kinds of secrets.NAME.from. The zero value is none and never valid.
const (
	// FromNone is no source.
	FromNone SourceKind = iota
	// FromEnv is "env:NAME".
	FromEnv
	// FromFile is "file:PATH".
	FromFile
	// FromCommand is "command:ARGV…", split at spaces, or the list
	// ["command:PROG", "ARG", …] where an argument holds a space.
	FromCommand
)

// Place is where in a request a value may stand.
type Place struct {
	Kind PlaceKind
	// Name is the header (canonical form, as net/http writes it) or the query
	// parameter; "" otherwise.
	Name string
}

// PlaceKind is the kind of a Place.
type PlaceKind uint8

// The kinds of secrets.NAME.in.
const (
	// InHeader is "header:NAME".
	InHeader PlaceKind = iota
	// InBasic is "basic": user or password of Basic credentials.
	InBasic
	// InQuery is "query:NAME".
	InQuery
	// InBody is "body".
	InBody
	// InWebSocket is "websocket": text and binary messages of the guest's.
	InWebSocket
)

// OnViolation is what happens when a placeholder turns up where it may not.
type OnViolation uint8

// The values of secrets.NAME.on_violation. The zero value blocks.
const (
	// Block ("block") refuses the request.
	Block OnViolation = iota
	// Terminate ("terminate") refuses it and stops the sandbox.
	Terminate
)

// Mint says that JSON answers of the secret's hosts carry new tokens in Fields;
// the guest gets fresh placeholders for them. An answer to a request for Path
// that can't be read is refused.
type Mint struct {
	Path   string
	Fields []string
}
