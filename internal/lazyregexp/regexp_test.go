package lazyregexp_test

import (
	"testing"

	"github.com/msb-project/msb/internal/lazyregexp"
)

// TestTheyAreCompiledAtTheirUse: an invalid one panics then, and not before.
func TestTheyAreCompiledAtTheirUse(t *testing.T) {
	t.Parallel()
	p := lazyregexp.New(`^a+$`)
	if !p.MatchString("aa") || p.MatchString("ab") || p.Get().FindString("a") != "a" || p.String() != `^a+$` {
		t.Errorf("%s matches what it should not", p)
	}
	bad := lazyregexp.New(`(`)
	defer func() {
		if recover() == nil {
			t.Error("an invalid one doesn't panic")
		}
	}()
	bad.MatchString("")
}
