package docs_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grafana/alloy/syntax/ast"
	"github.com/grafana/alloy/syntax/parser"
	"github.com/grafana/alloy/syntax/printer"
	"github.com/grafana/alloy/syntax/vm"
	"github.com/prometheus/common/model"
	prometheus "github.com/prometheus/prometheus/model/relabel"
)

// The attributes and blocks of the example, as Alloy's reference documents them. Alloy's decoder refuses others, values
// of another type, and missing required ones: look up a new attribute before adding it.
type (
	alloyKubernetes struct {
		Role       string           `alloy:"role,attr"`
		Namespaces alloyNamespaces  `alloy:"namespaces,block,optional"`
		Selectors  []alloySelectors `alloy:"selectors,block,optional"`
	}
	alloyNamespaces struct {
		OwnNamespace bool     `alloy:"own_namespace,attr,optional"`
		Names        []string `alloy:"names,attr,optional"`
	}
	alloySelectors struct {
		Role  string `alloy:"role,attr"`
		Label string `alloy:"label,attr,optional"`
		Field string `alloy:"field,attr,optional"`
	}
	alloyRelabel struct {
		Targets []map[string]string `alloy:"targets,attr"`
		Rules   []alloyRule         `alloy:"rule,block,optional"`
	}
	alloyRule struct {
		SourceLabels []string `alloy:"source_labels,attr,optional"`
		Separator    string   `alloy:"separator,attr,optional"`
		Regex        string   `alloy:"regex,attr,optional"`
		TargetLabel  string   `alloy:"target_label,attr,optional"`
		Replacement  string   `alloy:"replacement,attr,optional"`
		Action       string   `alloy:"action,attr,optional"`
	}
	alloyScrape struct {
		Targets        []map[string]string `alloy:"targets,attr"`
		ForwardTo      []alloyReceiver     `alloy:"forward_to,attr"`
		JobName        string              `alloy:"job_name,attr,optional"`
		HonorLabels    bool                `alloy:"honor_labels,attr,optional"`
		MetricsPath    string              `alloy:"metrics_path,attr,optional"`
		ScrapeInterval time.Duration       `alloy:"scrape_interval,attr,optional"`
		ScrapeTimeout  time.Duration       `alloy:"scrape_timeout,attr,optional"`
	}
	alloyRemoteWrite struct {
		Endpoints []alloyEndpoint `alloy:"endpoint,block,optional"`
	}
	alloyEndpoint struct {
		URL string `alloy:"url,attr"`
	}
	// alloyReceiver is what prometheus.remote_write exports: a value that only other components understand.
	alloyReceiver struct{ of string }
)

// AlloyCapsule marks the receiver as opaque for the decoder.
func (alloyReceiver) AlloyCapsule() {}

// SetToDefault sets the defaults of a rule.
func (r *alloyRule) SetToDefault() {
	*r = alloyRule{Separator: ";", Regex: "(.*)", Replacement: "$1", Action: "replace"}
}

// prometheus is the rule as Prometheus applies it, as Alloy has it do.
func (r alloyRule) prometheus() (*prometheus.Config, error) {
	regex, err := prometheus.NewRegexp(r.Regex)
	if err != nil {
		return nil, err
	}
	c := &prometheus.Config{Separator: r.Separator, Regex: regex, TargetLabel: r.TargetLabel, Replacement: r.Replacement,
		NameValidationScheme: model.UTF8Validation}
	if err := c.Action.UnmarshalYAML(func(into any) error { *into.(*string) = r.Action; return nil }); err != nil {
		return nil, err
	}
	for _, l := range r.SourceLabels {
		c.SourceLabels = append(c.SourceLabels, model.LabelName(l))
	}
	return c, c.Validate(model.UTF8Validation)
}

// alloyed is what a configuration comes to.
type alloyed struct {
	kubernetes alloyKubernetes
	scrape     alloyScrape
	writesTo   []string
	rules      []*prometheus.Config
}

// alloy reads a configuration as Alloy does: it parses the text and evaluates the components, each once all that it refers to is there.
func alloy(text string, target map[string]string) (alloyed, error) {
	var out alloyed
	file, err := parser.ParseFile("config.alloy", []byte(text))
	if err != nil {
		return out, err
	}
	exports := map[string]any{}
	export := func(b *ast.BlockStmt, value map[string]any) {
		at := exports
		for _, name := range b.Name {
			if at[name] == nil {
				at[name] = map[string]any{}
			}
			at = at[name].(map[string]any)
		}
		at[b.Label] = value
	}
	evaluate := func(b *ast.BlockStmt) error {
		into := func(v any) error { return vm.New(b.Body).Evaluate(&vm.Scope{Variables: exports}, v) }
		switch name := strings.Join(b.Name, "."); name {
		case "discovery.kubernetes":
			if err := into(&out.kubernetes); err != nil {
				return err
			}
			export(b, map[string]any{"targets": []map[string]string{target}})
		case "discovery.relabel":
			var c alloyRelabel
			if err := into(&c); err != nil {
				return err
			}
			out.rules = nil
			for _, r := range c.Rules {
				rule, err := r.prometheus()
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				out.rules = append(out.rules, rule)
			}
			var kept []map[string]string
			for _, t := range c.Targets {
				if labels, ok := relabelled(t, out.rules); ok {
					kept = append(kept, labels)
				}
			}
			export(b, map[string]any{"output": kept})
		case "prometheus.scrape":
			return into(&out.scrape)
		case "prometheus.remote_write":
			var c alloyRemoteWrite
			if err := into(&c); err != nil {
				return err
			}
			for _, e := range c.Endpoints {
				out.writesTo = append(out.writesTo, e.URL)
			}
			export(b, map[string]any{"receiver": alloyReceiver{b.Label}})
		default:
			return fmt.Errorf("no component %s is known here", name)
		}
		return nil
	}
	var waiting []*ast.BlockStmt
	for _, s := range file.Body {
		b, ok := s.(*ast.BlockStmt)
		if !ok || b.Label == "" {
			return out, fmt.Errorf("%T is no component with a label", s)
		}
		waiting = append(waiting, b)
	}
	for len(waiting) > 0 {
		var later []*ast.BlockStmt
		var first error
		for _, b := range waiting {
			if err := evaluate(b); err != nil {
				later = append(later, b)
				if first == nil {
					first = err
				}
			}
		}
		if len(later) == len(waiting) {
			return out, first
		}
		waiting = later
	}
	return out, nil
}

// Alloy's own parser and decoder read the example, its formatter would leave it as it is, and it scrapes what the chart has scraped.
func TestScrapeConfigOfAlloy(t *testing.T) {
	text := fileText(t, "deploy", "scrape", "config.alloy")
	got, err := alloy(text, ofPod)
	if err != nil {
		t.Fatal(err)
	}
	if k := got.kubernetes; k.Role != "pod" || len(k.Namespaces.Names) != 1 || len(k.Selectors) != 1 ||
		k.Selectors[0].Label != "app.kubernetes.io/name=gpu-exporter" || k.Selectors[0].Role != "pod" {
		t.Errorf("it looks for %+v", k)
	}
	if s := got.scrape; !s.HonorLabels || s.JobName != "gpu-exporter" || s.ScrapeInterval != 30*time.Second || len(s.ForwardTo) != 1 ||
		s.ForwardTo[0].of != "main" || len(got.writesTo) != 1 {
		t.Errorf("it scrapes %+v and writes to %v", s, got.writesTo)
	}
	if len(got.scrape.Targets) != 1 {
		t.Fatalf("it scrapes %d targets of one", len(got.scrape.Targets))
	}
	isTarget(t, "config.alloy", got.scrape.Targets[0])
	keepsOthersOut(t, "config.alloy", got.rules)

	file, err := parser.ParseFile("config.alloy", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var formatted bytes.Buffer
	if err := printer.Fprint(&formatted, file); err != nil {
		t.Fatal(err)
	}
	formatted.WriteByte('\n')
	if formatted.String() != text {
		t.Errorf("config.alloy is not as alloy fmt writes it; it writes\n%s", formatted.String())
	}

	for _, c := range []struct{ from, to, says string }{
		{"honor_labels = true", "honor_label = true", `"honor_label"`},
		{`"labeldrop"`, `"labeldorp"`, `"labeldorp"`},
		{"prometheus.remote_write.main.receiver", "prometheus.remote_write.mian.receiver", `"mian"`},
		{`role = "pod"`, `roles = "pod"`, `"roles"`},
		{`"30s"`, `"half a minute"`, "half a minute"},
		{"discovery.relabel.gpu_exporter.output", "discovery.relabel.gpu_exporter.targets", `"targets"`},
		{"honor_labels = true", "honor_labels = ", "config.alloy:58:15: expected TERMINATOR"},
		{"prometheus.scrape ", "prometheus.scrap ", "prometheus.scrap"},
	} {
		if !strings.Contains(text, c.from) {
			t.Fatalf("config.alloy has no %s", c.from)
		}
		if _, err := alloy(strings.Replace(text, c.from, c.to, 1), ofPod); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the error is %v", c.to, err)
		}
	}
}
