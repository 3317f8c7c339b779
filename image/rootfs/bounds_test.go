package rootfs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestI11_NamesReachTheirBounds has names, links and attributes as long as they may be, and a byte more.
func TestI11_NamesReachTheirBounds(t *testing.T) {
	t.Parallel()
	n := func(size int) string { return strings.Repeat("n", size) }
	path := func(size int) string { return (strings.Repeat(n(200)+"/", size/201+1))[:size-1] + "x" }
	chain := func(length int) (items []item) {
		for i := range length {
			items = append(items, symlink(fmt.Sprint("l", i), fmt.Sprint("l", i+1)))
		}
		return append(items, dir(fmt.Sprint("l", length)), file("l0/f", ""))
	}
	for what, tc := range map[string]struct {
		bound int
		items func(n int) []item
	}{
		"a component":               {maxNameBytes, func(size int) []item { return []item{file("d/"+n(size), "")} }},
		"a path":                    {maxPathBytes - 1, func(size int) []item { return []item{file(path(size), "")} }},
		"what a link leads to":      {maxPathBytes - 1, func(size int) []item { return []item{symlink("l", path(size))} }},
		"a component behind a link": {maxNameBytes, func(size int) []item { return []item{symlink("l", n(size)), file("l/f", "")} }},
		"links on the way":          {maxLinks, chain},
		"the name of an attribute": {maxNameBytes, func(size int) []item {
			return []item{{name: "f", flag: '0', pax: map[string]string{"SCHILY.xattr.user." + n(size-5): "v"}}}
		}},
	} {
		for over := range 2 {
			_, err := flatten(t, tc.items(tc.bound+over))
			if (err != nil) != (over > 0) || err != nil && !errors.Is(err, ErrHostile) {
				t.Errorf("%s of %d, %d over: %v", what, tc.bound, over, err)
			}
		}
	}
	for size, cut := range map[int]bool{maxQuotedName - 3: false, maxQuotedName - 2: true} {
		name := "../" + n(size)
		_, err := flatten(t, []item{file(name, "")})
		if err == nil || strings.Contains(err.Error(), `"`+name+`"`) == cut || strings.Contains(err.Error(), "… (") != cut {
			t.Errorf("a name of %d bytes: %v", len(name), err)
		}
	}
}

// TestSizeCountsWhatADiskHolds counts a file once, whatever it is called, and every name.
func TestSizeCountsWhatADiskHolds(t *testing.T) {
	t.Parallel()
	tree, err := flatten(t, []item{file("a", "12345"), hardlink("b", "a"), dir("d"), file("d/c", "1234567"), symlink("l", "a"), file("gone", "x")}, []item{file(".wh.gone", "")})
	if err != nil {
		t.Fatal(err)
	}
	if bytes, names := tree.Size(); bytes != 12 || names != 5 {
		t.Errorf("%d bytes in %d names, want 12 in 5", bytes, names)
	}
}
