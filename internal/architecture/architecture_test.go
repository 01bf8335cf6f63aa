// Package architecture_test checks the structure of the project: which package may import which, and in which order
// the files of a package refer to each other. Each rule is stated with its reason.
package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

const module = "github.com/gpu-exporter/gpu-exporter"

// pkg is one package of the plan.
type pkg struct {
	path string
	// imports lists the packages of this module that it may import.
	imports []string
	// never lists import paths (or their beginnings) that it must not import; reason says why.
	never  []string
	reason string
}

const (
	prometheusLib = "github.com/prometheus/"
	grpcLib       = "google.golang.org/grpc"
	nvmlLib       = "github.com/NVIDIA/go-nvml"
)

// plan is the import law: every package, the packages of this module that it may import, and what it must not import.
var plan = []pkg{
	{path: "internal/gpu", never: []string{"github.com/", "google.golang.org/", "k8s.io/", "golang.org/"},
		reason: "shared types depend on the standard library alone, so that every package can use them"},
	{path: "internal/standin/scenario", imports: []string{"internal/gpu", "internal/nvml/calls"},
		never:  []string{"github.com/", "google.golang.org/", "k8s.io/"},
		reason: "a file format is read by tests and tools alike"},
	{path: "internal/nvml/journal", never: []string{"github.com/", "google.golang.org/", "k8s.io/"},
		reason: "a file format that the exporter writes and the stand-in reads"},
	{path: "internal/nvml/calls", imports: []string{"internal/gpu"}, never: []string{"github.com/", "google.golang.org/", "k8s.io/"},
		reason: "a table that the generator, the stand-in and its tests read without the driver"},
	{path: "internal/nvml/direct", never: []string{"google.golang.org/", "k8s.io/"}, reason: "two calls that go-nvml makes twice each"},
	{path: "internal/nvml/links", imports: []string{"internal/gpu"}, never: []string{"google.golang.org/", "k8s.io/"},
		reason: "a table without code"},
	{path: "internal/nvml/gpm", imports: []string{"internal/gpu"}, never: []string{"google.golang.org/", "k8s.io/"},
		reason: "pairs of samples are kept without driver calls, which internal/nvml alone makes"},
	{path: "internal/nvml/bus", imports: []string{"internal/gpu"}, never: []string{"github.com/", "google.golang.org/", "k8s.io/"},
		reason: "the PCI bus is read without the driver"},
	{path: "internal/nvml", imports: []string{"internal/gpu", "internal/nvml/bus", "internal/nvml/direct", "internal/nvml/gpm",
		"internal/nvml/journal", "internal/nvml/links"},
		never:  []string{prometheusLib, grpcLib, "k8s.io/"},
		reason: "the driver package is independent of how readings are exposed"},
	{path: "internal/standin/playback", imports: []string{"internal/nvml/calls", "internal/nvml/journal"},
		reason: "a journal is played without the fake driver"},
	{path: "internal/cmdline", never: []string{grpcLib, nvmlLib, "k8s.io/"}, reason: "the form of all programs' flags knows none of them"},
	{path: "rooms", imports: []string{"internal/gpu", "internal/catalog", "internal/nvml", "internal/proc", "internal/sampler",
		"podmap", "podmap/source"}, never: []string{"net/http", grpcLib, nvmlLib, "k8s.io/"},
		reason: "the plan that an optional part adds to, and nothing that only one of them needs"},
	{path: "rooms/engines", imports: []string{"rooms", "internal/gpu", "internal/host"}, never: []string{prometheusLib, grpcLib, nvmlLib},
		reason: "a list of containers needs no process"},
	{path: "rooms/kmsg", imports: []string{"rooms", "internal/gpu"}, never: []string{prometheusLib, grpcLib, nvmlLib, "k8s.io/"},
		reason: "the kernel log is read without the driver"},
	{path: "rooms/visible", imports: []string{"rooms", "internal/gpu", "internal/proc", "podmap/deviceid"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "what is visible is judged by device nodes and the IDs of one variable"},
	{path: "rooms/cgroupmem", imports: []string{"rooms", "internal/gpu", "internal/proc"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "memory by cgroup is read from the hierarchy alone"},
	{path: "rooms/letgo", imports: []string{"rooms"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "two signals for the loop"},
	{path: "rooms/suspend", imports: []string{"rooms", "internal/gpu", "internal/host"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "whether a GPU is suspended is read without the driver"},
	{path: "rooms/links", imports: []string{"rooms"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "a switch of the driver package"},
	{path: "rooms/processes", imports: []string{"rooms"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "a limit of the account"},
	{path: "rooms/accounts", imports: []string{"rooms", "internal/gpu"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "a switch of the driver package, and what to do about its mode"},
	{path: "rooms/compat", imports: []string{"rooms", "internal/gpu", "internal/catalog/compat", "podmap/source"},
		never:  []string{grpcLib, nvmlLib},
		reason: "another exporter's page is the catalog's, with other names"},
	{path: "rooms/fractions", imports: []string{"rooms"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "a setting of podmap, which has the records with its other sources"},
	{path: "rooms/dra", imports: []string{"rooms"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "a setting of podmap, which has the checkpoint with its other sources"},
	{path: "rooms/doctor", imports: []string{"rooms", "internal/cmdline", "internal/gpu", "internal/hardware", "podmap"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "it reads the View; what is recommended comes from the parts"},
	{path: "rooms/health", imports: []string{"rooms", "internal/cmdline", "internal/gpu", "internal/web"},
		never:  []string{grpcLib, nvmlLib},
		reason: "it reads the page of the running exporter and calls no driver"},
	{path: "rooms/record", imports: []string{"rooms", "internal/cmdline", "internal/nvml", "internal/nvml/journal"},
		never:  []string{grpcLib, nvmlLib},
		reason: "a journal has the calls of the driver package and nothing else"},
	{path: "rooms/podmeta", imports: []string{"rooms", "internal/catalog", "podmap"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "a setting of podmap, which has the metadata with its other sources"},
	{path: "rooms/slices", imports: []string{"rooms"},
		never:  []string{prometheusLib, grpcLib, nvmlLib},
		reason: "a setting of podmap, which has the ResourceSlices with its other sources"},
	{path: "internal/must", never: []string{"github.com/", "google.golang.org/", "k8s.io/", "golang.org/"},
		reason: "tests of every package use it"},
	{path: "internal/testkit", never: []string{nvmlLib, grpcLib, "k8s.io/"}, reason: "tests and measurements of every module use it"},
	{path: "internal/host", imports: []string{"internal/gpu"}, never: []string{"github.com/", "google.golang.org/", "k8s.io/", "net"},
		reason: "how reads that hang are given up is independent of what they read"},
	{path: "internal/proc", imports: []string{"internal/gpu", "internal/host"}, never: []string{prometheusLib, grpcLib, nvmlLib},
		reason: "owners of processes are read from /proc and log names"},
	{path: "podmap/podresources", imports: []string{"internal/gpu"}, never: []string{prometheusLib, nvmlLib},
		reason: "the kubelet's client does not interpret device IDs"},
	{path: "podmap/deviceid", imports: []string{"internal/gpu"},
		never:  []string{"github.com/", "google.golang.org/", "k8s.io/", "net", "os"},
		reason: "mapping a device ID to a GPU is a pure function"},
	{path: "podmap/source", imports: []string{"internal/gpu", "internal/host"}, never: []string{prometheusLib, nvmlLib, grpcLib},
		reason: "data sources are read without interpreting them"},
	{path: "podmap/testnode", imports: []string{"internal/gpu"}, never: []string{"github.com/", "google.golang.org/", "k8s.io/"},
		reason: "test data of podmap and podmap/deviceid"},
	{path: "rooms/slurm", imports: []string{"rooms", "internal/gpu", "internal/host", "internal/sampler"},
		never:  []string{prometheusLib, nvmlLib, "google.golang.org/", "k8s.io/"},
		reason: "Slurm's job mapping needs no Kubernetes"},
	{path: "podmap", imports: []string{"internal/gpu", "podmap/podresources", "podmap/deviceid", "podmap/source"},
		never: []string{prometheusLib, nvmlLib}, reason: "allocations come from the kubelet, never from the driver"},
	{path: "internal/hardware", never: []string{"github.com/", "google.golang.org/", "k8s.io/", "net", "os"},
		reason: "a table that the hardware check and the exporter share"},
	{path: "internal/account/counters", imports: []string{"internal/gpu"},
		never:  []string{"github.com/", "google.golang.org/", "k8s.io/", "net", "os", "time"},
		reason: "a counter of the driver is arithmetic on its values and the time between them"},
	{path: "internal/account", imports: []string{"internal/gpu", "internal/account/counters"},
		never:  []string{"github.com/", "google.golang.org/", "k8s.io/", "net", "os"},
		reason: "arithmetic has no clock, no file and no network, so that it can be tested exhaustively"},
	{path: "internal/sampler", imports: []string{"internal/gpu", "internal/account"},
		never:  []string{prometheusLib, nvmlLib, grpcLib},
		reason: "the loop gets its dependencies through its own interfaces"},
	{path: "internal/catalog", imports: []string{"internal/gpu"}, never: []string{prometheusLib, nvmlLib, grpcLib},
		reason: "dashboards, alerts and reports read the table without a Prometheus library"},
	{path: "internal/catalog/compat", imports: []string{"internal/gpu", "internal/catalog"},
		never:  []string{prometheusLib, nvmlLib, grpcLib},
		reason: "another exporter's names are derived from the catalog's families, so that the two pages agree"},
	{path: "internal/dropin", never: []string{"github.com/", "google.golang.org/", "k8s.io/", "net", "os"},
		reason: "it turns words into words, before anything of the program runs"},
	{path: "internal/catalog/compat/guide", imports: []string{"internal/catalog", "internal/catalog/compat", "internal/dropin"},
		never: []string{prometheusLib, nvmlLib, grpcLib}, reason: "it renders documentation and is not shipped with the exporter"},
	{path: "internal/catalog/reference", imports: []string{"internal/gpu", "internal/catalog"},
		never: []string{prometheusLib, nvmlLib, grpcLib}, reason: "it renders documentation and is not shipped"},
	{path: "internal/catalog/catalogtest", imports: []string{"internal/gpu"},
		never:  []string{prometheusLib, nvmlLib, grpcLib},
		reason: "it builds Views for tests"},
	{path: "collector", imports: []string{"internal/gpu", "internal/catalog"},
		never:  []string{"net/http", nvmlLib, grpcLib},
		reason: "rendering is not serving, and a scrape touches no hardware"},
	{path: "internal/web", imports: []string{"internal/gpu", "internal/catalog"}, never: []string{nvmlLib, grpcLib},
		reason: "a page renders the View and queries nothing"},
	{path: "internal/standin", imports: []string{"internal/gpu", "internal/standin/scenario"},
		never:  []string{prometheusLib, nvmlLib},
		reason: "it simulates a node from the outside, through the interfaces of a real one"},
	{path: "internal/architecture", never: []string{"github.com/"}, reason: "it reads files of the repository"},
	{path: "internal/standin/faultkinds", never: []string{"github.com/", "google.golang.org/", "k8s.io/", "net", "os"},
		reason: "a table without code"},
	{path: "internal/standin/machine", imports: []string{"internal/must", "internal/standin", "internal/standin/scenario",
		"internal/testkit"},
		never: []string{prometheusLib, nvmlLib}, reason: "it runs the real binary for tests, which look at it from the outside"},
	{path: "dashboards", imports: []string{"internal/gpu", "internal/catalog"},
		never:  []string{prometheusLib, nvmlLib, grpcLib},
		reason: "dashboards are tables over the catalog; the parser that checks their queries is in the module test/"},
	{path: "alerts", imports: []string{"internal/gpu", "internal/catalog"},
		never:  []string{prometheusLib, nvmlLib, grpcLib},
		reason: "rules are text generated from a table; the parser that checks them is in the module test/"},
	{path: "internal/standin/fleet", imports: []string{"internal/gpu", "internal/account"},
		never:  []string{"github.com/", "google.golang.org/", "k8s.io/", "net", "os"},
		reason: "a fleet's activity is a function of a seed and a time, independent of how it is exposed"},
	{path: "internal/standin/expose", imports: []string{"internal/gpu", "internal/catalog", "collector",
		"internal/standin/fleet"}, never: []string{nvmlLib, grpcLib},
		reason: "it exposes a simulated fleet through the catalog and collector, so that names cannot drift"},
	{path: "internal/standin/faultkinds", never: []string{"github.com/"}, reason: "a table of words, which tests of two modules read"},
	{path: "internal/standin/replay", imports: []string{"alerts"}, never: []string{prometheusLib, nvmlLib, grpcLib},
		reason: "it evaluates the shipped rules"},
	{path: "report", imports: []string{"internal/gpu", "report/change", "report/demand", "report/document", "report/kube", "report/metric",
		"report/mig", "report/prices", "report/prom", "report/replay", "report/series", "report/sizing", "report/units"},
		never:  []string{prometheusLib, nvmlLib, grpcLib, "k8s.io/"},
		reason: "the report reads the HTTP API of any server; it needs neither a Prometheus library nor a node"},
	{path: "report/document", imports: []string{"internal/catalog"}, never: []string{"github.com/prometheus", "net", "os"},
		reason: "what a report consists of needs no server"},
	{path: "report/change", imports: []string{"internal/gpu", "report/document", "report/kube", "report/sizing", "report/units"},
		never:  []string{"net", "os"},
		reason: "commands are text, which is shown and never run"},
	{path: "report/metric", imports: []string{"report/document", "report/prom"}, never: []string{"net", "os"},
		reason: "queries are text"},
	{path: "report/sizing", imports: []string{"report/mig", "report/units"}, never: []string{"net", "os"},
		reason: "choosing a size is arithmetic"},
	{path: "report/demand", imports: []string{"report/document", "report/series"}, never: []string{"net", "os"},
		reason: "a bound is computed from a history"},
	{path: "report/series", never: []string{"github.com/", "net", "os"}, reason: "a quantity over time is numbers"},
	{path: "report/replay", imports: []string{"report/units"}, never: []string{"github.com/", "net", "os"},
		reason: "placing pods is arithmetic"},
	{path: "report/mig", never: []string{"github.com/", "net", "os"}, reason: "a table of GPU properties needs no I/O"},
	{path: "report/kube", imports: []string{"internal/catalog"}, never: []string{"k8s.io/", "net", "os"}, reason: "names are text"},
	{path: "report/prices", never: []string{"github.com/", "net"}, reason: "a price list is a file"},
	{path: "report/units", never: []string{"github.com/", "net", "os"}, reason: "figures become text without I/O"},
	{path: "report/prom", never: []string{"github.com/prometheus/client_golang", nvmlLib, grpcLib, "k8s.io/"},
		reason: "the client's own decoder is eight times as fast as client_golang's, which a month of a fleet needs"},
	{path: "report/reporttest", imports: []string{"report/prom"}, never: []string{prometheusLib, nvmlLib, grpcLib},
		reason: "it simulates a server for tests"},
	{path: "report/render", imports: []string{"internal/catalog", "report/document", "report/units"},
		never:  []string{prometheusLib, nvmlLib, grpcLib, "net"},
		reason: "a page renders a document and queries nothing"},
	{path: "cmd/report",
		imports: []string{"internal/cmdline", "report", "report/document", "report/prices", "report/prom", "report/render"},
		never:   []string{nvmlLib, grpcLib},
		reason:  "it runs on any machine, without GPUs"},
	{path: "cmd/exporter", imports: []string{"internal/cmdline", "internal/gpu", "internal/host", "internal/nvml", "internal/proc", "rooms",
		"podmap", "internal/account", "internal/sampler",
		"internal/catalog", "internal/dropin", "collector", "internal/web"},
		reason: "a shipped program contains no simulation"},
	{path: "tools/gen", imports: []string{"internal/nvml/calls", "internal/catalog", "internal/catalog/reference",
		"internal/catalog/compat", "internal/catalog/compat/guide", "dashboards", "alerts", "report/render"},
		never: []string{nvmlLib, grpcLib}, reason: "generated files depend on tables alone"},
	{path: "cmd/standin", imports: []string{"internal/catalog", "internal/cmdline", "internal/gpu", "internal/testkit",
		"internal/standin/scenario", "internal/standin", "internal/standin/fleet", "internal/standin/expose", "internal/standin/replay"},
		never: []string{prometheusLib, nvmlLib},
		reason: "the stand-in must not share code with the exporter it is tested against; a simulated fleet is " +
			"scraped directly"},
}

// goFiles lists the Go files of the root module by directory, relative to the root, tests separately.
func goFiles(t *testing.T) (root string, code, tests map[string][]string) {
	t.Helper()
	root, code, tests = allGoFiles(t)
	for _, files := range []map[string][]string{code, tests} {
		for dir := range files {
			if slices.Contains(strings.Split(dir, "/"), "testdata") {
				delete(files, dir)
			}
			for up := dir; up != "."; up = path.Dir(up) {
				if _, err := os.Stat(filepath.Join(root, up, "go.mod")); err == nil { // another module
					delete(files, dir)
				}
			}
		}
	}
	return root, code, tests
}

// allGoFiles lists the Go files of all modules.
func allGoFiles(t *testing.T) (root string, code, tests map[string][]string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must.OK(t, err)
	code, tests = map[string][]string{}, map[string][]string{}
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir():
			if file != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"bin", "tmp", "node_modules"}, name)) {
				return filepath.SkipDir
			}
		case filepath.Ext(name) == ".go":
			dir, err := filepath.Rel(root, filepath.Dir(file))
			if err != nil {
				return err
			}
			files := code
			if strings.HasSuffix(name, "_test.go") {
				files = tests
			}
			files[filepath.ToSlash(dir)] = append(files[filepath.ToSlash(dir)], file)
		}
		return nil
	})
	must.OK(t, err)
	return root, code, tests
}

func importsOf(t *testing.T, path string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	must.OK(t, err)
	var out []string
	for _, s := range f.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		must.OK(t, err)
		out = append(out, p)
	}
	return out
}

func TestImportLaw(t *testing.T) {
	_, code, _ := goFiles(t)
	for dir, files := range code {
		at := slices.IndexFunc(plan, func(r pkg) bool { return r.path == dir })
		if at < 0 {
			t.Errorf("%s is not in the plan: add it with its allowed imports and the reason", dir)
			continue
		}
		r := plan[at]
		for _, file := range files {
			for _, imported := range importsOf(t, file) {
				if ours, is := strings.CutPrefix(imported, module+"/"); is {
					if dir == "cmd/exporter" && strings.HasPrefix(ours, "rooms/") {
						continue // TestOptionalPartsHaveOneDoor
					}
					if !slices.Contains(r.imports, ours) {
						t.Errorf("%s imports %s: %s", file, ours, r.reason)
					}
					continue
				}
				for _, never := range r.never {
					if imported == never || strings.HasPrefix(imported, strings.TrimSuffix(never, "/")+"/") {
						t.Errorf("%s imports %s: %s", file, imported, r.reason)
					}
				}
			}
		}
	}
}

// An optional part is known to the list of cmd/exporter alone: what imports it, a test too, would not build without it.
func TestOptionalPartsHaveOneDoor(t *testing.T) {
	root, code, tests := goFiles(t)
	list := filepath.Join(root, "cmd", "exporter", "parts.go")
	found := 0
	for _, set := range []map[string][]string{code, tests} {
		for dir, files := range set {
			for _, file := range files {
				for _, imported := range importsOf(t, file) {
					ours, is := strings.CutPrefix(imported, module+"/rooms/")
					switch {
					case !is || dir == "rooms/"+ours:
					case file != list:
						t.Errorf("%s imports rooms/%s, which only %s may", file, ours, list)
					default:
						found++
					}
				}
			}
		}
	}
	other := func(dir string) bool { return !strings.HasPrefix(dir, "rooms/") }
	if found != len(slices.DeleteFunc(slices.Collect(maps.Keys(code)), other)) {
		t.Errorf("%s has %d optional parts, and not all of those in rooms", list, found)
	}
}

// Neither shipped program links a package of the stand-in.
func TestShippedProgramsLinkNoStandin(t *testing.T) {
	_, code, _ := goFiles(t)
	for _, program := range []string{"cmd/exporter", "cmd/report"} {
		for dir := range linkedBy(t, code, program) {
			if dir == "internal/standin" || strings.HasPrefix(dir, "internal/standin/") {
				t.Errorf("%s links %s", program, dir)
			}
		}
	}
}

// linkedBy returns the packages of this module that a program consists of.
func linkedBy(t *testing.T, code map[string][]string, program string) map[string]bool {
	t.Helper()
	reached := map[string]bool{program: true}
	for queue := []string{program}; len(queue) > 0; queue = queue[1:] {
		for _, file := range code[queue[0]] {
			for _, imported := range importsOf(t, file) {
				if ours, is := strings.CutPrefix(imported, module+"/"); is && !reached[ours] {
					reached[ours] = true
					queue = append(queue, ours)
				}
			}
		}
	}
	if len(reached) < 4 {
		t.Fatalf("%s reaches %v only: the test is broken", program, reached)
	}
	return reached
}

// Every package of the plan exists.
func TestPlanListsExistingPackages(t *testing.T) {
	_, code, _ := goFiles(t)
	for _, r := range plan {
		if len(code[r.path]) == 0 {
			t.Errorf("the plan lists %s, which does not exist", r.path)
		}
		for _, k := range r.imports {
			if !slices.ContainsFunc(plan, func(o pkg) bool { return o.path == k }) {
				t.Errorf("%s may import %s, which is not in the plan", r.path, k)
			}
		}
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	_, code, _ := goFiles(t)
	for dir, files := range code {
		documented := false
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
			must.OK(t, err)
			documented = documented || f.Doc != nil && len(f.Doc.Text()) > 40
		}
		if !documented {
			t.Errorf("%s has no package comment that states its purpose", dir)
		}
	}
}

// No mutable globals and no init functions. Tables, sentinel errors and compiled expressions are never assigned again.
func TestNoInitAndNoAssignedGlobals(t *testing.T) {
	_, code, _ := goFiles(t)
	for _, files := range code {
		globals, specs := map[string]bool{}, map[*ast.ValueSpec]bool{}
		var parsed []*ast.File
		fset := token.NewFileSet()
		for _, file := range files {
			f, err := parser.ParseFile(fset, file, nil, 0)
			must.OK(t, err)
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

// The repository has no paths of a developer's machine and no open markers.
func TestNoWorkplaceTerms(t *testing.T) {
	root, code, tests := goFiles(t)
	forbidden := []string{"/work" + "/", "/ro" + "ot/go", "TO" + "DO(", "FIX" + "ME"}
	check := func(path string) {
		text, err := os.ReadFile(path)
		must.OK(t, err)
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
		must.OK(t, err)
		for _, f := range files {
			check(f)
		}
	}
}

// Compiled programs are not committed; builds go to bin.
func TestKeepsNoPrograms(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must.OK(t, err)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{filepath.Join(root, ".git"), filepath.Join(root, ".cache"),
			filepath.Join(root, "bin"), filepath.Join(root, "tmp")}, path):
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
			t.Errorf("%s is a compiled program: delete it and build it to bin", path)
		}
		return nil
	})
	must.OK(t, err)
}
