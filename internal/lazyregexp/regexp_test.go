package lazyregexp_test

import (
	"testing"

	"github.com/msb-project/msb/internal/lazyregexp"
)

// TestTheyAreCompiledAtTheirUse: one that is none costs nothing until then, and says so.
func TestTheyAreCompiledAtTheirUse(t *testing.T) {
	t.Parallel()
	p := lazyregexp.New(`^a+$`)
	if !p.MatchString("aa") || p.MatchString("ab") || p.Get().FindString("a") != "a" || p.String() != `^a+$` {
		t.Errorf("%s matches what it should not", p)
	}
	bad := lazyregexp.New(`(`)
	defer func() {
		if recover() == nil {
			t.Error("no regular expression, and no panic")
		}
	}()
	bad.MatchString("")
}
