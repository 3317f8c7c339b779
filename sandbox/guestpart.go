package sandbox

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"

	"github.com/msb-project/msb/internal/guest/assets"
)

// A program that uses this package by `go get` carries no parts of the guest, since they are built and not in the module. It
// takes them from the msb that it starts, which it trusts anyway: Config.Program, asked by partVerb.

// partVerb is the hidden first argument that makes msb print a part of the guest: its digest, a line feed and its bytes.
const partVerb = "__guest-part"

const (
	lendWait     = time.Minute // for a part on a slow machine
	maxPartBytes = 256 << 20
)

// part is what disks are made from.
type part interface {
	Digest() (string, error)
	Open() (io.ReadCloser, error)
}

// guestPart is this program's own part, or that of program if this one has none.
func guestPart(own assets.Part, program string) part {
	if _, err := own.Digest(); err == nil || program == "" {
		return own
	}
	return lentPart{own.Name(), program}
}

// lendPart prints a part for another program.
func lendPart(name string, out, warn io.Writer) int {
	all := []assets.Part{assets.AgentRoot(), assets.Builtin()}
	i := slices.IndexFunc(all, func(p assets.Part) bool { return p.Name() == name })
	if i < 0 {
		_, _ = fmt.Fprintf(warn, "no part of the guest is called %.80q\n", name)
		return 1
	}
	digest, err := all[i].Digest()
	if err == nil {
		_, err = io.WriteString(out, digest+"\n")
	}
	if err == nil {
		var r io.ReadCloser
		if r, err = all[i].Packed(); err == nil {
			_, err = io.Copy(out, r)
			err = errors.Join(err, r.Close())
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(warn, err)
		return 1
	}
	return 0
}

// lentPart is a part that another program carries.
type lentPart struct{ name, program string }

// read returns the part's digest and, with whole, its bytes, which are those of the digest.
func (p lentPart) read(whole bool) (digest string, packed []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lendWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, partVerb, p.name)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, fmt.Errorf("%w; %s, which Program names, can't be asked for them: %w", assets.ErrNotBuilt, p.program, err)
	}
	line := make([]byte, hex.EncodedLen(sha256.Size)+1)
	_, err = io.ReadFull(out, line)
	digest = string(line[:len(line)-1])
	if _, wrong := hex.DecodeString(digest); err == nil && wrong != nil { // it becomes part of a path
		err = errors.New("it prints something else")
	}
	if err == nil && whole {
		packed, err = io.ReadAll(io.LimitReader(out, maxPartBytes))
	}
	if err == nil && !whole {
		cancel() // the rest isn't wanted
		_ = cmd.Wait()
		return digest, nil, nil
	}
	if err != nil {
		cancel() // it may write on
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return "", nil, fmt.Errorf("%w, and neither was %s, which Program names: %w: %.200q", assets.ErrNotBuilt, p.program, err, said.String())
	}
	if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) != digest {
		return "", nil, fmt.Errorf("%s of %s is not what its digest says: that msb is damaged", p.name, p.program)
	}
	return digest, packed, nil
}

// Digest implements part.
func (p lentPart) Digest() (string, error) {
	digest, _, err := p.read(false)
	return digest, err
}

// Open implements part.
func (p lentPart) Open() (io.ReadCloser, error) {
	_, packed, err := p.read(true)
	if err != nil {
		return nil, err
	}
	return gzip.NewReader(bytes.NewReader(packed))
}
