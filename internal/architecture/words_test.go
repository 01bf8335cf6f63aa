package architecture_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// words are terms of our own that once stood for those of NVIDIA, Kubernetes and Prometheus, with the term to use. They
// must not appear as words of identifiers, or in strings that are sentences.
var words = map[string]string{
	"card": "GPU, device", "cards": "GPUs, devices",
	"held": "allocated", "holder": "the container that the GPU is allocated to", "holders": "containers",
	"holding": "allocation", "holdings": "allocations", "tenant": "container", "tenants": "containers",
	"sharer": "container", "sharers": "containers",
	"lane": "poll group", "lanes": "poll groups",
	"underused": "gap (underused is an adjective for low utilization)",
	"testimony": "data source", "stake": "share", "sieve": "filter", "lens": "ID parser", "haul": "batch",
	"crew": "process group", "muster": "listing", "looker": "visibility scanner", "spool": "buffer",
	"knob": "parameter", "knobs": "parameters", "folder": "directory", "folders": "directories",
	"rig": "test bench", "deck": "set", "fate": "result",
	"colour": "color", "colours": "colors", "licence": "license", "licences": "licenses",
}

// names must not appear as words of identifiers only: in sentences they are ordinary English.
var names = map[string]string{"told": "reported", "began": "start", "ill": "err", "why": "reason"}

// phrases must not appear in sentences.
var phrases = map[string]string{
	`let go`: "shut down", `anew`: "again, re-", `put down to`: "attributed to", `nobody`: "none, no container, unknown",
	`somebody`: "an operator", `asked for`: "requested", `speaks? of`: "covers", `tells`: "reports", `is asked`: "is queried",
	`mended?`: "fix", `worth of work`: "GPU equivalents", `knows no`: "does not", `who holds`: "allocated to",
}

// allowed are uses of a word in another meaning.
var allowed = []struct {
	where  *regexp.Regexp // the identifier or sentence
	reason string
}{
	{regexp.MustCompile(`(?i)pcie|slot|(width|degraded).*lanes`), "a PCIe link has lanes"},
	{regexp.MustCompile(`^Card(ManyToOne|OneToMany|OneToOne)?$`), "Prometheus' vector matching has a cardinality"},
	{regexp.MustCompile(`Underused$|[Uu]nderused (workloads|GPUs)|is underused|^underused$`), "an adjective for low utilization"},
	{regexp.MustCompile(`tenant('s)? (--|header)`), "a tenant of Mimir, Cortex or VictoriaMetrics"},
	{regexp.MustCompile(`^(Format)?PlaceHolder$`), "methods of kingpin"},
	{regexp.MustCompile(`lane(s was|\.)`), "the old names of flags and values"},
	{regexp.MustCompile(`^Folder$`), "Grafana's term, in its API too"},
}

// identifierWords splits an identifier: podGPUCards is pod, gpu, cards.
func identifierWords(name string) []string {
	var out []string
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || unicode.IsUpper(runes[i]) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			out = append(out, strings.ToLower(strings.Trim(string(runes[start:i]), "_")))
			start = i
		}
	}
	return out
}

// sentence reports whether a string is prose, and not a query, a path or a template.
func sentence(text string) bool {
	return len(strings.Fields(text)) >= 3 && !strings.ContainsAny(text, "{}=<>|\n") && !strings.Contains(text, "(gpu_")
}

func permitted(text string) bool {
	for _, a := range allowed {
		if a.where.MatchString(text) {
			return true
		}
	}
	return false
}

func TestWords(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must.OK(t, err)
	var patterns []string
	for w := range words {
		patterns = append(patterns, w)
	}
	for p := range phrases {
		patterns = append(patterns, p)
	}
	forbidden := regexp.MustCompile(`(?i)\b(?:` + strings.Join(patterns, "|") + `)\b`)
	of := map[string][]string{} // the words of each identifier
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") ||
			slices.Contains([]string{"bin", "node_modules", "tmp"}, d.Name())) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "words_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		report := func(pos token.Pos, text, word, instead string) {
			if !permitted(text) {
				t.Errorf("%s: %q has %q: use %s", fset.Position(pos), text, word, instead)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.Ident:
				if of[n.Name] == nil {
					of[n.Name] = identifierWords(n.Name)
				}
				for _, w := range of[n.Name] {
					if instead := cmp.Or(words[w], names[w]); instead != "" {
						report(n.Pos(), n.Name, w, instead)
					}
				}
			case *ast.BasicLit:
				if n.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(n.Value)
				if err != nil || !sentence(text) {
					return true
				}
				if w := forbidden.FindString(text); w != "" {
					report(n.Pos(), text, w, "the term of the glossary")
				}
			}
			return true
		})
		return nil
	})
	must.OK(t, err)
}
