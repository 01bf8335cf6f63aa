package docs_test

import (
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	prometheus "github.com/prometheus/prometheus/model/relabel"
	v2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

type job struct {
	Name        string               `yaml:"job_name"`
	HonorLabels bool                 `yaml:"honor_labels"`
	Relabel     []*prometheus.Config `yaml:"relabel_configs"`
	Rest        map[string]any       `yaml:",inline"`
}

type scrape struct {
	Jobs []job `yaml:"scrape_configs"`
}

// ofPod has the labels that discovery sets for the exporter's pod, and the others of a target before relabeling.
var ofPod = map[string]string{
	"__address__": "10.0.0.7:10835", "__meta_kubernetes_namespace": "monitoring", "__meta_kubernetes_pod_name": "gpu-exporter-x7x2z",
	"__meta_kubernetes_pod_node_name":      "gpu-node-1",
	"__meta_kubernetes_pod_container_name": "gpu-exporter", "__meta_kubernetes_pod_container_port_name": "metrics",
	"__meta_kubernetes_pod_phase": "Running",
	"namespace":                   "monitoring", "pod": "gpu-exporter-x7x2z", "container": "gpu-exporter", "endpoint": "metrics",
	"service": "gpu-exporter",
}

// relabelled applies rules to a target; false: they drop it.
func relabelled(target map[string]string, rules []*prometheus.Config) (map[string]string, bool) {
	b := labels.NewBuilder(labels.FromMap(target))
	ok := prometheus.ProcessBuilder(b, rules...)
	return b.Labels().Map(), ok
}

// isTarget checks that a target has the labels that the chart's monitors set: its node's name, nothing of the exporter's own pod.
func isTarget(t *testing.T, name string, got map[string]string) {
	t.Helper()
	want := map[string]string{"instance": "gpu-node-1", "node": "gpu-node-1", "job": "gpu-exporter"}
	for l, v := range got {
		if !strings.HasPrefix(l, "__") && want[l] != v {
			t.Errorf("%s: the target has %s=%q", name, l, v)
		}
	}
	for l, v := range want {
		if got[l] != v {
			t.Errorf("%s: the target lacks %s=%q", name, l, v)
		}
	}
}

// keepsOthersOut looks whether rules leave alone what is no page of a running exporter.
func keepsOthersOut(t *testing.T, name string, rules []*prometheus.Config) {
	t.Helper()
	for label, value := range map[string]string{"__meta_kubernetes_pod_container_port_name": "debug",
		"__meta_kubernetes_pod_phase": "Succeeded"} {
		other := maps.Clone(ofPod)
		other[label] = value
		if _, ok := relabelled(other, rules); ok {
			t.Errorf("%s scrapes a pod with %s=%s", name, label, value)
		}
	}
}

// The examples result in the same targets as the chart's monitors, which a test of the chart checks.
func TestScrapeConfigs(t *testing.T) {
	var otel struct {
		Receivers map[string]struct {
			Config map[string]any `json:"config"`
		} `json:"receivers"`
		Service struct {
			Pipelines map[string]struct {
				Receivers  []string `json:"receivers"`
				Processors []string `json:"processors"`
				Exporters  []string `json:"exporters"`
			} `json:"pipelines"`
		} `json:"service"`
		Processors map[string]any `json:"processors"`
		Exporters  map[string]any `json:"exporters"`
	}
	must.OK(t, yaml.UnmarshalStrict([]byte(fileText(t, "deploy", "scrape", "otel-collector.yaml")), &otel))
	for name, p := range otel.Service.Pipelines {
		for _, r := range p.Receivers {
			if _, ok := otel.Receivers[r]; !ok {
				t.Errorf("pipeline %s: no receiver %s", name, r)
			}
		}
		for _, r := range p.Processors {
			if _, ok := otel.Processors[r]; !ok {
				t.Errorf("pipeline %s: no processor %s", name, r)
			}
		}
		for _, e := range p.Exporters {
			if _, ok := otel.Exporters[e]; !ok {
				t.Errorf("pipeline %s: no exporter %s", name, e)
			}
		}
	}
	// The keys that the collector documents; look up a new one before adding it.
	var parts struct {
		Receivers  map[string]struct{ Config map[string]any }
		Processors struct {
			MemoryLimiter struct {
				CheckInterval string `json:"check_interval"`
				LimitMiB      int    `json:"limit_mib"`
			} `json:"memory_limiter"`
			Batch struct{}
		}
		Exporters struct{ OTLPHTTP struct{ Endpoint string } }
		Service   any
	}
	if err := yaml.UnmarshalStrict([]byte(fileText(t, "deploy", "scrape", "otel-collector.yaml")), &parts); err != nil {
		t.Error(err)
	}
	if every, err := time.ParseDuration(parts.Processors.MemoryLimiter.CheckInterval); err != nil || every <= 0 ||
		parts.Processors.MemoryLimiter.LimitMiB <= 0 {
		t.Errorf("the memory limiter is told %+v", parts.Processors.MemoryLimiter)
	}
	if u, err := url.Parse(parts.Exporters.OTLPHTTP.Endpoint); err != nil || u.Scheme == "" || u.Host == "" {
		t.Errorf("the exporter sends to %q: %v", parts.Exporters.OTLPHTTP.Endpoint, err)
	}
	if strings.Contains(fileText(t, "deploy", "scrape", "otel-collector.yaml"), "$") {
		t.Error("the collector takes a dollar for a variable: write $$")
	}
	inCollector, err := yaml.Marshal(otel.Receivers["prometheus/gpu"].Config)
	must.OK(t, err)
	texts := map[string]string{
		"prometheus-static.yml":     fileText(t, "deploy", "scrape", "prometheus-static.yml"),
		"prometheus-kubernetes.yml": fileText(t, "deploy", "scrape", "prometheus-kubernetes.yml"),
		"vmagent.yml":               fileText(t, "deploy", "scrape", "vmagent.yml"),
		"otel-collector.yaml":       string(inCollector),
	}
	check := promtool(t)
	for name, text := range texts {
		var c scrape
		if err := v2.Unmarshal([]byte(text), &c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(c.Jobs) != 1 || c.Jobs[0].Name != "gpu-exporter" || !c.Jobs[0].HonorLabels {
			t.Errorf("%s: %+v", name, c.Jobs)
			continue
		}
		rules := c.Jobs[0].Relabel
		for _, r := range rules {
			r.NameValidationScheme = model.UTF8Validation
			if err := r.Validate(model.UTF8Validation); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if name == "prometheus-static.yml" {
			if got, ok := relabelled(map[string]string{"__address__": "gpu-node-1:10835", "job": "gpu-exporter"}, rules); !ok ||
				got["instance"] != "gpu-node-1" {
				t.Errorf("%s: the target has %v", name, got)
			}
		} else {
			got, ok := relabelled(ofPod, rules)
			if !ok {
				t.Fatalf("%s drops the exporter", name)
			}
			isTarget(t, name, got)
			keepsOthersOut(t, name, rules)
		}
		if name == "vmagent.yml" {
			continue // it has its own keys
		}
		path := filepath.Join(t.TempDir(), name)
		must.OK(t, os.WriteFile(path, []byte(text), 0o644))
		if out, err := run(t, root(t), check, "check", "config", path); err != nil {
			t.Errorf("promtool of %s: %s", name, out)
		}
	}
}

// VictoriaMetrics' agent takes its example by the command that stands in it, and refuses a word that it does not know.
func TestScrapeConfigOfVictoriaMetrics(t *testing.T) {
	agent := servers.Build(t, "vmagent")
	good := fileText(t, "deploy", "scrape", "vmagent.yml")
	_, rest, ok := strings.Cut(good, "#   vmagent ")
	command, _, ok2 := strings.Cut(rest, "\n")
	if !ok || !ok2 {
		t.Fatal("vmagent.yml does not say how the agent is started")
	}
	for _, c := range []struct {
		text string
		ok   bool
	}{{good, true}, {strings.Replace(good, "honor_labels", "honor_label", 1), false},
		{strings.Replace(good, "labeldrop", "labeldorp", 1), false}} {
		dir := t.TempDir()
		must.OK(t, os.WriteFile(filepath.Join(dir, "vmagent.yml"), []byte(c.text), 0o644))
		// A job that it cannot use it leaves out, says so, and ends well.
		out, err := run(t, dir, agent, append(strings.Fields(command), "-dryRun")...)
		if taken := err == nil && !strings.Contains(out, "\terror\t"); taken != c.ok {
			t.Errorf("good: %v, taken: %v, %v\n%s", c.ok, taken, err, tail(out))
		}
	}
}
