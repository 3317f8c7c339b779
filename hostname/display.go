package hostname

import (
	"unicode"
)

// Unicode returns the name for people, with its A-labels decoded
// ("bücher.example"). The result is valid IDNA and so holds no control
// characters, but it may look like another name: show it beside the A-labels,
// as Display does, and never compare it.
func (n Name) Unicode() string {
	if !hasPunycode(n.s) {
		return n.s
	}
	u, err := profile.ToUnicode(n.s)
	if err != nil {
		return n.s
	}
	return u
}

// Display returns the name for messages: as it is, or both ways when it holds
// A-labels, "xn--pple-43d.com (аpple.com, mixes Cyrillic and Latin)". The note
// is the reader's chance to see a homograph.
func (n Name) Display() string {
	u := n.Unicode()
	if u == n.s {
		return n.s
	}
	if a, b := n.MixedScripts(); a != "" {
		return n.s + " (" + u + ", mixes " + a + " and " + b + ")"
	}
	return n.s + " (" + u + ")"
}

// Display returns the pattern for messages, like Name.Display.
func (p Pattern) Display() string {
	if p.kind == kindBelow {
		return "*." + p.base.Display()
	}
	if p.kind == kindExact {
		return p.base.Display()
	}
	return p.String()
}

// MixedScripts returns two scripts that meet within one label, in alphabetical
// order, when they are among those whose letters are confused with each other
// (Latin, Greek, Cyrillic, Armenian, Cherokee); "" and "" otherwise. Japanese
// and Korean names mix scripts as a matter of course and aren't reported.
func (n Name) MixedScripts() (string, string) {
	if !hasPunycode(n.s) {
		return "", ""
	}
	first := ""
	for _, r := range n.Unicode() {
		if r == '.' {
			first = ""
			continue
		}
		script := confusableScript(r)
		switch {
		case script == "" || script == first:
		case first == "":
			first = script
		default:
			return min(first, script), max(first, script)
		}
	}
	return "", ""
}

// confusableScript names the script of r if its letters resemble letters of
// another script on the list (UTS #39, section 5, "highly restrictive").
func confusableScript(r rune) string {
	switch {
	case unicode.Is(unicode.Latin, r):
		return "Latin"
	case unicode.Is(unicode.Cyrillic, r):
		return "Cyrillic"
	case unicode.Is(unicode.Greek, r):
		return "Greek"
	case unicode.Is(unicode.Armenian, r):
		return "Armenian"
	case unicode.Is(unicode.Cherokee, r):
		return "Cherokee"
	}
	return ""
}
