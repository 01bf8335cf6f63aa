package nvml

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
)

// exported is the result of exportData, which starts the compiler.
var exported struct{ files, dirs map[string]string }

const goNVML = "github.com/NVIDIA/go-nvml/pkg/nvml"

// exportData maps import paths to the compiler's files, for this package and all that it needs. The flags
// are those of the test binary, so that everything is in the build cache already.
func exportData(t *testing.T) (files map[string]string, dirs map[string]string) {
	t.Helper()
	if len(exported.files) > 0 {
		return exported.files, exported.dirs
	}
	args := []string{"list", "-deps", "-export", "-json=ImportPath,Export,Dir"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, ".")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	files, dirs = map[string]string{}, map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export, Dir string }
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			exported.files, exported.dirs = files, dirs
			return files, dirs
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath], dirs[p.ImportPath] = p.Export, p.Dir
	}
}

// reachable finds which symbols of the library each method of go-nvml may call, from its source: the C
// functions that its body names, through functions and function variables of the package.
func reachable(t *testing.T, dir string) map[string][]string {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no go-nvml in %s", dir)
	}
	uses := map[string][]string{} // function, "Type.Method" or variable -> names that it mentions
	symbols := map[string]string{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_mock.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		must.OK(t, err)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				key := d.Name.Name
				if d.Recv != nil {
					key = receiver(d.Recv.List[0].Type) + "." + key
				}
				ast.Inspect(d.Body, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.SelectorExpr:
						if x, ok := n.X.(*ast.Ident); ok && x.Name == "C" && strings.HasPrefix(n.Sel.Name, "nvml") {
							symbols[key] = n.Sel.Name
						}
						// A method of the library or a handle, called by another.
						uses[key] = append(uses[key], "."+n.Sel.Name)
					case *ast.Ident:
						uses[key] = append(uses[key], n.Name)
					case *ast.AssignStmt:
						// The table of versions: variable = function of a version.
						for i, l := range n.Lhs {
							if l, ok := l.(*ast.Ident); ok && i < len(n.Rhs) {
								if r, ok := n.Rhs[i].(*ast.Ident); ok {
									uses[l.Name] = append(uses[l.Name], r.Name)
								}
							}
						}
					}
					return true
				})
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok {
						for i, n := range v.Names {
							if i < len(v.Values) {
								if r, ok := v.Values[i].(*ast.Ident); ok {
									uses[n.Name] = append(uses[n.Name], r.Name)
								}
							}
						}
					}
				}
			}
		}
	}
	found := map[string][]string{}
	for key := range uses {
		seen := map[string]bool{}
		var walk func(string)
		walk = func(k string) {
			if seen[k] {
				return
			}
			seen[k] = true
			if s := symbols[k]; s != "" {
				found[key] = append(found[key], s)
			}
			for _, u := range uses[k] {
				if name, method := strings.CutPrefix(u, "."); method {
					// Of the same receiver, or a sample's or set's method behind a device's.
					for _, of := range []string{strings.Split(k, ".")[0], "nvmlGpmSample", "nvmlDevice"} {
						if _, ok := uses[of+"."+name]; ok {
							walk(of + "." + name)
							break
						}
					}
				} else if strings.HasPrefix(u, "nvml") || strings.HasPrefix(u, "device") || strings.HasPrefix(u, "gpm") ||
					strings.HasPrefix(u, "Device") {
					walk(u)
				}
			}
		}
		walk(key)
		slices.Sort(found[key])
		found[key] = slices.Compact(found[key])
	}
	return found
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// implementations are the types behind go-nvml's interfaces.
var implementations = map[string]string{"Interface": "library", "Device": "nvmlDevice", "GpmSample": "nvmlGpmSample",
	"EventSet": "nvmlEventSet", "GpuInstance": "nvmlGpuInstance"}

// methodsOf are the methods of go-nvml that may be used under a guard, as "Type.Method", by the call table.
func methodsOf(g *guard) []string {
	at := slices.IndexFunc(calls.Calls, func(c calls.Call) bool { return !c.Unused && c.Function == g.name })
	if at < 0 {
		return nil
	}
	return calls.Calls[at].GoMethods()
}

// TestGuardsNameWhatIsCalled holds the guard table against go-nvml's source: a method may reach no symbol
// that its row does not name. Else a driver that lacks it would end the process.
func TestGuardsNameWhatIsCalled(t *testing.T) {
	_, dirs := exportData(t)
	symbols := reachable(t, dirs[goNVML])
	for id := range guards {
		g := &guards[id]
		methods := methodsOf(g)
		if g.name == "" || len(methods) == 0 {
			t.Errorf("call %d has no row", id)
			continue
		}
		var reached []string
		for _, m := range methods {
			of, name, _ := strings.Cut(m, ".")
			if impl, ok := implementations[of]; ok {
				of = impl
			}
			reached = append(reached, symbols[of+"."+name]...)
		}
		if m := methods[0]; m == "Interface.Init" {
			// Its symbols are those of the function variable; load looks others up and calls none.
			reached = []string{"nvmlInit", "nvmlInit_v2"}
		}
		slices.Sort(reached)
		reached = slices.Compact(reached)
		if len(reached) == 0 {
			t.Errorf("%s: no symbol found behind %v: has go-nvml changed?", g.name, methods)
		}
		for _, s := range reached {
			if !slices.Contains(g.symbols(), s) {
				t.Errorf("%s: go-nvml's %v may call %s, which the row does not name", g.name, methods, s)
			}
		}
		for _, s := range g.symbols() {
			if !slices.Contains(reached, s) {
				t.Errorf("%s: the row names %s, which go-nvml's %v never call", g.name, s, methods)
			}
		}
	}
}

// TestEveryCallIsGuarded parses this package: whatever method of go-nvml it mentions, it does so within
// the arguments of a function that is given the callID of a guard which allows that method.
func TestEveryCallIsGuarded(t *testing.T) {
	files, dirs := exportData(t)
	fset := token.NewFileSet()
	parsed := parsePackage(t, fset, dirs["github.com/gpu-exporter/gpu-exporter/internal/nvml"])
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{},
		Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	})}
	if _, err := config.Check("nvml", fset, parsed, info); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, file := range parsed {
		var path []ast.Node
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				path = path[:len(path)-1]
				return true
			}
			path = append(path, n)
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if method, ok := methodOf(info, n); ok {
					used[method] = true
					checkGuarded(t, fset, info, path, n, method)
				}
				checkPackageLevel(t, fset, info, n)
			case *ast.CallExpr:
				checkNoPrinting(t, fset, info, n)
			}
			return true
		})
	}
	for id := range guards {
		for _, m := range methodsOf(&guards[id]) {
			if !used[m] {
				t.Errorf("the guard of %s allows %s, which nothing calls", guards[id].name, m)
			}
		}
	}
}

func parsePackage(t *testing.T, fset *token.FileSet, dir string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no sources in %s", dir)
	}
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		must.OK(t, err)
		parsed = append(parsed, f)
	}
	return parsed
}

// methodOf returns "Type.Method" for a selector that is a method of go-nvml.
func methodOf(info *types.Info, e *ast.SelectorExpr) (string, bool) {
	s := info.Selections[e]
	if s == nil || s.Kind() == types.FieldVal || s.Obj().Pkg() == nil || s.Obj().Pkg().Path() != goNVML {
		return "", false
	}
	of := s.Recv()
	if p, ok := of.(*types.Pointer); ok {
		of = p.Elem()
	}
	named, ok := of.(*types.Named)
	if !ok {
		return "", false
	}
	return named.Obj().Name() + "." + s.Obj().Name(), true
}

// checkGuarded looks outward from a method for the call that is given the guard.
func checkGuarded(t *testing.T, fset *token.FileSet, info *types.Info, path []ast.Node, e *ast.SelectorExpr, method string) {
	t.Helper()
	for i := len(path) - 1; i >= 0; i-- {
		for _, arg := range besides(path[i]) {
			id, ok := guardOf(info, arg)
			if !ok {
				continue
			}
			if !slices.Contains(methodsOf(&guards[id]), method) {
				t.Errorf("%s: %s is used under the guard of %s, which does not allow it", fset.Position(e.Pos()), method, guards[id].name)
			}
			return
		}
	}
	t.Errorf("%s: %s is used outside of any guarded call", fset.Position(e.Pos()), method)
}

// besides returns the arguments of a call, or the values of a literal.
func besides(n ast.Node) (list []ast.Expr) {
	switch n := n.(type) {
	case *ast.CallExpr:
		return n.Args
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				e = kv.Value
			}
			list = append(list, e)
		}
	}
	return list
}

func guardOf(info *types.Info, e ast.Expr) (int, bool) {
	tv, ok := info.Types[e]
	if !ok || tv.Value == nil {
		return 0, false
	}
	named, ok := tv.Type.(*types.Named)
	if !ok || named.Obj().Name() != "callID" {
		return 0, false
	}
	id, exact := constant.Int64Val(tv.Value)
	return int(id), exact && id >= 0 && id < int64(callKinds)
}

// checkPackageLevel refuses go-nvml's functions on its own global library; only making one of ours is allowed.
func checkPackageLevel(t *testing.T, fset *token.FileSet, info *types.Info, e *ast.SelectorExpr) {
	t.Helper()
	obj := info.Uses[e.Sel]
	if obj == nil || obj.Pkg() == nil || obj.Pkg().Path() != goNVML || info.Selections[e] != nil {
		return
	}
	_, isFunc := obj.Type().Underlying().(*types.Signature)
	_, isType := obj.(*types.TypeName)
	if isFunc && !isType && obj.Name() != "New" && obj.Name() != "WithLibraryPath" {
		t.Errorf("%s: nvml.%s works on go-nvml's global library", fset.Position(e.Pos()), obj.Name())
	}
}

// checkNoPrinting refuses a Return as an argument of an interface type: printing it asks the library for a text.
func checkNoPrinting(t *testing.T, fset *token.FileSet, info *types.Info, call *ast.CallExpr) {
	t.Helper()
	signature, ok := info.Types[call.Fun].Type.(*types.Signature)
	if !ok {
		return
	}
	for i, arg := range call.Args {
		named, ok := info.Types[arg].Type.(*types.Named)
		if !ok || named.Obj().Name() != "Return" || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != goNVML {
			continue
		}
		at := min(i, signature.Params().Len()-1)
		of := signature.Params().At(at).Type()
		if signature.Variadic() && at == signature.Params().Len()-1 {
			of = of.(*types.Slice).Elem()
		}
		if types.IsInterface(of) {
			t.Errorf("%s: a Return is passed as an interface; printing it would call the library: use codeName", fset.Position(arg.Pos()))
		}
	}
}

func TestProbe(t *testing.T) {
	has := func(symbols ...string) func(string) error {
		return func(s string) error {
			if slices.Contains(symbols, s) {
				return nil
			}
			return errors.New("not found")
		}
	}
	o := probe(has("nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetComputeRunningProcesses_v2"))
	for id, want := range map[callID]bool{callInit: true, callShutdown: true, callComputeRunningProcesses: true, callUUID: false,
		callGraphicsRunningProcesses: false} {
		if o.have[id] != want {
			t.Errorf("%s: have %v, want %v", guards[id].name, o.have[id], want)
		}
	}
	if !slices.Contains(o.fatal, "nvmlDeviceGetUUID") || slices.Contains(o.fatal, "nvmlDeviceGetFieldValues") {
		t.Errorf("fatal: %v", o.fatal)
	}
	if !slices.Contains(o.missing, "nvmlDeviceGetGraphicsRunningProcesses_v3") {
		t.Errorf("missing: %v", o.missing)
	}
}

// TestNoExpensiveCalls refuses what costs more than it tells.
func TestNoExpensiveCalls(t *testing.T) {
	for id := range guards {
		if guards[id].name == "nvmlDeviceGetPcieThroughput" {
			t.Error("nvmlDeviceGetPcieThroughput sleeps 20 ms in the driver: fields 197 and 198 tell the same")
		}
	}
}
