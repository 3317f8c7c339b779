package grants

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEveryKindIsDocumented in the table of docs/policy.md.
func TestEveryKindIsDocumented(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("grant.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`Kind = "(.*)"`).FindAllStringSubmatch(string(source), -1)
	if len(kinds) < 10 {
		t.Errorf("%d kinds found", len(kinds))
	}
	for _, k := range kinds {
		if !strings.Contains(string(page), "\n| "+k[1]+" | ") {
			t.Errorf("docs/policy.md has no line of the grant %q", k[1])
		}
	}
}
