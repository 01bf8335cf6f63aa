package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The files of a package are layers: a file refers to files below it. In the best order of the files, at most this
// share of the references from file to file may point up.
const maxUpward = 0.10

// maxPackageLines is the maximum size of a package, in lines of hand-written code.
const maxPackageLines = 4000

func TestFilesAreLayers(t *testing.T) {
	_, code, _ := goFiles(t)
	for dir, paths := range code {
		names, refs, lines := references(t, paths)
		if lines > maxPackageLines {
			t.Errorf("%s has %d lines: split it, %d is the maximum", dir, lines, maxPackageLines)
		}
		total := 0
		for _, row := range refs {
			for _, name := range row {
				if name != "" {
					total++
				}
			}
		}
		allowed := int(maxUpward * float64(total))
		order, up := layers(refs, allowed)
		if up <= allowed {
			continue
		}
		t.Errorf("%s: %d of %d references between files point up; move declarations into lower files:", dir, up, total)
		for i := range names {
			for j := range names {
				if refs[i][j] != "" && slices.Index(order, i) < slices.Index(order, j) {
					t.Errorf("\t%s refers to %s of %s", names[i], refs[i][j], names[j])
				}
			}
		}
	}
}

// references returns the files of a package, for each pair of them a name of the second that the first refers to, and
// the number of lines. Struct fields do not count.
func references(t *testing.T, paths []string) (names []string, refs [][]string, lines int) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, p := range paths {
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments)
		must.OK(t, err)
		if !ast.IsGenerated(f) {
			files, names = append(files, f), append(names, filepath.Base(p))
			lines += fset.Position(f.FileEnd).Line - 1
		}
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	// Imports are empty packages: what they export stays unresolved, names of the package itself do not.
	config := types.Config{Importer: emptyImporter{}, Error: func(error) {}, FakeImportC: true}
	pkg, _ := config.Check(".", fset, files, &info)
	refs = make([][]string, len(names))
	for i := range refs {
		refs[i] = make([]string, len(names))
	}
	index := func(pos token.Pos) int { return slices.Index(names, filepath.Base(fset.Position(pos).Filename)) }
	for id, o := range info.Uses {
		method := false
		if f, ok := o.(*types.Func); ok {
			method = f.Signature().Recv() != nil
		}
		if o.Pkg() != pkg || !method && o.Parent() != pkg.Scope() {
			continue
		}
		if from, to := index(id.Pos()), index(o.Pos()); from != to && from >= 0 && to >= 0 {
			refs[from][to] = o.Name()
		}
	}
	return names, refs, lines
}

type emptyImporter struct{}

func (emptyImporter) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}

// layers returns an order of the files, lowest first, with few references that point up, and their number: the best of
// some local searches from random orders, which end with the first that has no more than enough.
func layers(refs [][]string, enough int) (best []int, fewest int) {
	upward := func(order []int) (n int) {
		at := make([]int, len(order))
		for i, file := range order {
			at[file] = i
		}
		for i := range refs {
			for j := range refs {
				if refs[i][j] != "" && at[i] < at[j] {
					n++
				}
			}
		}
		return n
	}
	random := rand.New(rand.NewPCG(1, 2))
	for try := 0; try < 12 && (best == nil || fewest > enough); try++ {
		order := random.Perm(len(refs))
		n := upward(order)
		for improved := true; improved && n > enough; {
			improved = false
			for i := range order {
				for j := range order {
					moved := slices.Delete(slices.Clone(order), i, i+1)
					moved = slices.Insert(moved, j, order[i])
					if m := upward(moved); m < n {
						order, n, improved = moved, m, true
					}
				}
			}
		}
		if best == nil || n < fewest {
			best, fewest = order, n
		}
	}
	return best, fewest
}

// The order is found where there is one, and references that point up are counted where there is none.
func TestLayers(t *testing.T) {
	for _, c := range []struct {
		refs [][]string
		up   int
	}{
		{[][]string{{"", "a", "a"}, {"", "", "a"}, {"", "", ""}}, 0},
		{[][]string{{"", "a", ""}, {"", "", "a"}, {"a", "", ""}}, 1},
		{[][]string{{"", "a"}, {"a", ""}}, 1},
	} {
		if _, up := layers(c.refs, 0); up != c.up {
			t.Errorf("%v: %d references point up, want %d", c.refs, up, c.up)
		}
	}
}
