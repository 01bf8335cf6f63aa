package queries

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/dashboards"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// shipped is what a dashboard's file says of queries, legends, columns and links.
type shipped struct {
	UID        string
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type, Regex string
			Query             string
		}
	}
	Annotations struct {
		List []struct{ Name, Expr, TitleFormat, TextFormat, TagKeys string }
	}
}

type panel struct {
	Type, Title string
	Description string
	Targets     []struct{ RefID, Expr, LegendFormat string }
	Panels      []panel
	FieldConfig struct {
		Defaults struct {
			Links   []struct{ URL string }
			NoValue string
		}
		Overrides []struct {
			Matcher    struct{ ID, Options string }
			Properties []struct {
				ID    string
				Value json.RawMessage
			}
		}
	}
}

func boards(t *testing.T) []shipped {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", "dashboards", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no boards: %v", err)
	}
	var out []shipped
	for _, p := range paths {
		text := must.Read(t, p)
		var b shipped
		if err := json.Unmarshal([]byte(text), &b); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		out = append(out, b)
	}
	return out
}

var (
	legendLabel = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	fieldLabel  = regexp.MustCompile(`\$\{__(?:field\.labels|data\.fields)\.(\w+)\}`)
	captured    = regexp.MustCompile(`(\w+)="`)
)

// complaints says what is wrong with the queries of a board, and with the labels that it shows of their answers.
func complaints(b shipped, known Checker) []string {
	var out []string
	raw := !slices.ContainsFunc(dashboards.All(), func(d dashboards.Dashboard) bool { return d.UID == b.UID && !d.Raw })
	say := func(format string, args ...any) {
		out = append(out, b.UID+": "+fmt.Sprintf(format, args...))
	}
	var look func(panel)
	look = func(p panel) {
		for _, inner := range p.Panels {
			look(inner)
		}
		var answers Labels
		for _, target := range p.Targets {
			for _, c := range selectors(target.Expr, raw, slices.Contains([]string{"stat", "table", "bargauge"}, p.Type)) {
				say("panel %q, query %s: %s\n\t%s", p.Title, target.RefID, c, target.Expr)
			}
			got, err := known.Answer(target.Expr)
			if err != nil {
				say("panel %q, query %s: %v\n\t%s", p.Title, target.RefID, err, target.Expr)
				continue
			}
			for _, m := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !got.has(m[1]) {
					say("panel %q, query %s: the legend names %s, the answer has %s", p.Title, target.RefID, m[1], strings.Join(got, ", "))
				}
			}
			answers = answers.With(got...)
		}
		links := func(url string) {
			for _, m := range fieldLabel.FindAllStringSubmatch(url, -1) {
				if !answers.has(m[1]) {
					say("panel %q: a link carries %s, the answers have %s", p.Title, m[1], strings.Join(answers, ", "))
				}
			}
		}
		for _, l := range p.FieldConfig.Defaults.Links {
			links(l.URL)
		}
		for _, o := range p.FieldConfig.Overrides {
			name := o.Matcher.Options
			if p.Type == "table" && !strings.HasPrefix(name, "Value") && !answers.has(name) {
				say("panel %q: the column %s is in no answer", p.Title, name)
			}
			for _, property := range o.Properties {
				if property.ID == "links" {
					links(string(property.Value))
				}
			}
		}
	}
	for _, p := range b.Panels {
		look(p)
	}
	for _, v := range b.Templating.List {
		if v.Type != "query" {
			continue
		}
		query, wanted := v.Query, ""
		if inner, ok := strings.CutPrefix(query, "label_values("); ok {
			at := strings.LastIndex(inner, ",")
			query, wanted = inner[:at], strings.TrimSpace(strings.TrimSuffix(inner[at+1:], ")"))
		} else if inner, ok := strings.CutPrefix(query, "query_result("); ok {
			query = strings.TrimSuffix(inner, ")")
		}
		got, err := known.Answer(query)
		if err != nil {
			say("variable %s: %v\n\t%s", v.Name, err, query)
			continue
		}
		if wanted != "" && !got.has(wanted) {
			say("variable %s: the answer has no label %s", v.Name, wanted)
		}
		for _, m := range captured.FindAllStringSubmatch(v.Regex, -1) {
			if !got.has(m[1]) {
				say("variable %s: its expression looks for the label %s, which is not there", v.Name, m[1])
			}
		}
	}
	for _, a := range b.Annotations.List {
		got, err := known.Answer(a.Expr)
		if err != nil {
			say("annotation %s: %v\n\t%s", a.Name, err, a.Expr)
			continue
		}
		for _, m := range legendLabel.FindAllStringSubmatch(a.TitleFormat+a.TextFormat, -1) {
			if !got.has(m[1]) {
				say("annotation %s names %s, the answer has %s", a.Name, m[1], strings.Join(got, ", "))
			}
		}
		for _, tag := range strings.Split(a.TagKeys, ",") {
			if !got.has(tag) {
				say("annotation %s has the tag %s, the answer has %s", a.Name, tag, strings.Join(got, ", "))
			}
		}
	}
	return out
}

// selectors says what is wrong with the series that a query selects. Only some dashboards may read raw series, and only
// some panels the largest of many, which over time are others at each step.
func selectors(query string, raw, now bool) (out []string) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(macros.Replace(query))
	if err != nil {
		return nil // Answer says so
	}
	read := false
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			read = true
			if !raw && strings.HasPrefix(n.Name, "gpu_") {
				out = append(out, n.Name+" is a raw series: above node level dashboards read recording rules")
			}
			clustered := func(m *labels.Matcher) bool { return m.Name == "cluster" && m.Value == "$cluster" }
			if !slices.ContainsFunc(n.LabelMatchers, clustered) && n.Name != "model:gpu_hour_price:info" {
				out = append(out, n.Name+" is not selected by cluster")
			}
		case *parser.AggregateExpr:
			if n.Op == parser.TOPK && !now && !strings.Contains(query, "@ end()") {
				out = append(out, "topk over time shows other series at each step")
			}
		}
		return nil
	})
	if !read {
		out = append(out, "it reads no metric")
	}
	return out
}

func TestBoardsAskForWhatExists(t *testing.T) {
	known, asked := Checker{Known: Metrics()}, 0
	for _, b := range boards(t) {
		for _, p := range b.Panels {
			asked += len(p.Targets)
			for _, inner := range p.Panels {
				asked += len(inner.Targets)
			}
		}
		for _, c := range complaints(b, known) {
			t.Error(c)
		}
	}
	if asked < 200 {
		t.Errorf("only %d queries were found: the files are read wrongly", asked)
	}
	t.Logf("%d queries", asked)
}

// The boards may ask ALERTS for what some alert carries, and for nothing else.
func TestAlertsCarryWhatBoardsAsk(t *testing.T) {
	carried := Labels{"alertname", "alertstate", "severity"}.With(ofTarget...)
	for _, a := range alerts.Alerts() {
		carried = carried.With(a.Labels...)
	}
	if extra := Metrics()["ALERTS"].beyond(carried); len(extra) > 0 {
		t.Errorf("no alert carries %q", extra)
	}
}

// Whatever is wrong must be found: each query has one error.
func TestPlantedErrorsAreFound(t *testing.T) {
	known := Checker{Known: Metrics()}
	for query, want := range map[string]string{
		`sum(gpu_powr_watts{node="a"})`:                                         "no metric gpu_powr_watts",
		`sum(gpu_power_watts{hostname="a"})`:                                    "no label hostname",
		`count by (node) ({__name__=~"gpu_power_watts|gpu_powr_watts"})`:        "no metric gpu_powr_watts",
		`{__name__=~"gpu_power_watts|gpu_container_memory_used_bytes",pod="x"}`: "no label pod",
		`sum by (pod) (gpu_power_watts)`:                                        "groups by pod",
		`sum without (pod) (gpu_power_watts)`:                                   "groups by pod",
		`sum by (le) (rate(gpu_exporter_call_duration_seconds[5m]))`: "no metric " +
			"gpu_exporter_call_duration_seconds",
		`sum by (node) (gpu_power_watts) * on (uuid) group_left () max by (uuid) (gpu_info)`:           "left side has no such label",
		`sum by (uuid) (gpu_power_watts) * on (uuid) group_left () max by (node) (gpu_info)`:           "right side has no such label",
		`sum by (uuid) (gpu_power_watts) * on (uuid) group_left (model) max by (uuid) (gpu_info)`:      "takes over the label model",
		`sum by (uuid) (gpu_power_watts) * on (uuid) group_left (model) gpu_info`:                      "aggregate it first",
		`gpu_power_watts * on (node, uuid) max by (node, uuid) (gpu_device_up)`:                        "left side also has",
		`rate(gpu_energy_joules_total[5m]) * on (uuid) group_left () max by (uuid) (gpu_info)`:         "parentheses",
		`sum by (node) (gpu_power_watts) / sum by (node, uuid) (gpu_power_limit_watts)`:                "no pair",
		`gpu_temperature_celsius > gpu_temperature_limit_celsius`:                                      "only one side has limit",
		`sum by (namespace) (namespace:gpu_allocated_seconds:rate5m{pod="x"})`:                         "no label pod",
		`sum by (node) (model:gpu_allocation:sum)`:                                                     "groups by node",
		`label_replace(gpu_power_watts, "a", "$1", "pod", "(.*)")`:                                     "reads the label pod",
		`label_join(gpu_power_watts, "a", "-", "node", "pod")`:                                         "reads the label pod",
		`histogram_quantile(0.9, sum by (call) (rate(gpu_exporter_call_duration_seconds_bucket[5m])))`: "reads the label le",
		`sort_by_label(gpu_power_watts, "node")`:                                                       "",
		`histogram_avg(rate(gpu_exporter_call_duration_seconds_sum[5m]))`:                              "newer than",
		`sum(gpu_power_watts`: "unclosed",
		`count by (users) (count_values("user", gpu_processes))`: "groups by users",
		`gpu_power_watts and on (namespace) gpu_container_allocation_ratio`: "left side has no " +
			"such label",
		`kube_pod_status_phase{node="x"}`: "no label node",
		`sum by (cluster, node) (rate(gpu_busy_seconds_total[5m])) and on (cluster, node, uuid) gpu_device_up == 1`: "left side has no " +
			"such label, only",
	} {
		_, err := known.Answer(query)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}

func TestLabelsAreFollowed(t *testing.T) {
	known := Checker{Known: Metrics()}
	for query, want := range map[string][]string{
		`sum by (node, uuid) (rate(gpu_busy_seconds_total[$__rate_interval])) / (sum by (node, uuid) ` +
			`(rate(gpu_observed_seconds_total[$__rate_interval])) > 0)`: {"node", "uuid"},
		`(sum by (node, uuid) (gpu_power_watts)) * on (node, uuid) group_left (model) max by (node, uuid, model) ` +
			`(gpu_info)`: {"node", "uuid", "model"},
		`count_values by (node) ("n", gpu_processes)`:                                         {"node", "n"},
		`max by (node, gpu) (max_over_time({__name__=~"gpu_power_watts|gpu_processes"}[5m]))`: {"node", "gpu"},
		`0 * max(gpu_device_up) - 1`:                                                          {},
		`max(gpu_device_up) or sum by (a) (label_replace(gpu_device_up, "a", "x", "", ""))`:   {"a"},
		`topk(3, sum by (node) (gpu_power_watts))`:                                            {"node"},
		`time() - min by (node, poll) (gpu_last_read_timestamp_seconds)`:                      {"node", "poll"},
		`sum_over_time(node:gpu_xid_events:increase5m[$__range:5m])`:                          {"cluster", "node", "xid"},
	} {
		got, err := known.Answer(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// A board with an error in each place where labels are named.
func TestPlantedBoardErrorsAreFound(t *testing.T) {
	for name, c := range map[string]struct{ board, want string }{
		"legend": {`{"uid":"b","panels":[{"type":"timeseries","title":"P","targets":[{"refId":"A","expr":"sum by (node) ` +
			`(gpu_power_watts)","legendFormat":"{{gpu}}"}]}]}`, "legend names gpu"},
		"column": {`{"uid":"b","panels":[{"type":"table","title":"P","targets":[{"refId":"A","expr":"sum by (node) ` +
			`(gpu_power_watts)"}],"fieldConfig":{"overrides":[{"matcher":{"id":"byName","options":"uuid"}}]}}]}`, "column uuid"},
		"link": {`{"uid":"b","panels":[{"type":"timeseries","title":"P","targets":[{"refId":"A","expr":"sum by (node) ` +
			`(gpu_power_watts)"}],"fieldConfig":{"defaults":{"links":[{"url":"/d/x?var-uuid=${__field.labels.uuid}"}]}}}]}`, "carries " +
			"uuid"},
		"collapsed": {`{"uid":"b","panels":[{"type":"row","title":"R","panels":[{"type":"stat","title":"P","targets":[{"refId":"A",` +
			`"expr":"gpu_nothing"}]}]}]}`, "gpu_nothing"},
		"raw": {`{"uid":"gpu-fleet","panels":[{"type":"stat","title":"P","targets":[{"refId":"A","expr":"sum(gpu_power_watts{cluster=~` +
			`\"$cluster\"})"}]}]}`, "raw series"},
		"cluster": {`{"uid":"b","panels":[{"type":"stat","title":"P","targets":[{"refId":"A","expr":"sum(gpu_power_watts)"}]}]}`,
			"by cluster"},
		"top":     {`{"uid":"b","panels":[{"type":"timeseries","title":"P","targets":[{"refId":"A","expr":"topk(3, up)"}]}]}`, "topk"},
		"nothing": {`{"uid":"b","panels":[{"type":"stat","title":"P","targets":[{"refId":"A","expr":"vector(1)"}]}]}`, "no metric"},
		"variable": {`{"uid":"b","templating":{"list":[{"name":"v","type":"query","query":"label_values(gpu_info{node=\"a\"}, pod)"}]}}`,
			"no label pod"},
		"expression": {`{"uid":"b","templating":{"list":[{"name":"v","type":"query","query":"query_result(gpu_info)",` +
			`"regex":"/display=\"(?<text>.*)\"/"}]}}`, "label display"},
		"annotation": {`{"uid":"b","annotations":{"list":[{"name":"a","expr":"sum by (node) (gpu_info)","titleFormat":"{{xid}}",` +
			`"tagKeys":"node"}]}}`, "names xid"},
		"tag": {`{"uid":"b","annotations":{"list":[{"name":"a","expr":"sum by (node) (gpu_info)","titleFormat":"x",` +
			`"tagKeys":"xid"}]}}`, "tag xid"},
	} {
		var b shipped
		if err := json.Unmarshal([]byte(c.board), &b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if found := complaints(b, Checker{Known: Metrics()}); !strings.Contains(strings.Join(found, "\n"), c.want) {
			t.Errorf("%s: %q, want one with %q", name, found, c.want)
		}
	}
}
