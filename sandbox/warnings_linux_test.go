//go:build !vmtest

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestI15_ReadableSecretsAreWarnedOf: who starts a sandbox is warned of a secret's file that others may read, and gets the
// secret's placeholder. The twin is a file of the user alone.
func TestI15_ReadableSecretsAreWarnedOf(t *testing.T) {
	t.Parallel()
	for mode, warned := range map[os.FileMode]bool{0o644: true, 0o600: false} {
		h, root := newHome(t), t.TempDir()
		file := filepath.Join(t.TempDir(), "token")
		must(t, os.WriteFile(file, []byte("value-of-the-token"), 0o600))
		must(t, os.Chmod(file, mode))
		p, err := policies.Parse("p.toml", []byte("version = 1\n[secrets.X]\nfrom = \"file:"+file+"\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n[[egress.allow]]\nhosts = [\"a.example\"]\n"), nil)
		must(t, err)
		c := operation{Name: "a", Home: h.Dir(), Root: root}.config()
		c.Policy = p
		sb, err := Start(t.Context(), c)
		must(t, err)
		got := strings.Join(sb.Info().Warnings, "\n")
		if strings.Contains(got, file) != warned || sb.Info().Placeholders["X"] == "" {
			t.Errorf("%o: warnings %q, placeholders %q", mode, got, sb.Info().Placeholders)
		}
		must(t, h.Stop(t.Context(), "a"))
		must(t, sb.Close())
	}
}
