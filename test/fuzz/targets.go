package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// folder is a package with fuzz targets.
type folder struct {
	folder  string // relative to the repository's root, with slashes
	dir     string // where it lies
	targets []string
}

// find lists the packages with fuzz targets, in the order of their folders. It reads the sources alone: to ask `go
// test -list` would build all of them.
func find(root string) ([]folder, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	byDir := map[string][]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		names, err := targetsOf(path, text)
		if len(names) > 0 {
			byDir[filepath.Dir(path)] = append(byDir[filepath.Dir(path)], names...)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []folder
	for dir, names := range byDir {
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, err
		}
		slices.Sort(names)
		out = append(out, folder{folder: filepath.ToSlash(rel), dir: dir, targets: names})
	}
	slices.SortFunc(out, func(a, b folder) int { return strings.Compare(a.folder, b.folder) })
	return out, nil
}

// targetsOf returns the names of the fuzz targets in a source.
func targetsOf(name string, text []byte) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") && len(f.Type.Params.List) == 1 {
			out = append(out, f.Name.Name)
		}
	}
	return out, nil
}
