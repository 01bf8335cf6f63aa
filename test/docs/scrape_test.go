package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// relabel is one step in Prometheus' words.
type relabel struct {
	Source      []string `json:"source_labels"`
	Regex       string   `json:"regex"`
	Target      string   `json:"target_label"`
	Replacement string   `json:"replacement"`
	Action      string   `json:"action"`
}

type job struct {
	Name        string    `json:"job_name"`
	HonorLabels bool      `json:"honor_labels"`
	Relabel     []relabel `json:"relabel_configs"`
}

type scrape struct {
	Jobs []job `json:"scrape_configs"`
}

// ofChart are the labels that the chart's monitors drop from the target.
func ofChart(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`action: labeldrop\n +regex: (\S+)`).FindStringSubmatch(fileText(t, "deploy", "helm", "gpu-exporter", "templates", "monitor.yaml"))
	if m == nil {
		t.Fatal("the chart's monitor drops no labels")
	}
	return m[1]
}

// The examples relabel as the chart does.
func TestScrapeConfigs(t *testing.T) {
	drop := ofChart(t)
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
	if err := yaml.UnmarshalStrict([]byte(fileText(t, "deploy", "scrape", "otel-collector.yaml")), &otel); err != nil {
		t.Fatal(err)
	}
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
	inCollector, err := yaml.Marshal(otel.Receivers["prometheus/gpu"].Config)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"prometheus-static.yml":     fileText(t, "deploy", "scrape", "prometheus-static.yml"),
		"prometheus-kubernetes.yml": fileText(t, "deploy", "scrape", "prometheus-kubernetes.yml"),
		"vmagent.yml":               fileText(t, "deploy", "scrape", "vmagent.yml"),
		"otel-collector.yaml":       string(inCollector),
	}
	check := promtool(t)
	for name, text := range texts {
		var c scrape
		if err := yaml.Unmarshal([]byte(text), &c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(c.Jobs) != 1 || c.Jobs[0].Name != "gpu-exporter" || !c.Jobs[0].HonorLabels {
			t.Errorf("%s: %+v", name, c.Jobs)
			continue
		}
		targets := map[string]bool{}
		dropped := ""
		for _, r := range c.Jobs[0].Relabel {
			targets[r.Target] = true
			if r.Action == "labeldrop" {
				dropped = r.Regex
			}
		}
		if name != "prometheus-static.yml" && (dropped != drop || !targets["node"] || !targets["job"]) || !targets["instance"] {
			t.Errorf("%s drops %q and writes %v; the chart drops %q", name, dropped, targets, drop)
		}
		if name == "vmagent.yml" {
			continue // it has words of its own
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := run(t, root(t), check, "check", "config", path); err != nil {
			t.Errorf("promtool of %s: %s", name, out)
		}
	}

	// Alloy's own language has no checker that could be built here in reasonable time: its words are compared.
	alloy := fileText(t, "deploy", "scrape", "config.alloy")
	for _, want := range []string{`regex  = "` + drop + `"`, `action = "labeldrop"`, "honor_labels = true", `target_label  = "instance"`, `target_label  = "node"`, `job_name        = "gpu-exporter"`} {
		if !strings.Contains(alloy, want) {
			t.Errorf("config.alloy has no %s", want)
		}
	}
	if strings.Count(alloy, "{") != strings.Count(alloy, "}") {
		t.Error("config.alloy has braces that do not match")
	}
}

// VictoriaMetrics reads the agent's example, and refuses it with a word that it does not know.
func TestScrapeConfigOfVictoriaMetrics(t *testing.T) {
	server := built(t, "tools/victoriametrics", "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics", "victoria-metrics")
	good := fileText(t, "deploy", "scrape", "vmagent.yml")
	for _, c := range []struct {
		text string
		ok   bool
	}{{good, true}, {strings.Replace(good, "honor_labels", "honour_labels", 1), false}} {
		path := filepath.Join(t.TempDir(), "vmagent.yml")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := run(t, root(t), server, "-dryRun", "-promscrape.config="+path); (err == nil) != c.ok {
			t.Errorf("good: %v, read: %v\n%s", c.ok, err, tail(out))
		}
	}
}
