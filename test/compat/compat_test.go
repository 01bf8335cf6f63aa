// Package compat_test lets a real Prometheus scrape the exporter under the names of dcgm-exporter, and asks it what
// dashboards, alerts, recording rules and autoscalers ask that were written for those names. Those in testdata are
// our own, in the style of what is in use.
package compat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// database is a running Prometheus.
type database string

// series counts the series that a query answers.
func (d database) series(query string) (int, error) {
	series, err := dashboard.Client{URL: string(d)}.Instant(context.Background(), query, time.Now())
	return len(series), err
}

// values lists the values of a label, as a variable of a dashboard asks for them.
func (d database) values(metric, label string) ([]string, error) {
	return dashboard.Client{URL: string(d)}.Values(context.Background(), label, metric, time.Time{}, time.Time{})
}

// answered waits until a query has an answer.
func (d database) answered(t *testing.T, where, query string) {
	t.Helper()
	servers.Until(t, where+": "+query, func() error {
		n, err := d.series(query)
		if err == nil && n == 0 {
			err = fmt.Errorf("no series")
		}
		return err
	})
}

// variables stand in for what Grafana puts into queries.
var variables = strings.NewReplacer("$__rate_interval", "15s", "$node", ".+", "$gpu", ".+", "$model", ".+", "$namespace", ".+", "$pod",
	".+", "$instance", ".+")

// TestConsumers has a Prometheus scrape the lively node and asks everything that is in testdata.
func TestConsumers(t *testing.T) {
	root, exporter, standin, prometheus := servers.Root(t), servers.Build(t, servers.Exporter), servers.Build(t, servers.Standin),
		servers.Build(t, servers.Prometheus)
	for _, release := range compat.Releases() {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			// The demo, and an XID early on. A scenario includes what lies beside it.
			must.OK(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "testdata", "scenarios"))))
			scenario := filepath.Join(dir, "xid.scenario")
			must.OK(t, os.WriteFile(scenario, []byte("scenario 1\ntitle \"the demo with an XID\"\ninclude demo.scenario\nat 20s gpu 0 xid "+
				"95\n"), 0o600))
			node, server := servers.Address(t), servers.Address(t)
			servers.Start(t, root, standin, "--scenario="+scenario, "--pods=testdata/kubelet/demo.pods", "--quiet",
				"--", exporter, "--web.listen-address="+node, "--node-name=demo-node", "--metrics=all", "--compat="+release,
				"--compat.set=kubernetes-virtual-gpus=true")
			others := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintln(w, `kube_pod_labels{namespace="inference",pod="chat-large-7c9d8b5f4-x2kqp",label_app="chat"} 1`)
			}))
			defer others.Close()

			testdata, err := filepath.Abs(filepath.Join("testdata", strings.TrimPrefix(release, "dcgm-")))
			must.OK(t, err)
			config := filepath.Join(dir, "prometheus.yml")
			text := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ['%[1]s/*.rules.yaml']
scrape_configs:
- {job_name: gpu, metrics_path: %[4]s, honor_labels: true, static_configs: [{targets: ['%[2]s']}]}
- {job_name: own, honor_labels: true, static_configs: [{targets: ['%[2]s']}]}
- {job_name: operator, metrics_path: %[4]s, static_configs: [{targets: ['%[2]s'], labels: {namespace: monitoring, pod: `+
				`the-exporter-abcde, container: exporter}}]}
- {job_name: kube-state-metrics, honor_labels: true, fallback_scrape_protocol: PrometheusText0.0.4, static_configs: [{targets: ['%[3]s']}]}
`, testdata, node, strings.TrimPrefix(others.URL, "http://"), compat.Release(release).Path())
			must.OK(t, os.WriteFile(config, []byte(text), 0o600))
			said := servers.Start(t, dir, prometheus, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
				"--web.listen-address="+server)
			d := database("http://" + server)
			// After the first window: from then on everything is there that will be.
			servers.Until(t, "the window is full", func() error {
				n, err := d.series(
					`count_over_time(DCGM_FI_PROF_SM_ACTIVE{gpu="0", job="gpu"}[1m]) > 25 or ` +
						`count(count_over_time(nvidia_smi_pcie_throughput_tx_bytes_per_second{job="gpu"}[1m]) > 25) or ` +
						`count_over_time(DCGM_FI_PROF_TENSOR_UTIL_RATIO{gpu="0", job="gpu"}[1m]) > 25`)
				if err == nil && n == 0 {
					err = fmt.Errorf("not yet")
				}
				return err
			})
			asked := 0
			files, err := filepath.Glob(filepath.Join(testdata, "*"))
			must.OK(t, err)
			for _, file := range files {
				content := must.Read(t, file)
				name := filepath.Base(file)
				switch {
				case strings.HasSuffix(name, ".json"):
					asked += d.dashboard(t, name, []byte(content))
				case strings.HasSuffix(name, ".rules.yaml"):
					asked += d.rules(t, name)
				default:
					asked += d.autoscaling(t, name, content)
				}
			}
			if release == string(compat.DCGM48) {
				asked += d.documents(t, root)
			}
			asked += d.public(t, root, release, node)
			if asked < 20 {
				t.Errorf("only %d queries were asked", asked)
			}
			t.Logf("%d queries", asked)
			for _, sign := range []string{"level=ERROR", "level=WARN component=\"scrape manager\"", "Error on ingesting"} {
				if strings.Contains(said.String(), sign) {
					t.Errorf("Prometheus complains:\n%s", said.String())
					break
				}
			}
		})
	}
}

// panel is what of a Grafana panel matters here; rows hold panels.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
	Panels  []panel
}

var labelValues = regexp.MustCompile(`^label_values\((.+), *([A-Za-z_]+)\)$`)

// dashboard asks the queries of a dashboard's variables and panels.
func (d database) dashboard(t *testing.T, name string, content []byte) (asked int) {
	t.Helper()
	var board struct {
		Templating struct {
			List []struct {
				Name  string
				Query json.RawMessage
			}
		}
		Panels []panel
	}
	if err := json.Unmarshal(content, &board); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, v := range board.Templating.List {
		var plain string
		var wrapped struct{ Query string }
		if json.Unmarshal(v.Query, &plain) != nil {
			if err := json.Unmarshal(v.Query, &wrapped); err != nil {
				t.Fatalf("%s, variable %s: %v", name, v.Name, err)
			}
			plain = wrapped.Query
		}
		m := labelValues.FindStringSubmatch(plain)
		if m == nil {
			t.Fatalf("%s, variable %s: %q is no label_values", name, v.Name, plain)
		}
		asked++
		if got, err := d.values(variables.Replace(m[1]), m[2]); err != nil || len(got) == 0 {
			t.Errorf("%s, variable %s has no values: %v", name, v.Name, err)
		}
	}
	var ask func([]panel)
	ask = func(panels []panel) {
		for _, p := range panels {
			for _, q := range p.Targets {
				asked++
				d.answered(t, name+", "+p.Title, variables.Replace(q.Expr))
			}
			ask(p.Panels)
		}
	}
	ask(board.Panels)
	return asked
}

// rules asks what became of the rules that Prometheus loaded: records have series, alerts evaluate and stand as their
// label expect says, and what they select is there, whether they fire or not.
func (d database) rules(t *testing.T, name string) (asked int) {
	t.Helper()
	body, err := servers.Fetch(string(d) + "/api/v1/rules")
	must.OK(t, err)
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name, Query, Health, LastError, Type string
					Labels                               map[string]string
				}
			}
		}
	}
	must.OK(t, json.Unmarshal([]byte(body), &answer))
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			asked++
			if r.Health != "ok" {
				t.Errorf("%s, %s: %s %s", name, r.Name, r.Health, r.LastError)
			}
			if r.Type == "recording" {
				d.answered(t, name, r.Name)
				continue
			}
			if state := r.Labels["expect"]; state != "" {
				d.answered(t, name, fmt.Sprintf(`ALERTS{alertname=%q, alertstate=%q}`, r.Name, state))
			} else if n, err := d.series(fmt.Sprintf(`ALERTS{alertname=%q}`, r.Name)); err != nil || n > 0 {
				t.Errorf("%s: %s has %d alerts on a node that is well (%v)", name, r.Name, n, err)
			}
			for _, selector := range selectors(t, r.Query) {
				d.answered(t, name+", "+r.Name, selector)
			}
		}
	}
	return asked
}

// selectors lists the vector selectors of a query.
func selectors(t *testing.T, query string) []string {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	var out []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			out = append(out, v.String())
		}
		return nil
	})
	return out
}

var (
	kedaQuery    = regexp.MustCompile(`(?m)^ *query: (.+)$`)
	adapterQuery = regexp.MustCompile(`(?m)^ *- seriesQuery: '(.+)'\n *metricsQuery: (.+)$`)
)

// autoscaling asks the queries of autoscalers: KEDA's as they stand, an adapter's for the pods of one deployment.
func (d database) autoscaling(t *testing.T, name, content string) (asked int) {
	t.Helper()
	for _, m := range kedaQuery.FindAllStringSubmatch(content, -1) {
		asked++
		d.answered(t, name, m[1])
	}
	for _, m := range adapterQuery.FindAllStringSubmatch(content, -1) {
		asked += 2
		d.answered(t, name, m[1])
		series, _, _ := strings.Cut(m[1], "{")
		d.answered(t, name, strings.NewReplacer("<<.Series>>", series, "<<.LabelMatchers>>", `namespace="notebooks",pod=~"jupyter-.+"`,
			"<<.GroupBy>>", "pod").Replace(m[2]))
	}
	if asked < 4 {
		t.Errorf("%s has %d queries", name, asked)
	}
	return asked
}

// quiet are queries of the documents that this node answers with nothing, and why.
var quiet = map[string]string{
	`time() - gpu_container_last_busy_timestamp_seconds > 1800`: "nothing was idle for half an hour yet",
}

// documents asks the queries of the generated table and of the guides, of both columns: one that is translated must
// have an answer where the other has one.
func (d database) documents(t *testing.T, root string) (asked int) {
	t.Helper()
	span := regexp.MustCompile("`([^`]+)`")
	for _, file := range []string{"dcgm-exporter.md", "nvidia-gpu-exporter.md"} {
		text := must.Read(t, filepath.Join(root, "docs", file))
		guide, _, _ := strings.Cut(text, "\n<!-- names: ")
		for i, line := range strings.Split(text, "\n") {
			table := i > strings.Count(guide, "\n")
			if item, ok := strings.CutPrefix(line, "- `DCGM_"); ok { // a family that is equal
				name, query, _ := strings.Cut(item, ": ")
				line = "| `DCGM_" + name + " | | " + query + " | |"
			}
			if !strings.HasPrefix(line, "| ") {
				continue
			}
			cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
			var there, here []string
			switch {
			case table && len(cells) >= 5 && strings.HasPrefix(cells[1], " `DCGM_"):
				there, here = span.FindStringSubmatch(cells[1])[1:], spans(span, cells[3])
				if strings.Contains(cells[1], "(MIG)") { // with the query of instances
					here = append(here, strings.ReplaceAll(here[0], "gpu_", "gpu_mig_"))
				}
			case !table && len(cells) == 5 && strings.Contains(cells[3], "gpu_"):
				there, here = spans(span, cells[2]), spans(span, cells[3])
			case !table && file == "nvidia-gpu-exporter.md" && len(cells) == 4 && strings.Contains(cells[2], "gpu_"):
				here = spans(span, cells[2])
			}
			answers := there == nil
			for _, q := range there {
				if strings.Contains(q, "_*") {
					continue // a group of families
				}
				n, err := d.series(q)
				if err != nil {
					t.Errorf("%s: %s: %v", file, q, err)
				}
				answers = answers || n > 0
			}
			for _, q := range here {
				if !strings.Contains(q, "gpu_") || strings.Contains(q, "_*") || strings.HasPrefix(q, "*") {
					continue
				}
				asked++
				_, excused := quiet[q]
				n, err := d.series(q)
				switch {
				case err != nil:
					t.Errorf("%s: %s: %v", file, q, err)
				case n == 0 && answers && !excused && !notOnThisBoard(q):
					t.Errorf("%s: %s has no answer", file, q)
				}
			}
		}
	}
	if asked < 135 {
		t.Errorf("the documents have %d queries", asked)
	}
	return asked
}

// notOnThisBoard tells queries of what an H100 module does not have, or what nobody had yet.
func notOnThisBoard(q string) bool {
	for _, name := range []string{"gpu_fan_speed_ratio", "gpu_exporter_call_errors_total", `action!="none"} == 1`,
		`state="completed"} == 0`, `state!="healthy"} == 1`} {
		if strings.Contains(q, name) {
			return true
		}
	}
	return false
}

// spans lists the code spans of a cell.
func spans(span *regexp.Regexp, cell string) []string {
	var out []string
	for _, m := range span.FindAllStringSubmatch(cell, -1) {
		out = append(out, strings.ReplaceAll(m[1], "\x00", "|"))
	}
	return out
}
