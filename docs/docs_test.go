// Package docs_test holds the documentation to the tree that it describes.
package docs_test

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = ".."

var (
	// namedTest is a test or fuzz target in a text; a subtest follows after a slash.
	namedTest = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*(?:/\w+)?`)
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	// link is an inline Markdown link or image.
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// fence is a block of code, in which brackets are no links.
	fence   = regexp.MustCompile("(?s)```.*?```")
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	// noSlug is what GitHub leaves out of a heading's anchor.
	noSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// testFiles reads every test file of the module.
func testFiles(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		all.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestTestsNamedInSecurityExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	sources := testFiles(t)
	have := map[string]bool{}
	for _, m := range testFunc.FindAllStringSubmatch(sources, -1) {
		have[m[1]] = true
	}
	named := namedTest.FindAllString(string(text), -1)
	if len(named) < 100 {
		t.Fatalf("security.md names %d tests: the page or this test's pattern has changed", len(named))
	}
	for _, name := range named {
		top, sub, isSub := strings.Cut(name, "/")
		if !have[top] {
			t.Errorf("security.md names %s, and there is no such test", top)
		}
		if isSub && !strings.Contains(sources, `"`+sub+`"`) {
			t.Errorf("security.md names %s, and there is no such subtest", name)
		}
	}
}

// anchors are the places in a page that a link can lead to.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		slug := noSlug.ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			u, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %s: %v", page, m[1], err)
				continue
			}
			if u.Scheme != "" {
				continue // nothing is fetched here
			}
			target := page
			if u.Path != "" {
				target = filepath.Join(filepath.Dir(page), u.Path)
			}
			there, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				continue
			}
			if err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if u.Fragment != "" && !anchors(string(there))[u.Fragment] {
				t.Errorf("%s links to %s, and that page has no such heading", page, m[1])
			}
		}
	}
}
