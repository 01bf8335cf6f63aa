package architecture_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/architecture"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/render"
)

// pages reads every Markdown file of the repository.
func pages(t *testing.T) (root string, out []page) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must.OK(t, err)
	all, err := architecture.Pages(root)
	if err != nil || len(all) < 25 {
		t.Fatalf("%d pages of documentation: %v", len(all), err)
	}
	for _, p := range all {
		out = append(out, page{p})
	}
	return root, out
}

// page is a Markdown file with its anchors.
type page struct{ architecture.Page }

var (
	mdLink  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	inCode  = regexp.MustCompile("`([^`\n]+)`")
	notSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the anchors of a page's headings, as GitHub generates them.
func (p page) anchors() []string {
	var out []string
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(p.Prose, -1) {
		text := linked.ReplaceAllString(m[1], "$1")
		slug := strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		if n := seen[slug]; n > 0 {
			out = append(out, slug+"-"+string(rune('0'+n)))
		} else {
			out = append(out, slug)
		}
		seen[slug]++
	}
	return out
}

// Every link to a file, directory or heading of the repository resolves.
func TestLinks(t *testing.T) {
	root, all := pages(t)
	anchors := map[string][]string{}
	for _, p := range all {
		anchors[p.Path] = p.anchors()
	}
	links := 0
	for _, p := range all {
		for _, m := range mdLink.FindAllStringSubmatch(inCode.ReplaceAllString(p.Prose, ""), -1) {
			target := m[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(target, "#")
			to := p.Path
			if file != "" {
				to = filepath.Join(filepath.Dir(p.Path), file)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s, which does not exist", p.Path, target)
				continue
			}
			if anchor != "" && filepath.Ext(to) == ".md" && !slices.Contains(anchors[to], anchor) {
				t.Errorf("%s links to %s: %s has no such heading", p.Path, target, to)
			}
		}
	}
	if links < 150 {
		t.Errorf("only %d links were checked", links)
	}
}

// Every page is reachable from README.md through links.
func TestEveryPageIsLinked(t *testing.T) {
	root, all := pages(t)
	byPath := map[string]page{}
	for _, p := range all {
		byPath[p.Path] = p
	}
	seen, todo := map[string]bool{}, []string{"README.md"}
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		for _, m := range mdLink.FindAllStringSubmatch(byPath[path].Prose, -1) {
			file, _, _ := strings.Cut(m[1], "#")
			if file == "" || strings.Contains(file, "://") {
				continue
			}
			to := filepath.Join(filepath.Dir(path), file)
			if info, err := os.Stat(filepath.Join(root, to)); err == nil && info.IsDir() {
				for _, p := range all {
					if filepath.Dir(p.Path) == to {
						todo = append(todo, p.Path)
					}
				}
				continue
			}
			todo = append(todo, to)
		}
	}
	for _, p := range all {
		if !seen[p.Path] && !strings.Contains(p.Path, "testdata") {
			t.Errorf("%s is not reachable from README.md", p.Path)
		}
	}
}

var makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)

// Every make target in a page exists.
func TestMakeTargetsExist(t *testing.T) {
	root, all := pages(t)
	text := must.Read(t, filepath.Join(root, "Makefile"))
	var targets []string
	for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
		targets = append(targets, m[1])
	}
	makeCommand := regexp.MustCompile(`^make ([a-z][a-z-]*)`)
	check := func(p page, command string) {
		if m := makeCommand.FindStringSubmatch(command); m != nil && !slices.Contains(targets, m[1]) {
			t.Errorf("%s mentions make %s, which the Makefile does not have", p.Path, m[1])
		}
	}
	for _, p := range all {
		for _, m := range inCode.FindAllStringSubmatch(p.Prose, -1) {
			check(p, m[1])
		}
		for _, b := range p.Blocks {
			for line := range strings.Lines(b.Text) {
				check(p, strings.TrimSpace(line))
			}
		}
	}
}

// metricName matches metric names with our prefix, or the beginning of one.
var metricName = regexp.MustCompile(`\b(?:[a-z]+:)?gpu_[a-z0-9_]+(?::[a-z0-9_]+)?`)

// firstCell matches the first cell of a table's row.
var firstCell = regexp.MustCompile(`(?m)^\|[^|]*\|`)

// Every metric in a page is in the catalog or a recording rule. A name that ends in _ or * stands for several.
func TestMetricNamesExist(t *testing.T) {
	var known []string
	for _, f := range catalog.All() {
		known = append(known, f.Name)
	}
	for _, r := range alerts.Records() {
		known = append(known, r.Name)
	}
	for _, c := range render.Columns() {
		known = append(known, c.Name)
	}
	// Names of nvidia-smi, vLLM, KubeShare and the report.
	known = append(known, "gpu_uuid", "gpu_memory_utilization", "gpu_request", "gpu_unavailable")
	_, all := pages(t)
	found := 0
	check := func(p page, text string) {
		for _, name := range metricName.FindAllString(text, -1) {
			found++
			bare := name
			for _, ending := range []string{"_bucket", "_sum", "_count"} {
				bare = strings.TrimSuffix(bare, ending)
			}
			if slices.Contains(known, name) || slices.Contains(known, bare) {
				continue
			}
			if strings.HasSuffix(name, "_") && slices.ContainsFunc(known,
				func(k string) bool { return strings.HasPrefix(k, name) }) {
				continue
			}
			t.Errorf("%s mentions %s, which is neither exported nor recorded", p.Path, name)
		}
	}
	for _, p := range all {
		prose := p.Prose
		if p.Path == filepath.Join("docs", "nvidia-gpu-exporter.md") {
			prose = architecture.Handwritten(prose) // nvidia-smi's fields have names with our prefix
		}
		if p.Path == filepath.Join("docs", "upgrading.md") {
			prose = firstCell.ReplaceAllString(prose, "|") // what was
		}
		for _, m := range inCode.FindAllStringSubmatch(prose, -1) {
			check(p, m[1])
		}
		for _, b := range p.Blocks {
			if b.Language == "promql" || b.Language == "text" {
				check(p, b.Text)
			}
		}
	}
	if found < 500 {
		t.Errorf("only %d names were checked", found)
	}
}

// Every block of commands states whether the tests of the module test or test/cluster execute it, and if not, why.
func TestCommandsAreMarked(t *testing.T) {
	_, all := pages(t)
	mark := regexp.MustCompile(`^(run|run: exit [0-9]+|run in a cluster|not run: .{8,})$`)
	for _, p := range all {
		for _, b := range p.Blocks {
			if b.Language == "sh" && !mark.MatchString(b.Mark) {
				t.Errorf("%s:%d: a block of commands without <!-- run --> or <!-- not run: reason --> above it", p.Path, b.Line)
			}
			if b.Language == "" && strings.HasSuffix(p.Path, "install.md") {
				t.Errorf("%s:%d: a block without language", p.Path, b.Line)
			}
		}
	}
}

// docs/developer/ARCHITECTURE.md lists every package of the plan.
func TestArchitectureListsEveryPackage(t *testing.T) {
	root, _ := pages(t)
	text := must.Read(t, filepath.Join(root, "docs", "developer", "ARCHITECTURE.md"))
	for _, r := range plan {
		if !strings.Contains(text, "`"+r.path+"`") {
			t.Errorf("docs/developer/ARCHITECTURE.md does not list %s", r.path)
		}
	}
}

// Prose is wrapped, so that a diff shows what changed. Tables, links and generated pages cannot be.
func TestProseIsWrapped(t *testing.T) {
	_, all := pages(t)
	for _, p := range all {
		if strings.HasPrefix(p.Path, "report") || strings.Contains(p.Path, "performance") || p.Path == "CHANGELOG.md" {
			continue
		}
		for line := range strings.Lines(architecture.Handwritten(p.Prose)) {
			line = strings.TrimRight(line, "\n")
			if utf8.RuneCountInString(line) > 120 && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "![") &&
				!strings.Contains(line, "](http") {
				t.Errorf("%s: %d characters, more than 120: %s", p.Path, utf8.RuneCountInString(line), line)
			}
		}
	}
}

// A test that a page names exists.
func TestNamedTestsExist(t *testing.T) {
	root, all := pages(t)
	var code strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	must.OK(t, err)
	found := 0
	for _, p := range all {
		for _, name := range regexp.MustCompile(`\bTest[A-Z][A-Za-z]+`).FindAllString(p.Prose, -1) {
			if found++; !strings.Contains(code.String(), "func "+name+"(") {
				t.Errorf("%s names %s, which is not a test", p.Path, name)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d names of tests were found", found)
	}
}
