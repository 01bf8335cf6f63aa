package rules_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
)

// A story is what an exporter and its neighbors expose beside the series of the case that fires the alert.
type story struct {
	// from is the name of the case; empty is the first that fires.
	from, beside string
}

func stories() map[string]story {
	reason := func(state, reason string) string {
		return `gpu_health_reason_info{$A,state="` + state + `",reason="` + reason + `"} 1x500` + "\n"
	}
	const (
		xid    = `gpu_xid_last_timestamp_seconds{$A,xid="`
		ready  = `kube_node_status_condition{node="n1",condition="Ready",status="true"} 1x500`
		memory = `gpu_container_memory_used_bytes{$A,$P,container="c"} 4e9x500` + "\n"
	)
	return map[string]story{
		"GPUUnavailable": {"", reason("lost", "lost") + `gpu_xid_events_total{$A,xid="79"} 1x500`},
		"GPUMissing":     {"seven of eight since a reboot", `gpu_node_devices{node="n1",state="up"} 7x500`},
		"GPURepairRequired": {"", `gpu_recovery_action{$A,action="none"} 0x500` + "\n" +
			`gpu_recovery_action{$A,action="reset"} 1x500`},
		"GPUXIDFatal":               {"a driver with recommendations", xid + `62"} 600x500`},
		"GPUXIDWarning":             {"a second one", xid + `145"} 600x500`},
		"GPUXIDApplication":         {"seen by the exporter before", `gpu_xid_last_event_info{$A,xid="31",gi="",$P,container="c"} 1x500`},
		"GPUPCIeDegraded":           {"half the width that it had", ""},
		"GPUNVLinkDown":             {"", reason("degraded", "nvlink_down")},
		"GPUNVLinkErrors":           {"", `gpu_nvlink_link_errors_total{$A,link="3",kind="replay"} 0x10 2+2x40 82x60`},
		"GPUTemperatureHigh":        {"", `gpu_clock_limited_seconds_total{$A,reason="sw_thermal"} 0+1x500`},
		"GPUAllocatedIdle":          {"", `gpu_container_last_busy_timestamp_seconds{$A,$P,container="c"} 0x500` + "\n" + memory},
		"GPUNamespaceIdle":          {"", `workload:gpu_unused_seconds:rate5m{$W,model="a",state="idle"} 8x500`},
		"GPUAllocatedPodNotRunning": {"", `kube_pod_container_status_waiting_reason{$P,container="c",reason="ImagePullBackOff"} 1x500`},
		"GPUJobHung":                {"a fall of power before Hopper", `gpu:gpu_activity:ratio5m{node="n1",uuid="GPU-A"} 0.2x500`},
		"GPUWorkloadStraggler": {"", `gpu_container_allocation_ratio{$A,$P,$WHOLE} 1x500
			pod:gpu_workload:info{node="n1",$P,workload_type="Job",workload="w"} 1x500
			gpu:gpu_activity:ratio5m{node="n1",uuid="GPU-A"} 0.2x500`},
		"GPUContainerUsesMoreThanRequested": {"", memory +
			`gpu_container_allocation_ratio{$A,$P,container="c",resource="nvidia_com_gpu",mig_uuid=""} 0.25x500`},
		"GPUMemoryUsedUnallocated": {"", `gpu_unattributed_memory_used_bytes{$A,reason="host"} 70e9x500`},
		"GPUUsedWithoutAllocation": {"", memory},
		"GPUCapacityExhausted": {"", `namespace:gpu_requests_pending:sum{namespace="team",resource="nvidia_com_gpu"} 1x500
			namespace:gpu_unused_seconds:rate5m{namespace="notebooks",model="a",state="idle"} 3x500`},
		"GPUExporterMissingOnNode": {"", ready + "\n" + `kube_node_status_capacity{node="n1",resource="nvidia_com_gpu"} 8x500`},
		"GPUExporterDown":          {"a pod that does not start", ready},
		"GPUExporterAbsent":        {"the job has another name", ""},
		"GPUDriverDown":            {"unloaded", ""},
		"GPUExporterNVMLErrors":    {"every round", ""},
		"GPUAllocationUnknown":     {"an unknown scheme", ""},
		"GPUExporterPaused":        {"", `gpu_mig_mode_pending{$A} 1x500`},
		"GPURecordsAbsent":         {"", `prometheus_rule_evaluation_failures_total{rule_group="r.yaml;gpu-exporter-self"} 0+1x500`},
	}
}

// page is what an exporter of two nodes with eight healthy H100 and eighty containers exposes: GPU A and B are the first of n1.
func page(t *testing.T) map[string]float64 {
	t.Helper()
	text := must.Read(t, filepath.Join("..", "..", "testdata", "golden", "8xh100-shared.prom"))
	const gpu = "GPU-5a0e110%[1]d-8c1d-4e6b-9d10-00000000000%[1]d"
	n1 := strings.NewReplacer(`node="node-1"`, `node="n1"`, fmt.Sprintf(gpu, 0), "GPU-A", fmt.Sprintf(gpu, 1), "GPU-B")
	n2 := strings.NewReplacer(`node="node-1"`, `node="n2"`, `uuid="`, `uuid="n2-`, `namespace="`, `namespace="other-`)
	out := map[string]float64{}
	for _, m := range exposed.FindAllStringSubmatch(text, -1) {
		var v float64
		if _, err := fmt.Sscan(m[2], &v); err != nil {
			t.Fatal(err)
		}
		out[n1.Replace(m[1])], out[n2.Replace(m[1])] = v, v
	}
	return out
}

// Every query of every runbook and of the page about resets is run while its alert fires, beside healthy GPUs: it returns
// the faulty object and little else.
func TestRunbookQueries(t *testing.T) {
	all, story, healthy := cases(t), stories(), page(t)
	var count, seen atomic.Int64
	rulesOf := bare(t, everything())
	records, err := everything().RecordingRules()
	must.OK(t, err)
	for _, a := range alerts.Alerts() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			asked := runbook(t, a.Name)
			for _, q := range a.Queries() {
				asked = append(asked, q.With(strings.ToUpper))
			}
			if len(a.Queries()) == 0 {
				t.Fatal("the runbook has no query")
			}
			for _, q := range asked {
				read(t, q, q)
			}
			s := story[a.Name]
			at := slices.IndexFunc(all[a.Name], func(c testCase) bool {
				return c.name == s.from || s.from == "" && slices.ContainsFunc(c.moments(), func(m moment) bool { return len(m.want) > 0 })
			})
			if at < 0 {
				t.Fatalf("there is no case %q that fires it", s.from)
			}
			c := all[a.Name][at]
			c.series += "\n" + s.beside
			server, end, firing := tell(t, c, rulesOf[a.Name], records, strings.Join(asked, "\n"), healthy)
			for _, q := range asked {
				if ask(t, server, end, q, firing) {
					seen.Add(1)
				}
				count.Add(1)
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("%d queries; %d return more without the labels of the alert", count.Load(), seen.Load())
		if seen.Load() < 45 {
			t.Error("what is beside the faulty objects is not seen by enough queries")
		}
	})
}

// identity is the hash of a GPU of a family, of which gpu_info has one series whatever its other labels are.
func identity(l labels.Labels) uint64 {
	return labels.FromStrings(model.MetricNameLabel, l.Get(model.MetricNameLabel), "node", l.Get("node"), "uuid", l.Get("uuid")).Hash()
}

// tell plays a case among healthy GPUs until its alert fires, and returns the labels of the first alert.
func tell(t *testing.T, c testCase, rule alerts.Rule, records []alerts.RuleGroup, asked string, healthy map[string]float64) (
	*replay.Server, time.Time, labels.Labels,
) {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	type series struct {
		labels labels.Labels
		values []parser.SequenceValue
	}
	var fed []series
	given, known := map[string]bool{}, map[uint64]bool{}
	for _, in := range c.inputs("") {
		l, v, err := p.ParseSeriesDesc(in[0] + " " + in[1])
		must.OK(t, err)
		fed = append(fed, series{l, v})
		given[l.Get(model.MetricNameLabel)], known[l.Hash()], known[identity(l)] = true, true, true
	}
	groups := needed(records, rule.Expr+asked, given)
	text := rule.Expr + asked + alerts.RulesFile(groups)
	server := replay.WithRules(t, append(groups, alerts.RuleGroup{Name: "g", Rules: []alerts.Rule{rule}}))
	reads := map[string]bool{}
	for _, name := range regexp.MustCompile(`[a-zA-Z0-9_:]+`).FindAllString(text, -1) {
		reads[name] = true
	}
	var around []labels.Labels
	var values []float64
	for name, v := range healthy {
		metric, _, _ := strings.Cut(name, "{")
		if !reads[metric] {
			continue
		}
		l, err := p.ParseMetric(name)
		must.OK(t, err)
		if !known[l.Hash()] && (metric != "gpu_info" || !known[identity(l)]) {
			around, values = append(around, l), append(values, v)
		}
	}
	var want moment
	for _, m := range slices.Backward(c.moments()) {
		if len(m.want) > 0 {
			want = m
		}
	}
	after, err := time.ParseDuration(want.at)
	must.OK(t, err)
	step, begin := max(c.step, 0), time.Unix(0, 0)
	if step == 0 {
		step = time.Minute
	}
	end := begin.Add(after)
	var alert *rules.AlertingRule
	for i := 0; !begin.Add(time.Duration(i) * step).After(end); i++ {
		at := begin.Add(time.Duration(i) * step)
		app := server.DB.Appender(t.Context())
		put := func(l labels.Labels, v float64) {
			if _, err := app.Append(0, l, at.UnixMilli(), v); err != nil {
				t.Fatalf("%s: %v", l, err)
			}
		}
		for _, f := range fed {
			if i < len(f.values) && !f.values[i].Omitted {
				put(f.labels, f.values[i].Value)
			}
		}
		for n, l := range around {
			if end.Sub(at) <= max(time.Hour, 2*step) {
				put(l, values[n])
			}
		}
		must.OK(t, app.Commit())
		for _, g := range server.Groups {
			g.Eval(t.Context(), at)
			for _, r := range g.Rules() {
				if r.LastError() != nil {
					t.Fatalf("%s: %v", r.Name(), r.LastError())
				}
				if is, ok := r.(*rules.AlertingRule); ok {
					alert = is
				}
			}
		}
	}
	var firing []labels.Labels
	for _, active := range alert.ActiveAlerts() {
		if active.State == rules.StateFiring {
			firing = append(firing, active.Labels)
		}
	}
	if len(firing) != len(want.want) {
		t.Fatalf("beside healthy GPUs %d alerts fire, and %d alone: %v", len(firing), len(want.want), firing)
	}
	return server, end, firing[0]
}

var capitals = regexp.MustCompile(`"([A-Z_]+)"`)

// ask runs a query with the labels of the alert, looks at what it returns, and tells whether it returns more without those
// labels.
func ask(t *testing.T, server *replay.Server, at time.Time, query string, alert labels.Labels) bool {
	t.Helper()
	all, err := server.Query(t.Context(), capitals.ReplaceAllString(query, `~".*"`), at)
	if err != nil {
		t.Log(err) // a join may be ambiguous then
	}
	query = capitals.ReplaceAllStringFunc(query, func(s string) string {
		name := strings.ToLower(strings.Trim(s, `"`))
		if !alert.Has(name) {
			t.Errorf("the alert has no label %s, which %s takes from it", name, query)
		}
		return `"` + alert.Get(name) + `"`
	})
	rows, err := server.Query(t.Context(), query, at)
	must.OK(t, err)
	if len(rows) == 0 || len(rows) > 10 {
		t.Errorf("%d rows: %s", len(rows), query)
	}
	for _, row := range rows {
		if row.Metric.Get("action") == "none" {
			t.Errorf("a row of no action: %s of %s", row.Metric, query)
		}
		for _, name := range []string{"node", "uuid", "gpu", "instance"} {
			if row.Metric.Has(name) && alert.Has(name) && row.Metric.Get(name) != alert.Get(name) {
				t.Errorf("another %s: %s of %s", name, row.Metric, query)
			}
		}
	}
	return len(all) > len(rows)
}

var codeSpan = regexp.MustCompile("`([^`\n]+(?:\n[^`\n]+)?)`")

// runbook returns the queries in the prose of a runbook, and for GPURepairRequired those of the page about resets.
func runbook(t *testing.T, name string) (out []string) {
	t.Helper()
	file := func(path string) string {
		text := must.Read(t, filepath.Join("..", "..", "docs", path))
		return text
	}
	_, text, found := strings.Cut(file("alerts.md"), "\n### "+name+"\n")
	if !found {
		t.Fatal("there is no runbook")
	}
	text, _, _ = strings.Cut(text, "\n<a id=")
	text, _, _ = strings.Cut(text, "\n## ")
	if strings.Contains(text, "```promql") {
		t.Error("a query stands apart from the list in the head")
	}
	_, text, _ = strings.Cut(text, "\n\n- ")
	_, text, _ = strings.Cut(text, "\n\n") // below the list, whose queries are those of the table
	if name == "GPURepairRequired" {
		_, reset, _ := strings.Cut(file("troubleshooting.md"), "\n## Reset a GPU\n")
		text += reset
	}
	known := checker().Known
	for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
		e, err := parser.NewParser(parser.Options{}).ParseExpr(m[1])
		if err != nil {
			continue
		}
		if v, is := e.(*parser.VectorSelector); is && len(v.LabelMatchers) == 1 {
			continue // the name of a metric, or any word
		}
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			if v, is := n.(*parser.VectorSelector); is && known[v.Name] != nil && !slices.Contains(out, m[1]) {
				out = append(out, m[1])
			}
			return nil
		})
	}
	return out
}
