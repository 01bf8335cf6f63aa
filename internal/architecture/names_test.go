package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"testing"
	"unicode"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// TestLocalNames finds local variables with the name of a function or method of their package. Where a name has several
// words that is no coincidence: a renaming took the variable for the function, and a reader takes it for a call.
func TestLocalNames(t *testing.T) {
	_, code, tests := goFiles(t)
	checked := 0
	for dir := range maps.Keys(code) {
		files := token.NewFileSet()
		var parsed []*ast.File
		functions := map[string]bool{}
		for _, path := range slices.Concat(code[dir], tests[dir]) {
			f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			must.OK(t, err)
			parsed = append(parsed, f)
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && hasSeveralWords(fn.Name.Name) {
					functions[fn.Name.Name] = true
				}
			}
		}
		declared := func(e ast.Expr) {
			id, ok := e.(*ast.Ident)
			if !ok {
				return
			}
			checked++
			if functions[id.Name] {
				t.Errorf("%s: the variable %s has the name of a function of its package", files.Position(id.Pos()), id.Name)
			}
		}
		for _, f := range parsed {
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					if n.Tok == token.DEFINE {
						for _, e := range n.Lhs {
							declared(e)
						}
					}
				case *ast.RangeStmt:
					if n.Tok == token.DEFINE {
						declared(n.Key)
						declared(n.Value)
					}
				case *ast.ValueSpec:
					for _, id := range n.Names {
						declared(id)
					}
				}
				return true
			})
		}
	}
	if checked == 0 {
		t.Error("no variable was checked")
	}
}

func hasSeveralWords(name string) bool {
	return len(name) > 1 && slices.ContainsFunc([]rune(name[1:]), unicode.IsUpper)
}
