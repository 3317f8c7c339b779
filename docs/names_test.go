package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// productPackage is one directory of Go files: the name in their package clauses, and the types that they export.
type productPackage struct {
	directory, name string
	types           []string
	methods         map[string]int // by the type, exported or not
}

// productPackages are the packages of the tree at top, without tests and generated files.
func productPackages(t *testing.T, top string) []productPackage {
	t.Helper()
	byDirectory := map[string]*productPackage{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != top && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ast.IsGenerated(file) {
			return nil
		}
		directory := filepath.Dir(path)
		if byDirectory[directory] == nil {
			byDirectory[directory] = &productPackage{directory: directory, name: file.Name.Name, methods: map[string]int{}}
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
				byDirectory[directory].methods[receiver(f)]++
			}
			group, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range group.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
					byDirectory[directory].types = append(byDirectory[directory].types, s.Name.Name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []productPackage
	for _, p := range byDirectory {
		all = append(all, *p)
	}
	return all
}

// receiver is the name of the type that f is a method of.
func receiver(f *ast.FuncDecl) (name string) {
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// maxMethods is how many methods a type may have: one with more does more than one thing.
const maxMethods = 40

func TestTypesHaveFewMethods(t *testing.T) {
	t.Parallel()
	most := 0
	for _, p := range productPackages(t, root) {
		for name, n := range p.methods {
			most = max(most, n)
			if n > maxMethods {
				t.Errorf("%s.%s has %d methods, at most %d are allowed", p.directory, name, n, maxMethods)
			}
		}
	}
	if most < maxMethods/2 {
		t.Errorf("no type has more than %d methods: this test counts nothing", most)
	}
}

// singular is what two names have in common that differ in case or in a plural's s.
func singular(name string) string { return strings.TrimSuffix(strings.ToLower(name), "s") }

// nameClashes says what in packages bears a name that means something else: a type named as another package, and a
// package named otherwise than its directory.
func nameClashes(packages []productPackage) []string {
	var found []string
	owners := map[string][]string{}
	for _, p := range packages {
		if p.name == "main" {
			continue
		}
		owners[singular(p.name)] = append(owners[singular(p.name)], p.directory)
		if p.name != filepath.Base(p.directory) {
			found = append(found, p.directory+" is package "+p.name)
		}
	}
	for _, p := range packages {
		for _, name := range p.types {
			for _, owner := range owners[singular(name)] {
				if owner != p.directory {
					found = append(found, p.directory+" has the type "+name+", and "+owner+" is a package of that name")
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

// TestNamesMeanOneThing: who reads "capture" has to know without a look whether it is the package or a type of another.
func TestNamesMeanOneThing(t *testing.T) {
	t.Parallel()
	packages := productPackages(t, root)
	if len(packages) < 50 {
		t.Fatalf("%d packages found: this test looks in the wrong place", len(packages))
	}
	for _, clash := range nameClashes(packages) {
		t.Error(clash)
	}
}

func TestClashingNamesAreFound(t *testing.T) {
	t.Parallel()
	got := nameClashes([]productPackage{
		{directory: "capture", name: "capture", types: []string{"Capture"}},
		{directory: "gateway", name: "gateway", types: []string{"Captures", "Flow"}},
		{directory: "guest/assets", name: "guest"},
		{directory: "cmd/x", name: "main", types: []string{"Main"}},
	})
	want := []string{
		"gateway has the type Captures, and capture is a package of that name",
		"guest/assets is package guest",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
