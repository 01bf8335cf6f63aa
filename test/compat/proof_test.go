package compat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat/guide"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/replay"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// judge runs gpu-migrate check --rewrite on queries.
func judge(t *testing.T, queries []string) (verdicts []judged) {
	t.Helper()
	check := exec.Command(servers.Build(t, servers.Migrate), "check", "--output=json", "--rewrite", "-")
	check.Stdin = strings.NewReader(strings.Join(queries, "\n"))
	out, err := check.Output()
	if json.Unmarshal(out, &verdicts) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return verdicts
}

// checked runs it on queries of which each has a verdict.
func checked(t *testing.T, queries []string) []judged {
	t.Helper()
	verdicts := judge(t, queries)
	if len(verdicts) != len(queries) {
		t.Fatalf("%d verdicts on %d queries", len(verdicts), len(queries))
	}
	return verdicts
}

// stories are the situations that a query is evaluated in, each with its own Prometheus.
type stories struct {
	nodes map[string]*replay.Server
	names []string
}

func newStories(t *testing.T) stories {
	t.Helper()
	all := stories{nodes: map[string]*replay.Server{}}
	for _, s := range situations {
		all.names = append(all.names, s)
		all.nodes[s] = scraped(t, s, 30*time.Second)
	}
	all.names = append(all.names, "whole at 60 s")
	all.nodes["whole at 60 s"] = scraped(t, "whole", time.Minute)
	return all
}

// declared are the differences that a rewritten query may have, by words of their text, and the situations that have
// them.
var declared = map[string][]string{"in MIG mode has one series": {"mig"}, "no container have no series": {"free"},
	"has its own part": {"shared", "mig"}}

// ours is a label by the names of the other exporters.
var ours = map[string]string{"UUID": "uuid", "uuid": "uuid", "gpu": "gpu", "Hostname": "node", "hostname": "node",
	"pod": "pod", "namespace": "namespace",
	"container": "container", "instance": "instance", "job": "job", "label_team": "label_team", "node": "node",
	"uid": "uid", "v": "v"}

// matrix evaluates a query through the story.
func matrix(t *testing.T, s *replay.Server, query string) promql.Matrix {
	t.Helper()
	q, err := s.Engine.NewRangeQuery(context.Background(), s.DB, nil, query,
		catalogtest.At.Add(10*time.Minute+7*time.Second),
		catalogtest.At.Add(storyLength-time.Minute), 2*time.Minute)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer q.Close()
	r := q.Exec(context.Background())
	if r.Err != nil {
		t.Errorf("%s: %v", query, r.Err)
		return nil
	}
	m, ok := r.Value.(promql.Matrix)
	if !ok {
		t.Errorf("%s: %T", query, r.Value)
	}
	var out promql.Matrix // the buffers are reused
	for _, series := range m {
		out = append(out, promql.Series{Metric: series.Metric, Floats: slices.Clone(series.Floats)})
	}
	return out
}

// compare returns how the rewritten query differs from the original, and the number of values that were compared.
func compare(t *testing.T, s *replay.Server, original, rewritten string, near, reload bool) (differs string, values int) {
	t.Helper()
	theirs, here := matrix(t, s, original), matrix(t, s, rewritten)
	perPod := strings.Contains(rewritten, "gpu_container_")
	named := map[string]bool{} // labels that both have
	key := func(m labels.Labels, is func(name string) string) string {
		var out []string
		m.Range(func(l labels.Label) {
			to := is(l.Name)
			if to == "" {
				return
			}
			value := l.Value
			if to == "uuid" {
				value = strings.TrimPrefix(value, "GPU-")
			}
			if pair := to + "=" + value; !slices.Contains(out, pair) {
				out = append(out, pair)
			}
		})
		slices.Sort(out)
		return strings.Join(out, ",")
	}
	points := func(m promql.Matrix, is func(string) string) map[string]map[int64]float64 {
		out := map[string]map[int64]float64{}
		for _, series := range m {
			k := key(series.Metric, is)
			if out[k] != nil {
				differs = fmt.Sprintf("%s is there twice", k)
			}
			out[k] = map[int64]float64{}
			for _, p := range series.Floats {
				out[k][p.T] = p.F
			}
		}
		return out
	}
	before := points(theirs, func(name string) string {
		to := ours[name]
		if (to == "pod" || to == "namespace" || to == "container") && !perPod && !strings.Contains(rewritten, "kube_pod") {
			return ""
		}
		named[to] = true
		return to
	})
	after := points(here, func(name string) string {
		if !named[ours[name]] && len(before) > 0 {
			return ""
		}
		return ours[name]
	})
	scale := 0.0
	for _, series := range before {
		for _, v := range series {
			if !math.IsNaN(v) {
				scale = max(scale, math.Abs(v))
			}
		}
	}
	steady := func(at int64) bool {
		since := time.UnixMilli(at).Sub(catalogtest.At)
		return !slices.ContainsFunc(changes, func(c time.Duration) bool {
			return near && since >= c && since < c+12*time.Minute || reload && since >= reloaded
		})
	}
	for k := range after {
		if before[k] == nil {
			before[k] = map[int64]float64{}
		}
	}
	for k, series := range before {
		all := map[int64]bool{}
		for at := range series {
			all[at] = true
		}
		for at := range after[k] {
			all[at] = true
		}
		for at := range all {
			if !steady(at) {
				continue
			}
			a, was := series[at]
			b, is := after[k][at]
			tolerance := 1e-6 * max(scale, math.Abs(a))
			if near {
				tolerance = 0.1 * scale
			}
			values++
			same := was == is && (math.Abs(a-b) <= tolerance || a == b || math.IsNaN(a) && math.IsNaN(b))
			if !same && differs == "" {
				differs = fmt.Sprintf("{%s} after %v: %v (%v), rewritten %v (%v)", k, time.UnixMilli(at).Sub(catalogtest.At), a,
					was, b, is)
			}
		}
	}
	return differs, values
}

// prove evaluates a query and its rewritten form in every situation, and returns the declared differences that it has.
func (all stories) prove(t *testing.T, v judged, original, rewritten string) (found []string, values int) {
	t.Helper()
	says := func(words string) bool {
		return slices.ContainsFunc(v.Differences, func(d string) bool { return strings.Contains(d, words) })
	}
	for _, situation := range all.names {
		differs, n := compare(t, all.nodes[situation], original, rewritten, says("near, not equal"), says("reload"))
		values += n
		if differs == "" {
			continue
		}
		excused := ""
		for words, where := range declared {
			if slices.Contains(where, situation) && says(words) {
				excused = words
			}
		}
		if excused == "" {
			t.Errorf("%s\nis rewritten to %s\nand differs (%s): %s", original, rewritten, situation, differs)
		} else {
			found = append(found, excused)
		}
	}
	return found, values
}

// families are the names of the tables that the story has, with their rows.
func families(t *testing.T) []guide.Entry {
	t.Helper()
	var out []guide.Entry
	listed := map[string]bool{}
	for _, release := range []compat.Release{compat.DCGM48, compat.DCGM49, compat.NvidiaSMI} {
		list, err := guide.Entries(release)
		must.OK(t, err)
		for _, e := range list {
			if !listed[e.Name] { // most have the same name in 4.9
				out = append(out, e)
			}
			listed[e.Name] = true
		}
	}
	return out
}

// Whatever gpu-migrate rewrites has the same result as the original, in each form in which queries use a family, by
// Prometheus' own engine. A family that the story lacks is not rewritten.
func TestEveryRewriteIsProved(t *testing.T) {
	all := newStories(t)
	var ranged []string
	for name, f := range parser.Functions {
		if len(f.ArgTypes) > 0 && !f.Experimental && (f.ArgTypes[0] == parser.ValueTypeMatrix || len(f.ArgTypes) > 1 &&
			f.ArgTypes[1] == parser.ValueTypeMatrix) {
			ranged = append(ranged, name)
		}
	}
	slices.Sort(ranged)
	var queries []string
	of := map[string]string{}
	rows := families(t)
	for _, e := range rows {
		x := e.Name
		forms := []string{x, x + " == 0", x + " == 1", x + " offset 5m", "absent(" + x + ")", "count(" + x + " > 0)",
			"max(" + x + ") + min(" + x + ")", "timestamp(" + x + ")", `count_values("v", ` + x + ")", x + " / " + x,
			"avg_over_time((" + x + " > 0)[10m:1m])"}
		for _, f := range ranged {
			switch f {
			case "quantile_over_time":
				forms = append(forms, f+"(0.9, "+x+"[5m])")
			case "predict_linear":
				forms = append(forms, f+"("+x+"[5m], 60)")
			case "double_exponential_smoothing", "holt_winters":
			default:
				forms = append(forms, f+"("+x+"[5m])")
			}
		}
		if strings.HasPrefix(x, "DCGM_") {
			for _, form := range []string{`sum by (gpu, Hostname) (X)`, `X{gpu="1"}`, `X{instance="node-1:9400"}`,
				`sum by (UUID) (rate(X[5m]))`, `sum by (namespace, pod) (X)`, `X{pod!=""}`, `X{pod=""}`,
				`avg without (instance, job) (X)`, `sum without (gpu) (X)`,
				`max_over_time(sum by (pod) (X{namespace="ml"})[10m:1m])`,
				`sum by (Hostname) (X) * on (Hostname) group_left ` +
					`label_replace(kube_node_info, "Hostname", "$1", "node", "(.*)")`,
				`X * on (namespace, pod) group_left (label_team) kube_pod_labels{label_team!=""}`,
				`X and on (namespace, pod) kube_pod_labels{label_a="b"}`,
				`sum by (label_team) (X * on (namespace, pod) group_left (label_team) kube_pod_labels)`,
				`X * on (pod) group_left (node) kube_pod_info`,
				`label_replace(X, "node", "$1", "Hostname", "(.*)") * on (node) group_left kube_node_info`,
				`X / X + ignoring (modelName) X`} {
				forms = append(forms, regexp.MustCompile(`\bX\b`).ReplaceAllString(form, x))
			}
		} else {
			forms = append(forms, "sum by (uuid) ("+x+")", x+`{uuid="11111110-1111-1111-1111-111111111111"}`,
				x+" * on (uuid) group_left "+x)
		}
		for _, f := range forms {
			queries, of[f] = append(queries, f), x
		}
	}
	rewritten, values, found := map[string]int{}, 0, map[string]bool{}
	for i, v := range checked(t, queries) {
		if v.Rewritten == "" {
			continue
		}
		rewritten[of[queries[i]]]++
		differs, n := all.prove(t, v, queries[i], v.Rewritten)
		values += n
		for _, d := range differs {
			found[d] = true
		}
	}
	total := 0
	for _, e := range rows {
		total += rewritten[e.Name]
		if n := len(matrix(t, all.nodes["whole"], e.Name)); n == 0 && rewritten[e.Name] > 0 {
			t.Errorf("%s is rewritten (%s), and the story has no such series", e.Name, e.Rewrite)
		}
		if e.Rewrite != compat.NoRewrite && rewritten[e.Name] == 0 {
			t.Errorf("%s is %s, and nothing of it is rewritten", e.Name, e.Rewrite)
		}
	}
	for words := range declared {
		if !found[words] {
			t.Errorf("%q is declared, and nothing differs so", words)
		}
	}
	t.Logf("%d of %d forms of %d families are rewritten; %d values compared", total, len(queries), len(rows), values)
}

var anyJob = regexp.MustCompile(`([{, ])job=~?"[^"]*"`)

// plain is a query without the variables of Grafana, whose labels are those with honor_labels.
func plain(query string) string {
	q := strings.ReplaceAll(query, "exported_", "")
	q = anyJob.ReplaceAllString(q, `${1}job="gpu"`)
	q = interval.ReplaceAllString(matcher.ReplaceAllString(ofPod.ReplaceAllString(q, `$1=~".+"`), `=~".*"`), "[5m")
	return bare.ReplaceAllString(q, "1")
}

// Every public query that is rewritten has the same result.
func TestPublicRewritesAreProved(t *testing.T) {
	all := newStories(t)
	var queries []string
	for _, l := range publicQueries(t) {
		queries = append(queries, l[3])
	}
	n, empty, values := 0, 0, 0
	for i, v := range checked(t, queries) {
		if v.Rewritten == "" {
			if v.Verdict != "not supported" && !slices.ContainsFunc(v.Reasons,
				func(r string) bool { return strings.HasPrefix(r, "not rewritten: ") }) {
				t.Errorf("%s is not rewritten, and no reason is given", queries[i])
			}
			continue
		}
		n++
		_, compared := all.prove(t, v, plain(queries[i]), plain(v.Rewritten))
		values += compared
		if compared == 0 {
			empty++
		}
	}
	if n < 285 {
		t.Errorf("%d of %d public queries are rewritten", n, len(queries))
	}
	t.Logf("%d of %d public queries are rewritten and equal, %d of them without a result; %d values compared", n,
		len(queries), empty, values)
}

// Queries that have to be rewritten, so that the tests above compare something, and the reasons of those that are not.
func TestRewrites(t *testing.T) {
	busy := "((rate(gpu_container_busy_seconds_total[2m]) / rate(gpu_container_observed_seconds_total[2m])) * 100)"
	cases := [][2]string{
		// Labels belong to the side of a join that has them.
		{`DCGM_FI_DEV_GPU_UTIL * on(pod) group_left(label_team) kube_pod_labels{label_team!=""}`,
			busy + ` * on (pod) group_left (label_team) kube_pod_labels{label_team!=""}`},
		{`DCGM_FI_DEV_GPU_UTIL and on(namespace, pod) kube_pod_labels{label_a="b"}`,
			busy + ` and on (namespace, pod) kube_pod_labels{label_a="b"}`},
		{`sum by (label_team) (DCGM_FI_DEV_FB_USED * on(namespace, pod) group_left(label_team) kube_pod_labels)`,
			`sum by (label_team) ((gpu_container_memory_used_bytes / 1048576) * on (namespace, pod) group_left (label_team) ` +
				`kube_pod_labels)`},
		{`kube_pod_labels * on(pod) group_right(label_team) DCGM_FI_DEV_GPU_UTIL`,
			`kube_pod_labels * on (pod) group_right (label_team) ` + busy},
		{`DCGM_FI_DEV_GPU_UTIL * on(namespace, pod) group_left(node) node_namespace_pod:kube_pod_info:{node="x"}`,
			busy + ` * on (namespace, pod) group_left (node) node_namespace_pod:kube_pod_info:{node="x"}`},
		{`avg by (workspace) (label_replace(DCGM_FI_DEV_GPU_UTIL, "workspace", "$1", "exported_namespace", "(.*)"))`,
			`avg by (workspace) (label_replace(` + busy + `, "workspace", "$1", "namespace", "(.*)"))`},
		{`avg by (UUID) (DCGM_FI_DEV_GPU_TEMP) * on(UUID) group_left(rack) racks`,
			`label_replace(avg by (uuid) (gpu_temperature_celsius{sensor="gpu"}), "UUID", "$1", "uuid", "(.*)") ` +
				`* on (UUID) group_left (rack) racks`},
		{`sum without (instance) (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL) > 0`,
			`sum without (instance) ((sum without (severity, memory) (gpu_ecc_errors_total{severity="uncorrected"}))) > 0`},
		{`DCGM_FI_DEV_GPU_TEMP * on(UUID) group_left(modelName) DCGM_FI_DEV_GPU_UTIL`,
			"!label modelName is not on our series"},
		{`kube_pod_labels * on(node) group_left(gpu) DCGM_FI_DEV_GPU_TEMP`,
			`kube_pod_labels * on (node) group_left (gpu) gpu_temperature_celsius{sensor="gpu"}`},
		{`DCGM_FI_DEV_GPU_TEMP * kube_node_info`, "!without on()"},
		{`sum by (container) (DCGM_FI_DEV_FB_USED{exported_pod!=""})`, "!that of dcgm-exporter's own pod"},
		{`DCGM_FI_DEV_GPU_UTIL{pod=""}`, "!gpu_allocation_ratio == 0"},
		{`DCGM_FI_DEV_GPU_TEMP{instance="a:9400"}`, "!the port is another here"},
		// Families with other values are named with what to use.
		{`DCGM_EXP_GPU_HEALTH_STATUS > 0`, "!`gpu_health"},
		{`increase(DCGM_FI_DEV_XID_ERRORS[5m]) > 0`, "!`time() - gpu_xid_last_timestamp_seconds < 600`"},
		{`DCGM_EXP_CLOCK_EVENTS_COUNT`, "!`rate(gpu_clock_limited_seconds_total[5m])`"},
		{`nvidia_smi_clocks_event_reasons_sw_power_cap == 1`, "!`gpu_clock_event_active == 1`"},
		{`rate(DCGM_FI_PROF_NVLINK_TX_BYTES[5m])`, "!means nothing here"},
		{`rate(DCGM_FI_PROF_PCIE_RX_BYTES[5m])`, "!means nothing here"},
		{`rate(DCGM_FI_PROF_PCIE_RX_BYTES[5m])`, "!not proved"},
		{`up{job="nvidia-dcgm-exporter"} == 0`, `!use up{job="gpu-exporter"}`},
		{`absent(up{job=~".*dcgm.*"})`, `!use up{job="gpu-exporter"}`},
		{`kube_daemonset_status_number_ready{daemonset="nvidia-dcgm-exporter"} == 0`, "!select the objects of gpu-exporter"},
	}
	var queries []string
	for _, c := range cases {
		queries = append(queries, c[0])
	}
	for i, v := range checked(t, queries) {
		reason, not := strings.CutPrefix(cases[i][1], "!")
		switch {
		case not && (v.Rewritten != "" || !strings.Contains(strings.Join(v.Reasons, "\n"), reason)):
			t.Errorf("%s: %q, rewritten %q, want the reason %q", v.Query, v.Reasons, v.Rewritten, reason)
		case !not && v.Rewritten != cases[i][1]:
			t.Errorf("%s\nis rewritten to %q %q\nwant            %q", v.Query, v.Rewritten, v.Reasons, cases[i][1])
		}
	}
}

// What the exporter does not export by default is named beside a query that was rewritten to it.
func TestSwitches(t *testing.T) {
	list := checked(t, []string{"DCGM_FI_DEV_POWER_MGMT_LIMIT > 600", "DCGM_FI_DEV_GPU_TEMP > 80", "DCGM_FI_DEV_VIDEO_CLOCK",
		"DCGM_FI_DEV_SM_CLOCK"})
	for i, want := range []string{"--collector.power", "", "--collector.clocks", ""} {
		got := slices.DeleteFunc(list[i].Settings, func(s string) bool { return !strings.HasPrefix(s, "--collector") })
		if strings.Join(got, " ") != want || list[i].Rewritten == "" {
			t.Errorf("%s: %q needs %q", list[i].Query, list[i].Rewritten, got)
		}
	}
}

// Uses of gpu-exporter's own metrics that have another result than in earlier builds are found, what to use instead is none,
// and no rule has one.
func TestChangedUses(t *testing.T) {
	var queries []string
	for _, c := range guide.Changes() {
		queries = append(queries, strings.Replace(c.Then, "any", c.Families[0], 1), c.Now)
	}
	for _, r := range alerts.Records() {
		queries = append(queries, strings.ReplaceAll(r.Expr, "\n", " "))
	}
	for _, a := range alerts.Alerts() {
		queries = append(queries, strings.ReplaceAll(a.Expr, "\n", " "))
	}
	found := map[string]string{}
	for _, v := range judge(t, queries) {
		found[v.Query] = strings.Join(append(v.Reasons, v.Settings...), "\n")
	}
	for _, c := range guide.Changes() {
		then := strings.Replace(c.Then, "any", c.Families[0], 1)
		text, ok := found[then]
		if delete(found, then); !ok || !strings.Contains(text, c.Switch) || c.Then != "any" && !strings.Contains(text, c.Now) {
			t.Errorf("%s: %q, want %s %s", then, text, c.Now, c.Switch)
		}
		if strings.Contains(c.Now, "gpu_clock_event_active") { // of which the switch is another change
			delete(found, c.Now)
		}
	}
	for query, text := range found {
		t.Errorf("%s: %s", query, text)
	}
}
