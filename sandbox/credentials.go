package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/msb-project/msb/internal/foldname"
	"github.com/msb-project/msb/sandbox/internal/state"
)

const (
	// maxLooked bounds how many files of a directory are searched for credentials before a start, and maxDepth how far
	// below its top.
	maxLooked = 100_000
	maxDepth  = 6

	// maxCredential is how much of a file is searched, in bytes.
	maxCredential = 64 << 10

	// maxFound is how many credentials are hidden one by one; more are hidden by name.
	maxFound = 500

	// maxShown is how many files a warning names.
	maxShown = 5
)

// credentialNames are of files that hold credentials whatever is in them (path.Match; with a slash, the end of a path).
var credentialNames = []string{
	".env", ".netrc", ".pgpass", ".git-credentials", ".pypirc", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519",
	".aws/credentials", ".kube/config", "application_default_credentials.json",
}

// credentialContents are of files that may hold some.
var credentialContents = []struct {
	name string
	has  *regexp.Regexp
}{
	{".env.*", regexp.MustCompile(`(?m)^\s*(export\s+)?\w*(KEY|TOKEN|SECRET|PASSWORD)\w*\s*=\s*["']?\w{8}`)},
	{"*.pem", regexp.MustCompile(`PRIVATE KEY-----`)},
	{"*.key", regexp.MustCompile(`PRIVATE KEY-----`)},
	{".npmrc", regexp.MustCompile(`_authToken|_password|_auth\s*=`)},
	{".docker/config.json", regexp.MustCompile(`"auth"\s*:`)},
	{".git/config", regexp.MustCompile(`(?i)://[^/@\s]*:[^/@\s]+@|extraheader\s*=`)},
}

// notLooked are directories that hold many files of other projects.
var notLooked = []string{"node_modules", ".venv", "vendor", "target", "objects"}

// credentials returns the paths, from the top, of the files below dir that look as if they held credentials. It looks
// at 100,000 files at most, and follows no link.
func credentials(dir string) ([]string, error) {
	s, err := searchCredentials(dir, maxLooked)
	return s.found, err
}

// search is what came of a search for credentials.
type search struct {
	found []string
	// unread are files and directories that can't be read now: a guest may make them unreadable, and readable again later.
	unread []string
	// cut tells that there is more than was looked at.
	cut bool
}

func searchCredentials(dir string, most int) (search, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return search{cut: true}, err
	}
	defer func() { _ = root.Close() }() // it was read only
	var s search
	looked := 0
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if looked++; looked > most {
			s.cut = true
			return fs.SkipAll
		}
		switch {
		case err != nil && p == ".":
			s.cut = true
		case err != nil && d != nil && d.IsDir():
			s.unread = append(s.unread, p)
			return fs.SkipDir
		case err != nil:
			return nil //nolint:nilerr // it is gone
		case d.IsDir() && (slices.Contains(notLooked, d.Name()) || strings.Count(p, "/") >= maxDepth):
			return fs.SkipDir
		case d.Type().IsRegular():
			s.judge(root, p)
		}
		return nil
	})
	return s, err
}

// judge looks at one file.
func (s *search) judge(root *os.Root, p string) {
	if slices.ContainsFunc(credentialNames, func(name string) bool { return endsWith(p, name) }) {
		s.found = append(s.found, p)
		return
	}
	for _, c := range credentialContents {
		if !endsWith(p, c.name) {
			continue
		}
		b, err := readStart(root, p)
		switch {
		case err != nil:
			s.unread = append(s.unread, p)
		case c.has.Match(bytes.TrimSpace(b)):
			s.found = append(s.found, p)
		}
		return
	}
}

// readStart reads what is looked at of a file.
func readStart(root *os.Root, p string) ([]byte, error) {
	f, err := root.Open(p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read only
	return io.ReadAll(io.LimitReader(f, maxCredential))
}

// endsWith reports whether the end of a path, on a file system that may ignore case, matches a pattern in lower case.
func endsWith(p, pattern string) bool {
	elements := strings.Split(foldname.Path(p), "/")
	n := strings.Count(pattern, "/") + 1
	if len(elements) < n {
		return false
	}
	ok, err := path.Match(pattern, strings.Join(elements[len(elements)-n:], "/"))
	return err == nil && ok
}

// hidden returns the patterns of the files to hide, and warns of credentials that the guest can see.
func (c *Config) hidden() []string {
	if c.HideCredentials {
		if c.credentials == nil {
			c.searchDirectories(nil, maxLooked)
		}
		return slices.Concat(c.Hide, credentialPatterns(c.credentials))
	}
	for _, d := range c.Directories {
		found, err := credentials(d.Host)
		if err != nil {
			continue // the supervisor's own error is the better one
		}
		found = slices.DeleteFunc(found, hider(c.Hide))
		if n := len(found); n > 0 {
			names := strings.Join(found[:min(n, maxShown)], ", ")
			if n > maxShown {
				names += fmt.Sprintf(" and %d more", n-maxShown)
			}
			c.Notice(fmt.Sprintf("the guest can read what looks like credentials in %s: %s; --hide-credentials hides them", d.Host, names))
		}
	}
	return slices.Clone(c.Hide)
}

// searchDirectories finds the credentials to hide, and adds them to those of earlier starts: a guest may have changed these
// so that they aren't found again.
func (c *Config) searchDirectories(before *state.Credentials, most int) {
	now := new(state.Credentials)
	if before != nil {
		now.Paths, now.ByName = slices.Clone(before.Paths), before.ByName
	}
	for _, d := range c.Directories {
		s, _ := searchCredentials(d.Host, most) // one that can't be searched is cut
		now.Paths = slices.Concat(now.Paths, s.found, s.unread)
		slices.Sort(now.Paths)
		now.Paths = slices.Compact(now.Paths)
		// The guest may make so many files that the search ends before the real credential, or so many that look like
		// credentials that each of its requests is compared with thousands of paths.
		if (s.cut || len(now.Paths) > maxFound) && !now.ByName {
			now.ByName = true
			c.Notice(fmt.Sprintf("%s holds more than msb looks through for credentials: hidden by name, whatever is in them, are %s", d.Host, strings.Join(contentNames(), ", ")))
		}
	}
	if now.ByName {
		now.Paths = nil // the names cover them
	}
	c.credentials = now
}

// credentialPatterns hide what a search found.
func credentialPatterns(found *state.Credentials) []string {
	names := credentialNames
	if found.ByName {
		names = slices.Concat(names, contentNames())
	}
	patterns := make([]string, 0, len(names)+len(found.Paths))
	for _, name := range names {
		if strings.Contains(name, "/") {
			name = "**/" + name
		}
		patterns = append(patterns, name)
	}
	for _, p := range found.Paths {
		patterns = append(patterns, escapePattern(p))
	}
	return patterns
}

func contentNames() []string {
	names := make([]string, 0, len(credentialContents))
	for _, c := range credentialContents {
		names = append(names, c.name)
	}
	return names
}

// escapePattern makes a pattern of path.Match that is this very path.
func escapePattern(p string) string {
	return regexp.MustCompile(`[\\*?\[]`).ReplaceAllString(p, `\${0}`)
}
