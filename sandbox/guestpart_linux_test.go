package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/guest/assets"
)

// TestPartsAreLentByPrograms: this test's own program is the msb that carries them.
func TestPartsAreLentByPrograms(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	for _, own := range []assets.Part{assets.AgentRoot(), assets.Builtin()} {
		want, err := own.Digest()
		if err != nil {
			t.Skip(err)
		}
		lent := lentPart{own.Name(), self}
		if got, err := lent.Digest(); got != want || err != nil {
			t.Errorf("%s: digest %q, %v; want %s", own.Name(), got, err, want)
		}
		sums := make([]string, 2)
		for i, p := range []part{own, lent} {
			r, err := p.Open()
			must(t, err)
			h := sha256.New()
			_, err = io.Copy(h, r)
			must(t, errors.Join(err, r.Close()))
			sums[i] = hex.EncodeToString(h.Sum(nil))
		}
		if sums[0] != sums[1] {
			t.Errorf("%s: %s are lent, %s are there", own.Name(), sums[1], sums[0])
		}
		if p := guestPart(own, "/bin/false"); p != part(own) {
			t.Errorf("%s is asked for though it is here", own.Name())
		}
	}
	if _, err := (lentPart{"none.gz", self}).Digest(); !errors.Is(err, assets.ErrNotBuilt) || !strings.Contains(err.Error(), `no part of the guest is called`) {
		t.Errorf("a part that there isn't: %v", err)
	}
}

// TestI12_OtherProgramsLendNothing: what is no msb, or a damaged one, is an error that names it.
func TestI12_OtherProgramsLendNothing(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("whole"))
	whole := hex.EncodeToString(sum[:])
	for script, says := range map[string]string{
		"exit 3":                            "exit status 3",
		"echo " + whole + "; printf cut":    "damaged",
		"printf '%064d\\nx' 0":              "damaged",
		"printf '%0100d' 0 | tr 0 /":        "prints something else",
		"echo short":                        "EOF",
		"echo no such verb >&2; exit 1":     "no such verb",
		"while :; do echo not a part; done": "prints something else",
	} {
		program := filepath.Join(t.TempDir(), "msb")
		must(t, os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
		if _, err := (lentPart{"agentd", program}).Open(); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: %v; want %q", script, err, says)
		}
	}
	program := filepath.Join(t.TempDir(), "msb")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\necho "+whole+"\nexec sleep 300\n"), 0o700))
	began := time.Now()
	if digest, err := (lentPart{"agentd", program}).Digest(); digest != whole || err != nil || time.Since(began) > lendWait/2 {
		t.Errorf("the digest of a part that comes slowly: %q, %v, after %s", digest, err, time.Since(began))
	}
	if _, err := (lentPart{"agentd", "/nowhere/msb"}).Digest(); !errors.Is(err, assets.ErrNotBuilt) {
		t.Error(err)
	}
}
