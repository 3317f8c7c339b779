package policies

import (
	"time"
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
	// Mint, if set, names a response whose fields become placeholders.
	Mint *Mint
	Pos  Position
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

// Mint says that the JSON answer to a request for Path carries new tokens in
// Fields; the guest gets fresh placeholders for them.
type Mint struct {
	Path   string
	Fields []string
}
