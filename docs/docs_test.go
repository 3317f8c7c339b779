// Package docs_test holds the documentation to the tree that it describes.
package docs_test

import (
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = ".."

var (
	// namedTest is a test or fuzz target in a text; a subtest follows after a slash.
	// sourceFile is a file of the product, and what stands behind it in brackets.
	sourceFile = regexp.MustCompile("`([a-z][\\w/]+/[\\w]+\\.(?:go|proto|md))`(?: \\(([^)]*)\\))?")
	identifier = regexp.MustCompile("`(\\w+)`")
	namedTest  = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*(?:/\w+)?`)
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	// link is an inline Markdown link or image.
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// fence is a block of code, in which brackets are no links.
	fence = regexp.MustCompile("(?s)```.*?```")
	// group are tests and the package behind them.
	group = regexp.MustCompile(`([^()]*)\(([a-z][a-z0-9/]*)\)`)
	// code is what stands between backticks.
	code    = regexp.MustCompile("`([^`]+)`")
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	// noSlug is what GitHub leaves out of a heading's anchor.
	noSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// testFiles are the test files of each package of the module, joined.
func testFiles(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
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
		directory, _ := filepath.Rel(root, filepath.Dir(path))
		all[filepath.ToSlash(directory)] += string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// testsOf are the names of the tests in sources.
func testsOf(sources string) map[string]bool {
	have := map[string]bool{}
	for _, m := range testFunc.FindAllStringSubmatch(sources, -1) {
		have[m[1]] = true
	}
	return have
}

// TestTestsNamedInThePagesExist: a page that says which tests hold a promise must not outlive them.
func TestTestsNamedInThePagesExist(t *testing.T) {
	t.Parallel()
	sources := strings.Join(slices.Collect(maps.Values(testFiles(t))), "\n")
	have := testsOf(sources)
	for _, page := range []string{"security.md", "attacks.md", "architecture.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		named := namedTest.FindAllString(string(text), -1)
		if len(named) < 10 {
			t.Fatalf("%s names %d tests: the page or this test's pattern has changed", page, len(named))
		}
		for _, name := range named {
			top, sub, isSub := strings.Cut(name, "/")
			if !have[top] {
				t.Errorf("%s names %s, and there is no such test", page, top)
			}
			if isSub && !strings.Contains(sources, `"`+sub+`"`) {
				t.Errorf("%s names %s, and there is no such subtest", page, name)
			}
		}
	}
}

// TestArchitectureNamesFilesAndFunctions: the table of where a change goes leads to files that exist, and to functions and
// types that are in them.
func TestArchitectureNamesFilesAndFunctions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	files := sourceFile.FindAllStringSubmatch(string(page), -1)
	if len(files) < 40 {
		t.Fatalf("the page names %d files: it or this test's pattern has changed", len(files))
	}
	for _, m := range files {
		text, err := os.ReadFile(filepath.Join(root, m[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, name := range identifier.FindAllStringSubmatch(m[2], -1) {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name[1]) + `\b`).Match(text) {
				t.Errorf("the page says that %s has %s, and it hasn't", m[1], name[1])
			}
		}
	}
}

// TestAttacksDocNamesTestPackages: in a table's third column the package stands behind its tests.
func TestAttacksDocNamesTestPackages(t *testing.T) {
	t.Parallel()
	sources := testFiles(t)
	for _, columns := range rows(t) {
		rest := columns[2]
		for _, m := range group.FindAllStringSubmatch(rest, -1) {
			have := testsOf(sources[m[2]])
			for _, name := range namedTest.FindAllString(m[1], -1) {
				if top, _, _ := strings.Cut(name, "/"); !have[top] {
					t.Errorf("attacks.md says that %s is in %s, and it isn't", top, m[2])
				}
			}
		}
		if name := namedTest.FindString(group.ReplaceAllString(rest, "")); name != "" {
			t.Errorf("attacks.md does not say in which package %s is", name)
		}
	}
}

// rows are the rows of the tables of attacks.md, by their three columns.
func rows(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile("attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	var all [][]string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		columns := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(columns) != 3 {
			t.Errorf("a row has not three columns: %s", line)
			continue
		}
		all = append(all, columns)
	}
	return all
}

// TestAttacksNamesEveryCapture: each capture has its place in a table of attacks.md, and each name in a table's
// second column is one.
func TestAttacksNamesEveryCapture(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, columns := range rows(t) {
		for _, m := range code.FindAllStringSubmatch(columns[1], -1) {
			named[m[1]] = true
		}
	}
	captures, err := filepath.Glob(filepath.Join(root, "testdata", "pcap", "*.pcapng"))
	if err != nil || len(captures) < 100 {
		t.Fatalf("%d captures: %v", len(captures), err)
	}
	for _, path := range captures {
		name := strings.TrimSuffix(filepath.Base(path), ".pcapng")
		if !named[name] {
			t.Errorf("attacks.md does not name the capture %s", name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("attacks.md names the capture %s, and there is none", name)
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

func TestLinkTargetsExist(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	clients, err := filepath.Glob("clients/*.md")
	if err != nil || len(clients) == 0 {
		t.Fatal(clients, err)
	}
	for _, page := range slices.Concat(pages, clients, []string{filepath.Join(root, "README.md")}) {
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
