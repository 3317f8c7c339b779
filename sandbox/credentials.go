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
)

const (
	// maxLooked bounds how many files of a directory are looked at for credentials before a start, and maxDepth how far
	// below its top.
	maxLooked = 20_000
	maxDepth  = 6

	// maxCredential is how much of a file is read to tell whether it holds any, in bytes.
	maxCredential = 64 << 10

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

// notLooked are directories of others' files, which are many.
var notLooked = []string{"node_modules", ".venv", "vendor", "target", "objects"}

// Credentials returns the paths, from the top, of the files below dir that look as if they held credentials. It looks
// at 20,000 files at most, and follows no link.
func Credentials(dir string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was read only
	var found []string
	looked := 0
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if looked++; looked > maxLooked {
			return fs.SkipAll
		}
		switch {
		case err != nil && d != nil && d.IsDir():
			return fs.SkipDir // what msb can't read, it serves to nobody
		case err != nil:
			return nil //nolint:nilerr // the same
		case d.IsDir() && (slices.Contains(notLooked, d.Name()) || strings.Count(p, "/") >= maxDepth):
			return fs.SkipDir
		case d.Type().IsRegular() && isCredential(root, p):
			found = append(found, p)
		}
		return nil
	})
	return found, err
}

func isCredential(root *os.Root, p string) bool {
	for _, name := range credentialNames {
		if endsWith(p, name) {
			return true
		}
	}
	for _, c := range credentialContents {
		if !endsWith(p, c.name) {
			continue
		}
		f, err := root.Open(p)
		if err != nil {
			return false
		}
		defer func() { _ = f.Close() }() // it was read only
		b, err := io.ReadAll(io.LimitReader(f, maxCredential))
		return err == nil && c.has.Match(bytes.TrimSpace(b))
	}
	return false
}

// endsWith reports whether the end of a path matches a pattern.
func endsWith(p, pattern string) bool {
	elements := strings.Split(p, "/")
	n := strings.Count(pattern, "/") + 1
	if len(elements) < n {
		return false
	}
	ok, err := path.Match(pattern, strings.Join(elements[len(elements)-n:], "/"))
	return err == nil && ok
}

// hidden are the patterns of what the guest doesn't see. It warns of credentials that it does see.
func (c *Config) hidden() []string {
	patterns := slices.Clone(c.Hide)
	if c.HideCredentials && len(c.Directories) > 0 {
		patterns = append(patterns, credentialNames...)
	}
	for _, d := range c.Directories {
		found, err := Credentials(d.Host)
		if err != nil {
			continue // the supervisor's own error is the better one
		}
		if c.HideCredentials {
			for _, p := range found {
				patterns = append(patterns, escapePattern(p))
			}
			continue
		}
		found = slices.DeleteFunc(found, func(p string) bool { return hides(c.Hide, p) })
		if n := len(found); n > 0 {
			names := strings.Join(found[:min(n, maxShown)], ", ")
			if n > maxShown {
				names += fmt.Sprintf(" and %d more", n-maxShown)
			}
			c.Notice(fmt.Sprintf("the guest can read what looks like credentials in %s: %s; --hide-credentials hides them", d.Host, names))
		}
	}
	return patterns
}

// escapePattern makes a pattern of path.Match that is this very path.
func escapePattern(p string) string {
	return regexp.MustCompile(`[\\*?\[]`).ReplaceAllString(p, `\${0}`)
}
