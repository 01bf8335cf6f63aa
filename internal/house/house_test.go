// Package house_test holds the structure of the project: which room may know which, and what every room
// must say of itself. Each rule stands with its reason.
package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/gpu-exporter/gpu-exporter"

// room is one folder of the house plan.
type room struct {
	path string
	// knows lists the rooms of ours that it may import.
	knows []string
	// never lists import paths (or their beginnings) that it must not have, and why says the reason.
	never []string
	why   string
}

const (
	prometheusLib = "github.com/prometheus/"
	grpcLib       = "google.golang.org/grpc"
	nvmlLib       = "github.com/NVIDIA/go-nvml"
)

// plan is the import law. A room that is not listed has not been thought about: add it with a reason.
var plan = []room{
	{path: "internal/gpu", never: []string{"github.com/", "google.golang.org/", "k8s.io/", "golang.org/"},
		why: "the words stand on the standard library alone, so that every room can speak them"},
	{path: "internal/standin/scenario", knows: []string{"internal/gpu"}, never: []string{"github.com/", "google.golang.org/", "k8s.io/"},
		why: "a file format is read by tests and tools alike"},
	{path: "internal/nvml/journal", never: []string{"github.com/", "google.golang.org/", "k8s.io/"},
		why: "a file format that the exporter writes and the stand-in reads"},
	{path: "internal/nvml", knows: []string{"internal/gpu", "internal/nvml/journal"}, never: []string{prometheusLib, grpcLib, "k8s.io/"},
		why: "the driver does not know who looks at its readings"},
	{path: "internal/standin/recording", knows: []string{"internal/gpu", "internal/nvml/journal", "internal/standin/scenario"}, never: []string{"github.com/", "google.golang.org/", "k8s.io/"},
		why: "a journal becomes a scenario without the driver and without the exporter"},
	{path: "internal/proc", knows: []string{"internal/gpu"}, never: []string{prometheusLib, grpcLib, nvmlLib},
		why: "what a process belongs to is read from /proc alone"},
	{path: "internal/engine", knows: []string{"internal/gpu"}, never: []string{"github.com/", "google.golang.org/", "k8s.io/", "os/exec"},
		why: "a container engine is asked one question over its socket, with the standard library alone"},
	{path: "podmap", knows: []string{"internal/gpu"}, never: []string{prometheusLib, nvmlLib},
		why: "who holds a GPU is told by the kubelet, never by the driver"},
	{path: "internal/account", knows: []string{"internal/gpu"}, never: []string{"github.com/", "google.golang.org/", "k8s.io/", "net", "os"},
		why: "arithmetic has no clock, no file and no network, so that it can be proven"},
	{path: "internal/sampler", knows: []string{"internal/gpu", "internal/account"}, never: []string{prometheusLib, nvmlLib, grpcLib},
		why: "the loop takes what it needs through its own interfaces"},
	{path: "internal/catalog", knows: []string{"internal/gpu"}, never: []string{prometheusLib, nvmlLib, grpcLib},
		why: "dashboards, alerts and reports read the table without a Prometheus library"},
	{path: "internal/catalog/compat", knows: []string{"internal/gpu", "internal/catalog"}, never: []string{prometheusLib, nvmlLib, grpcLib},
		why: "another exporter's names are the catalog's families read once more, so that the two pages cannot disagree"},
	{path: "internal/catalog/catalogtest", knows: []string{"internal/gpu"}, never: []string{prometheusLib, nvmlLib, grpcLib},
		why: "it makes Views for tests"},
	{path: "collector", knows: []string{"internal/gpu", "internal/catalog"}, never: []string{"net/http", nvmlLib, grpcLib},
		why: "rendering is not serving, and a scrape touches no hardware"},
	{path: "internal/web", knows: []string{"internal/gpu", "internal/catalog"}, never: []string{nvmlLib, grpcLib},
		why: "a page shows the View and asks nobody"},
	{path: "internal/standin", knows: []string{"internal/gpu", "internal/standin/scenario"}, never: []string{prometheusLib, nvmlLib},
		why: "it plays a node from the outside, through the same doors as a real one"},
	{path: "dashboards", knows: []string{"internal/gpu", "internal/catalog"}, never: []string{prometheusLib, nvmlLib, grpcLib},
		why: "boards are tables beside the catalog; the parser that checks their queries lives in the module test/"},
	{path: "alerts", knows: []string{"internal/gpu", "internal/catalog"}, never: []string{prometheusLib, nvmlLib, grpcLib},
		why: "rules are text made from a table; the parser that checks them is a test's"},
	{path: "internal/standin/fleet", knows: []string{"internal/gpu"}, never: []string{"github.com/", "google.golang.org/", "k8s.io/", "net", "os"},
		why: "what a fleet does follows from a seed and a moment; how it is shown is not its business"},
	{path: "internal/standin/expose", knows: []string{"internal/gpu", "internal/catalog", "collector", "internal/standin/fleet"}, never: []string{nvmlLib, grpcLib},
		why: "it shows a simulated fleet through the product's own catalog and collector, so that names cannot drift"},
	{path: "report", knows: []string{"internal/catalog", "report/mig", "report/prom"}, never: []string{prometheusLib, nvmlLib, grpcLib, "k8s.io/"},
		why: "the report reads any server's answers; it needs neither a Prometheus library nor a node"},
	{path: "report/mig", never: []string{"github.com/", "net", "os"}, why: "a table of what GPUs offer has nobody to ask"},
	{path: "report/prom", never: []string{"github.com/prometheus/client_golang", nvmlLib, grpcLib, "k8s.io/"},
		why: "the client's own decoder is eight times as fast as client_golang's, which a month of a fleet needs"},
	{path: "report/reporttest", never: []string{prometheusLib, nvmlLib, grpcLib},
		why: "it plays a server for tests"},
	{path: "report/render", knows: []string{"report"}, never: []string{prometheusLib, nvmlLib, grpcLib, "net"},
		why: "a page shows a document and asks nobody"},
	{path: "cmd/report", knows: []string{"report", "report/prom", "report/render"}, never: []string{nvmlLib, grpcLib},
		why: "it runs on any machine, without GPUs"},
	{path: "cmd/exporter", knows: []string{"internal/gpu", "internal/nvml", "internal/nvml/journal", "internal/proc", "internal/engine", "podmap", "internal/account", "internal/sampler",
		"internal/catalog", "internal/catalog/compat", "collector", "internal/web"},
		why: "a shipped program plays no fake node"},
	{path: "tools/gen", knows: []string{"internal/catalog", "internal/catalog/compat", "dashboards", "alerts", "report/render"},
		never: []string{nvmlLib, grpcLib}, why: "generated files depend on tables alone"},
	{path: "cmd/standin", knows: []string{"internal/gpu", "internal/standin/scenario", "internal/standin/recording", "internal/standin", "internal/standin/fleet", "internal/standin/expose", "alerts"}, never: []string{prometheusLib, nvmlLib},
		why: "the stand-in must not share code with what it stands in front of; a fleet stands in front of nothing, it is scraped itself"},
}

// goFiles lists the product's Go files by folder, relative to the root; test files apart.
func goFiles(t *testing.T) (root string, code, tests map[string][]string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	code, tests = map[string][]string{}, map[string][]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "node_modules") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
				return filepath.SkipDir // a module of its own has its own law
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if strings.HasSuffix(path, "_test.go") {
			tests[rel] = append(tests[rel], path)
		} else {
			code[rel] = append(code[rel], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return root, code, tests
}

func imports(t *testing.T, path string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range f.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestImportLaw(t *testing.T) {
	_, code, _ := goFiles(t)
	for dir, files := range code {
		at := slices.IndexFunc(plan, func(r room) bool { return r.path == dir })
		if at < 0 {
			t.Errorf("%s is not in the house plan: say what it may import, and why", dir)
			continue
		}
		r := plan[at]
		for _, file := range files {
			for _, imported := range imports(t, file) {
				if ours, is := strings.CutPrefix(imported, module+"/"); is {
					if !slices.Contains(r.knows, ours) {
						t.Errorf("%s imports %s: %s", file, ours, r.why)
					}
					continue
				}
				for _, never := range r.never {
					if imported == never || strings.HasPrefix(imported, strings.TrimSuffix(never, "/")+"/") {
						t.Errorf("%s imports %s: %s", file, imported, r.why)
					}
				}
			}
		}
	}
}

// What ships contains nothing that simulates: neither program links a package of the stand-in.
func TestShippedProgramsLinkNoStandin(t *testing.T) {
	_, code, _ := goFiles(t)
	for _, program := range []string{"cmd/exporter", "cmd/report"} {
		reached := map[string]bool{program: true}
		for queue := []string{program}; len(queue) > 0; queue = queue[1:] {
			for _, file := range code[queue[0]] {
				for _, imported := range imports(t, file) {
					if ours, is := strings.CutPrefix(imported, module+"/"); is && !reached[ours] {
						reached[ours] = true
						queue = append(queue, ours)
					}
				}
			}
		}
		if len(reached) < 4 {
			t.Errorf("%s reaches %v alone: the walk is broken", program, reached)
		}
		for dir := range reached {
			if dir == "internal/standin" || strings.HasPrefix(dir, "internal/standin/") {
				t.Errorf("%s links %s", program, dir)
			}
		}
	}
}

// The law must speak of rooms that exist, or it holds nothing.
func TestPlanNamesOnlyRooms(t *testing.T) {
	_, code, _ := goFiles(t)
	for _, r := range plan {
		if len(code[r.path]) == 0 && !slices.Contains(planned, r.path) {
			t.Errorf("the plan speaks of %s, which is not there", r.path)
		}
		for _, k := range r.knows {
			if !slices.ContainsFunc(plan, func(o room) bool { return o.path == k }) {
				t.Errorf("%s may know %s, which the plan does not have", r.path, k)
			}
		}
	}
}

// planned are rooms of the plan that are not built yet.
var planned = []string{}

func TestEveryPackageHasADoc(t *testing.T) {
	_, code, _ := goFiles(t)
	for dir, files := range code {
		documented := false
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || f.Doc != nil && len(f.Doc.Text()) > 40
		}
		if !documented {
			t.Errorf("%s has no package comment that says what the room is for", dir)
		}
	}
}

// No globals that change and no init: what a package does, its caller asked for. Tables, sentinels and
// compiled expressions are values; they are never assigned again.
func TestNoInitAndNoAssignedGlobals(t *testing.T) {
	_, code, _ := goFiles(t)
	for _, files := range code {
		globals, specs := map[string]bool{}, map[*ast.ValueSpec]bool{}
		var parsed []*ast.File
		fset := token.NewFileSet()
		for _, file := range files {
			f, err := parser.ParseFile(fset, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Recv == nil && d.Name.Name == "init" {
						t.Errorf("%s has an init function", fset.Position(d.Pos()))
					}
				case *ast.GenDecl:
					for _, s := range d.Specs {
						if v, ok := s.(*ast.ValueSpec); ok && d.Tok == token.VAR {
							specs[v] = true
							for _, name := range v.Names {
								globals[name.Name] = true
							}
						}
					}
				}
			}
		}
		for _, f := range parsed {
			ast.Inspect(f, func(n ast.Node) bool {
				assign, ok := n.(*ast.AssignStmt)
				if !ok || assign.Tok == token.DEFINE {
					return true
				}
				for _, lhs := range assign.Lhs {
					id, ok := lhs.(*ast.Ident)
					if !ok || !globals[id.Name] {
						continue
					}
					// The parser resolves names within a file: what it could not resolve is another file's global.
					if id.Obj != nil {
						spec, ok := id.Obj.Decl.(*ast.ValueSpec)
						if !ok || !specs[spec] {
							continue
						}
					}
					t.Errorf("%s assigns the package variable %s", fset.Position(assign.Pos()), id.Name)
				}
				return true
			})
		}
	}
}

// The repository speaks of the product: no path of a developer's machine, and no word of how it was written.
func TestSpeaksOfTheProductAlone(t *testing.T) {
	root, code, tests := goFiles(t)
	forbidden := []string{"/work" + "/", "/ro" + "ot/go", "TO" + "DO(", "FIX" + "ME"}
	check := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range forbidden {
			if strings.Contains(string(text), word) {
				t.Errorf("%s contains %q", path, word)
			}
		}
	}
	for _, set := range []map[string][]string{code, tests} {
		for _, files := range set {
			for _, f := range files {
				check(f)
			}
		}
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "Makefile", ".ci/run"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			check(f)
		}
	}
}

// A compiled program has no place among the sources: it says nothing to a reader, fits one kind of machine, and stays in the history for ever.
// What is built goes to bin.
func TestKeepsNoPrograms(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{filepath.Join(root, ".git"), filepath.Join(root, ".cache"), filepath.Join(root, "bin"), filepath.Join(root, "tmp")}, path):
			return filepath.SkipDir
		case !d.Type().IsRegular() || strings.HasSuffix(path, ".test"):
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		begin := make([]byte, 4)
		if n, _ := f.Read(begin); string(begin[:n]) == "\x7fELF" {
			t.Errorf("%s is a compiled program: delete it, and have it built to bin", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
