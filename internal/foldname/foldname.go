package foldname

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Path is equal for two paths that a file system of any kind may take for one.
func Path(p string) string {
	elements := strings.Split(p, "/")
	for i, e := range elements {
		elements[i] = Element(e)
	}
	return strings.Join(elements, "/")
}

// fullFolds are letters that become several when case is folded in full, as ext4
// does in directories that ignore case (utf8 12.1, "NFDICF").
var fullFolds = strings.NewReplacer("ß", "ss", "ẞ", "ss", "ﬀ", "ff", "ﬁ", "fi", "ﬂ", "fl", "ﬃ", "ffi", "ﬄ", "ffl", "ﬅ", "st", "ﬆ", "st")

// Element is the name that a file system of any kind may take an element for: case
// and invisible characters are ignored by some (CVE-2014-9390), dots and spaces
// at the end by FAT, what follows a colon by NTFS, and git~1 is its short name
// for .git.
func Element(element string) string {
	element, _, _ = strings.Cut(element, ":")
	element = strings.TrimRight(Case(element), " .")
	if strings.HasPrefix(element, "git~") {
		return ".git"
	}
	return element
}

// Case is equal for two texts that differ in case or in invisible characters alone.
func Case(s string) string {
	ascii := true
	for i := range len(s) {
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	if ascii { // nearly all
		return strings.ToLower(s)
	}
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			return -1
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return unicode.ToLower(least)
	}, fullFolds.Replace(s))
}
