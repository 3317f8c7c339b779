package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: typecheck DIR")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "typecheck:", err)
		os.Exit(1)
	}
}

func check(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	own := dir + string(filepath.Separator)
	cfg := &packages.Config{
		Dir: dir, Tests: true,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedModule,
		ParseFile: func(set *token.FileSet, name string, src []byte) (*ast.File, error) {
			f, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution|parser.ParseComments)
			if f != nil && !strings.HasPrefix(name, own) {
				for _, d := range f.Decls {
					if d, ok := d.(*ast.FuncDecl); ok {
						d.Body = nil
					}
				}
			}
			return f, err
		},
	}
	all, err := packages.Load(cfg, "./...")
	if err != nil {
		return err
	}
	wrong := 0
	for _, p := range all {
		if strings.HasSuffix(p.ID, ".test") {
			continue // a test's main program, which go makes
		}
		for _, e := range p.Errors {
			fmt.Fprintln(os.Stderr, e)
			wrong++
		}
	}
	if wrong > 0 || len(all) == 0 {
		return fmt.Errorf("%d errors in %d packages", wrong, len(all))
	}
	return nil
}
