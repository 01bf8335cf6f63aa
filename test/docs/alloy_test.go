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

	"github.com/gpu-exporter/gpu-exporter/internal/must"
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
	relabel    alloyRelabel
	scrape     alloyScrape
	write      alloyRemoteWrite
	rules      []*prometheus.Config
}

// alloy reads a configuration as Alloy does: it parses the text and evaluates the components, which refer to what the
// others export.
func alloy(text string, target map[string]string) (out alloyed, err error) {
	file, err := parser.ParseFile("config.alloy", []byte(text))
	if err != nil {
		return out, err
	}
	components := map[string]struct {
		into    any
		exports map[string]any
	}{
		"discovery.kubernetes":    {&out.kubernetes, map[string]any{"targets": []map[string]string{target}}},
		"discovery.relabel":       {&out.relabel, map[string]any{"output": []map[string]string{target}}},
		"prometheus.scrape":       {&out.scrape, nil},
		"prometheus.remote_write": {&out.write, map[string]any{"receiver": alloyReceiver{"main"}}},
	}
	scope := map[string]any{}
	for _, evaluate := range []bool{false, true} {
		for _, s := range file.Body {
			b, ok := s.(*ast.BlockStmt)
			if !ok || b.Label == "" {
				return out, fmt.Errorf("%T is no component with a label", s)
			}
			name := strings.Join(b.Name, ".")
			c, ok := components[name]
			if !ok {
				return out, fmt.Errorf("no component %s is known here", name)
			}
			if evaluate {
				if err := vm.New(b.Body).Evaluate(&vm.Scope{Variables: scope}, c.into); err != nil {
					return out, err
				}
			} else if kind, _ := scope[b.Name[0]].(map[string]any); kind == nil {
				scope[b.Name[0]] = map[string]any{b.Name[1]: map[string]any{b.Label: c.exports}}
			} else {
				kind[b.Name[1]] = map[string]any{b.Label: c.exports}
			}
		}
	}
	for _, r := range out.relabel.Rules {
		rule, err := r.prometheus()
		if err != nil {
			return out, err
		}
		out.rules = append(out.rules, rule)
	}
	return out, nil
}

// Alloy's own parser and decoder read the example, its formatter would leave it as it is, and it scrapes what the chart has scraped.
func TestScrapeConfigOfAlloy(t *testing.T) {
	text := fileText(t, "deploy", "scrape", "config.alloy")
	got, err := alloy(text, ofPod)
	must.OK(t, err)
	if k := got.kubernetes; k.Role != "pod" || len(k.Namespaces.Names) != 1 || len(k.Selectors) != 1 ||
		k.Selectors[0].Label != "app.kubernetes.io/name=gpu-exporter" || k.Selectors[0].Role != "pod" {
		t.Errorf("it looks for %+v", k)
	}
	if s := got.scrape; !s.HonorLabels || s.JobName != "gpu-exporter" || s.ScrapeInterval != 30*time.Second || len(s.ForwardTo) != 1 ||
		s.ForwardTo[0].of != "main" || len(got.write.Endpoints) != 1 {
		t.Errorf("it scrapes %+v and writes to %v", s, got.write)
	}
	if len(got.scrape.Targets) != 1 || len(got.relabel.Targets) != 1 {
		t.Fatalf("it scrapes %v of one target", got.scrape.Targets)
	}
	target, _ := relabelled(ofPod, got.rules)
	isTarget(t, "config.alloy", target)
	keepsOthersOut(t, "config.alloy", got.rules)

	file, err := parser.ParseFile("config.alloy", []byte(text))
	must.OK(t, err)
	var formatted bytes.Buffer
	must.OK(t, printer.Fprint(&formatted, file))
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
