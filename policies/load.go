package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/BurntSushi/toml"

	"github.com/msb-project/msb/internal/lazyregexp"
)

const (
	// maxFile bounds one policy file in bytes. A rule takes about 100, so this
	// is room for ten thousand, and too little to nest the parser to death.
	maxFile = 1 << 20
	// maxFiles bounds how many files one policy is made of.
	maxFiles = 64
	// maxFaults is where reporting stops: past it, the reader has stopped too.
	maxFaults = 100
)

// Opener reads the policy file at a path, for include.
type Opener func(path string) ([]byte, error)

// Load reads the policy file at path and everything it includes, and validates
// the whole. Relative paths in a file start from the directory it is in, and are
// absolute in the result. Faults of the text are an ErrorList.
func Load(path string) (*Policy, error) {
	p, _, err := LoadSources(path)
	return p, err
}

// Parse is Load for a policy that is in memory. filename is for messages and
// for relative paths; open reads included files, and may be nil, in which case
// a policy can include presets only.
func Parse(filename string, data []byte, open Opener) (*Policy, error) {
	p, err := (&loader{open: open}).load(filename, data)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// LoadSound is Load for whoever looks for more faults than those of the text: beside an ErrorList it returns the rules
// and secrets that have none, if the file could be read as TOML. Nothing may run by that policy.
func LoadSound(path string) (*Policy, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return (&loader{open: readFile, abs: true}).load(path, data)
}

// load reads the file and what it includes. Beside faults it returns what is sound.
func (l *loader) load(filename string, data []byte) (*Policy, error) {
	l.done, l.faults = map[string]bool{}, &faults{file: filename}
	unit := l.file(filename, data, nil)
	if unit == nil {
		return nil, l.err()
	}
	p := l.merge(unit)
	l.faults.places = unit.places
	l.faults.checkNames(p)
	l.dropUnsound(p)
	if !l.partial {
		l.faults.checkAgent(p)
		l.faults.checkTogether(p)
	} else { // of what is faulty, parts are missing: only what is said of a pair holds
		l.faults.checkPairwise(p)
	}
	if err := l.err(); err != nil {
		return p, err
	}
	dropDenied(p)
	return p, nil
}

// dropDenied takes out what can never be used: allow rules and hosts of secrets that a deny rule of another file covers.
// In one file, as which the policy may be written (Encode), they are errors.
func dropDenied(p *Policy) {
	p.Egress.Allow = slices.DeleteFunc(p.Egress.Allow, func(a Rule) bool {
		return slices.ContainsFunc(p.Egress.Deny, func(d Rule) bool { return covers(d, a) })
	})
	for i := range p.Secrets {
		s := &p.Secrets[i]
		s.Hosts = slices.DeleteFunc(s.Hosts, func(h SecretHost) bool { _, shut := shutBy(p, h); return shut })
	}
	p.Secrets = slices.DeleteFunc(p.Secrets, func(s Secret) bool { return len(s.Hosts) == 0 })
}

// unsoundOf notes what the faults of one file leave unsound: a rule or a secret, or what others are judged by.
func (l *loader) unsoundOf(f *faults) {
	for _, e := range f.list {
		table, _, _ := strings.Cut(e.Key, ".")
		switch item := faultyItem.Get().FindString(e.Key); {
		case item != "":
			if l.unsound == nil {
				l.unsound = map[Position]bool{}
			}
			l.unsound[f.places.of(item)] = true
			l.partial = l.partial || table == "egress"
		case table == "sandbox", table == "limits", table == "dns", table == "version":
		default:
			l.partial = true
		}
	}
}

// faultyItem is the rule or secret that a key is of.
var faultyItem = lazyregexp.New(`^(egress\.(allow|deny)\[\d+\]|secrets\.("(\\.|[^"\\])*"|[^."]+))`)

// dropUnsound takes rules and secrets with faults out of p.
func (l *loader) dropUnsound(p *Policy) {
	if len(l.unsound) == 0 {
		return
	}
	bad := func(r Rule) bool { return l.unsound[r.Pos] }
	p.Egress.Allow, p.Egress.Deny = slices.DeleteFunc(p.Egress.Allow, bad), slices.DeleteFunc(p.Egress.Deny, bad)
	p.Secrets = slices.DeleteFunc(p.Secrets, func(s Secret) bool { return l.unsound[s.Pos] })
}

// loader reads one policy and its includes.
type loader struct {
	open   Opener
	abs    bool            // relative paths in the files become absolute
	done   map[string]bool // files and presets that are in already
	faults *faults
	// unsound are the places of rules and secrets with faults; partial tells that something has faults by which others
	// are judged: rules, hosts, tls, include.
	unsound map[Position]bool
	partial bool
}

// unit is one file, read but not merged.
type unit struct {
	policy   *Policy
	set      map[string]Position
	places   places
	includes []*unit
}

func (l *loader) err() error {
	shorten(l.faults)
	return l.faults.err()
}

// file reads one file and, through include, those it names. above is the way
// of includes that led here.
func (l *loader) file(name string, data []byte, above []string) *unit {
	f := &faults{file: name}
	defer func() {
		f.dropFollowing()
		l.faults.list = append(l.faults.list, f.list...)
		l.unsoundOf(f)
	}()
	doc, ok := decode(f, name, data)
	if !ok {
		l.partial = true
		return nil
	}
	dir := filepath.Dir(name)
	c := &converter{faults: f, set: map[string]Position{}, dir: dir}
	if l.abs {
		if abs, err := filepath.Abs(dir); err == nil { // without a working directory, paths stay as they are
			c.dir = abs
		}
	}
	u := &unit{policy: c.policy(doc), set: c.set, places: f.places}
	above = append(above[:len(above):len(above)], name)
	for i, inc := range doc.Include {
		if child := l.include(f, fmt.Sprintf("include[%d]", i), inc, dir, above); child != nil {
			u.includes = append(u.includes, child)
		}
	}
	return u
}

// decode parses the text and reads it into the types of file.go.
func decode(f *faults, name string, data []byte) (fileDoc, bool) {
	var doc fileDoc
	if len(data) > maxFile {
		f.add("", fmt.Sprintf("it is longer than %d bytes", maxFile), "split it, and include the parts")
		return doc, false
	}
	// The byte order mark that some editors write: the parser skips it without
	// counting it.
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if at, err := checkNesting(string(data)); err != nil {
		f.addAt(positionAt(name, string(data), at), "", err.Error(), "no policy needs that")
		return doc, false
	}
	var raw map[string]any
	if _, err := toml.Decode(string(data), &raw); err != nil {
		var perr toml.ParseError
		if !errors.As(err, &perr) {
			f.add("", err.Error(), "")
			return doc, false
		}
		// Its Line and Col are off where a line end is at fault; Start is right.
		pos := positionAt(name, string(data), perr.Position.Start)
		key := perr.LastKey
		f.addAt(pos, key, "not TOML: "+strings.TrimSuffix(perr.Message, "."), "")
		return doc, false
	}
	f.places = findPlaces(name, string(data))
	tree{f}.fill(reflect.ValueOf(&doc).Elem(), raw, "")
	return doc, true
}

// include reads what one entry of include names. It returns nil for what is in
// already, and after a fault.
func (l *loader) include(f *faults, key, name, dir string, above []string) *unit {
	var data []byte
	var err error
	id := name
	if isPresetName(name) {
		id = presetID(name)
		data, err = presetSource(name)
	} else {
		if !filepath.IsAbs(name) {
			id = filepath.Join(dir, name)
		}
		data, err = l.read(id, above)
	}
	if err != nil {
		f.addErr(key, err)
		return nil
	}
	for i, a := range above {
		if filepath.Clean(a) == filepath.Clean(id) {
			f.add(key, "it includes itself: "+strings.Join(append(above[i:len(above):len(above)], id), " includes "), "take one of these lines out")
			return nil
		}
	}
	if l.done[id] {
		return nil
	}
	if len(l.done) >= maxFiles {
		f.add(key, fmt.Sprintf("more than %d files", maxFiles), "merge some of them")
		return nil
	}
	l.done[id] = true
	return l.file(id, data, above)
}

// read opens an included file. A preset can't name files: its text is ours, and
// it has no directory.
func (l *loader) read(path string, above []string) ([]byte, error) {
	if l.open == nil || strings.HasPrefix(above[len(above)-1], presetID("")) {
		return nil, errors.New("files can't be included here; name a preset: " + strings.Join(Presets(), ", "))
	}
	data, err := l.open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s; paths start from the directory of this file, and the presets are %s", path, strings.Join(Presets(), ", "))
	}
	return data, err
}

// readFile reads a regular file up to a little more than a policy may hold, so
// that a wrong path (a disk, a pipe) neither fills memory nor waits for ever.
// Without O_NONBLOCK the open of a FIFO waits for a writer, and a reload with it.
// What was opened is looked at, not the path: that may lead elsewhere by then.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	data, err := readRegular(f)
	return data, errors.Join(err, f.Close())
}

func readRegular(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory; name the file in it", f.Name())
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file but a pipe, socket or device; write the policy to a file and name that", f.Name())
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}
