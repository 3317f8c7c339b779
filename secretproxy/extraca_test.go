package secretproxy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

func TestI12_UnreadableExtraCAsFail(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/nosuch.pem", empty} {
		p := policies.Default()
		p.TLS.ExtraCA = []policies.ExtraCA{{File: file, Hosts: []hostname.Pattern{hostname.MustParsePattern("a.example")}}}
		if err := CheckFiles(p); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want an error that names the file", file, err)
		}
	}
}
