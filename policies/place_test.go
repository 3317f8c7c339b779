package policies

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// placeKinds are the names of the constants of PlaceKind, in their order.
func placeKinds(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "secret.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		group, ok := n.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			return true
		}
		first := group.Specs[0].(*ast.ValueSpec)
		if kind, ok := first.Type.(*ast.Ident); !ok || kind.Name != "PlaceKind" {
			return false
		}
		for _, s := range group.Specs {
			names = append(names, s.(*ast.ValueSpec).Names[0].Name)
		}
		return false
	})
	return names
}

// TestPlacesAreReadAsWritten: each kind of place has a text, which is read back, and which users find wherever the places are
// listed.
func TestPlacesAreReadAsWritten(t *testing.T) {
	t.Parallel()
	kinds := placeKinds(t)
	if len(kinds) < 5 {
		t.Fatalf("%d kinds found: %q", len(kinds), kinds)
	}
	for i, name := range kinds {
		p := Place{Kind: PlaceKind(i)}
		if name == "InHeader" || name == "InQuery" {
			p.Name = "X-Key"
		}
		if got, err := parsePlace(p.String()); err != nil || got != p {
			t.Errorf("%s is written as %q, and read as %v, %v", name, p, got, err)
		}
		word, _, _ := strings.Cut(p.String(), ":")
		for _, file := range []string{"check_secret.go", "file.go", "convert_secret.go", "../docs/policy.md", "../docs/secrets.md"} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), word) {
				t.Errorf("%s: %s doesn't name %q", name, file, word)
			}
		}
	}
}
