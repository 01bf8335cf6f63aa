package dashboards_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/dashboards"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// readOnce reads the generated files as a Grafana would, by uid, for all tests: they only read them.
var readOnce = sync.OnceValues(func() (map[string]dashboard.Dashboard, error) {
	plugins.RegisterDefaultPlugins()
	all, err := generated()
	out := map[string]dashboard.Dashboard{}
	for _, f := range all {
		var d dashboard.Dashboard
		if err := json.Unmarshal(f.Pretty, &d); err != nil {
			return nil, err
		}
		if _, twice := out[*d.Uid]; twice {
			return nil, fmt.Errorf("the uid %s stands twice", *d.Uid)
		}
		out[*d.Uid] = d
	}
	return out, err
})

func readDashboards(t *testing.T) map[string]dashboard.Dashboard {
	t.Helper()
	out, err := readOnce()
	must.OK(t, err)
	return out
}

// flat lists the panels of a dashboard, those of collapsed rows included, and the headings.
func flat(d dashboard.Dashboard) (panels []dashboard.Panel, headings []dashboard.RowPanel) {
	for _, p := range d.Panels {
		if p.Panel != nil {
			panels = append(panels, *p.Panel)
			continue
		}
		headings = append(headings, *p.RowPanel)
		panels = append(panels, p.RowPanel.Panels...)
	}
	return panels, headings
}

var (
	rangeWindow = regexp.MustCompile(`\b(rate|increase|irate|delta|deriv)\([^\[\]]*\[([^\]]+)\]`)
	variable    = regexp.MustCompile(`\$\{?([a-zA-Z_]\w*)`)
)

// fixedWindows are the queries whose window is not that of the zoom, with the reason.
var fixedWindows = map[string]string{
	"gpu-node/Energy of the node": "a figure per hour is that over an hour",
}

// complaints are what the linter has against one dashboard: each names the panel. The rules are those of
// Grafana's own linter that speak of metrics, and the house's.
func complaints(d dashboard.Dashboard, all map[string]dashboard.Dashboard) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	vars := map[string]dashboard.VariableModel{}
	for _, v := range d.Templating.List {
		vars[v.Name] = v
		if v.Type == dashboard.VariableTypeQuery {
			if v.Refresh == nil || *v.Refresh != dashboard.VariableRefreshOnTimeRangeChanged {
				say("variable %s is not refreshed when the time range changes", v.Name)
			}
			if v.Datasource == nil || *v.Datasource.Uid != "${datasource}" {
				say("variable %s does not ask the chosen data source", v.Name)
			}
			hidden := v.Hide != nil && *v.Hide == dashboard.VariableHideHideVariable
			if !hidden && v.Multi != nil && *v.Multi && (v.AllValue == nil || *v.AllValue != ".*") {
				say("variable %s: All does not match what lacks the label", v.Name)
			}
		}
		if v.Label == nil || *v.Label == "" {
			say("variable %s has no label", v.Name)
		}
	}
	if len(d.Templating.List) == 0 || d.Templating.List[0].Type != dashboard.VariableTypeDatasource {
		say("the first variable is not the data source")
	}
	if d.Uid == nil || d.Title == nil || d.Description == nil || *d.Description == "" || !slices.Contains(d.Tags, "gpu") {
		say("uid, title, description or tag are missing")
	}
	variables := func(where, text string) {
		for _, m := range variable.FindAllStringSubmatch(text, -1) {
			if _, ok := vars[m[1]]; !ok && !strings.HasPrefix(m[1], "__") {
				say("%s uses $%s, which the board does not have", where, m[1])
			}
		}
	}
	single := func(name string) bool { v, ok := vars[name]; return ok && (v.Multi == nil || !*v.Multi) }
	links := func(where string, links []dashboard.DashboardLink) {
		for _, l := range links {
			if l.Placement != nil {
				say("%s: the link %q hides in a menu", where, l.Title)
			}
			if l.Url == nil {
				continue
			}
			if strings.Contains(*l.Url, "/docs/") {
				continue
			}
			u, err := url.Parse(*l.Url)
			if err != nil {
				say("%s: the link %q: %v", where, l.Title, err)
				continue
			}
			parts := strings.Split(u.Path, "/")
			if len(parts) < 3 || parts[1] != "d" {
				say("%s: the link %q leads to no board: %s", where, l.Title, *l.Url)
				continue
			}
			target, ok := all[parts[2]]
			if !ok {
				say("%s: the link %q leads to %s, which is no board", where, l.Title, parts[2])
				continue
			}
			for _, carried := range []string{"${__url_time_range}", "${datasource:queryparam}", "cluster"} {
				if !strings.Contains(*l.Url, carried) {
					say("%s: the link %q does not carry %s", where, l.Title, carried)
				}
			}
			for _, part := range strings.Split(u.RawQuery, "&") {
				name, _, _ := strings.Cut(part, "=")
				name, isVar := strings.CutPrefix(name, "var-")
				if m := regexp.MustCompile(`^\$\{(\w+):queryparam\}$`).FindStringSubmatch(part); m != nil {
					name, isVar = m[1], true
					variables(where, part)
				}
				if isVar && !slices.ContainsFunc(target.Templating.List, func(v dashboard.VariableModel) bool { return v.Name == name }) {
					say("%s: the link %q sets %s, which %s does not have", where, l.Title, name, parts[2])
				}
			}
		}
	}
	links("the board", d.Links)
	for _, a := range d.Annotations.List {
		variables("annotation "+a.Name, *a.Expr)
		if a.Placement != nil || a.Datasource == nil {
			say("annotation %s has a placement, or no data source", a.Name)
		}
	}
	panels, headings := flat(d)
	seen, titles := map[uint32]bool{}, map[string]bool{}
	for _, h := range headings {
		if seen[h.Id] || h.Id == 0 {
			say("the id %d of the heading %q stands twice", h.Id, *h.Title)
		}
		seen[h.Id] = true
	}
	for i, p := range panels {
		where := fmt.Sprintf("panel %q", *p.Title)
		switch {
		case p.Id == nil || *p.Id == 0 || seen[*p.Id]:
			say("%s has no id of its own", where)
		case p.Description == nil || *p.Description == "":
			say("%s has no description", where)
		case p.PluginVersion == nil || *p.PluginVersion == "":
			say("%s has no plugin version", where)
		}
		if titles[*p.Title] || *p.Title == "" {
			say("%s has no title of its own", where)
		}
		seen[*p.Id], titles[*p.Title] = true, true
		g := *p.GridPos
		if g.X+g.W > 24 || g.W == 0 || g.H == 0 {
			say("%s leaves the grid", where)
		}
		for _, o := range panels[:i] {
			h := *o.GridPos
			if g.X < h.X+h.W && h.X < g.X+g.W && g.Y < h.Y+h.H && h.Y < g.Y+g.H {
				say("%s lies over %q", where, *o.Title)
			}
		}
		if p.Type == "text" {
			continue
		}
		if p.Datasource == nil || *p.Datasource.Uid != "${datasource}" {
			say("%s does not ask the chosen data source", where)
		}
		if p.Interval == nil {
			say("%s has no smallest interval", where)
		}
		if len(p.Targets) == 0 {
			say("%s asks nothing", where)
		}
		f := p.FieldConfig.Defaults
		if f.Unit == nil || *f.Unit == "" {
			say("%s has no unit", where)
		} else if custom, _ := json.Marshal(f.Custom); *f.Unit == "percentunit" && f.Min == nil &&
			!strings.Contains(string(custom), `"mode":"percent"`) {
			say("%s shows a ratio without limits of the scale", where)
		}
		if f.NoValue == nil || *f.NoValue == "" {
			say("%s does not say why it is empty", where)
		}
		links(where, f.Links)
		links(where, p.Links)
		ids := map[string]bool{}
		for _, target := range p.Targets {
			q, ok := target.(prometheus.Dataquery)
			if !ok {
				pointer, isPointer := target.(*prometheus.Dataquery)
				if !isPointer {
					say("%s has a query of another kind: %T", where, target)
					continue
				}
				q = *pointer
			}
			if q.RefId == nil || ids[*q.RefId] {
				say("%s: a query has no refId of its own", where)
			} else {
				ids[*q.RefId] = true
			}
			variables(where, q.Expr)
			if strings.ContainsAny(q.Expr, "<>") && regexp.MustCompile(`<[a-z]+>`).MatchString(q.Expr) {
				say("%s: a placeholder was left: %s", where, q.Expr)
			}
			for _, m := range rangeWindow.FindAllStringSubmatch(q.Expr, -1) {
				if m[2] != "$__rate_interval" && m[2] != "$__range" && fixedWindows[*d.Uid+"/"+*p.Title] == "" {
					say("%s: %s over [%s]", where, m[1], m[2])
				}
			}
			if p.Type == "table" && (q.Instant == nil || !*q.Instant || q.Format == nil || *q.Format != prometheus.PromQueryFormatTable) {
				say("%s is a table of a query over time", where)
			}
			if p.Type == "stat" && (q.Instant == nil || !*q.Instant || q.Range == nil || *q.Range) {
				say("%s shows the last of a range, which may be hours old", where)
			}
			if p.Type == "timeseries" && (q.LegendFormat == nil || *q.LegendFormat == "" || *q.LegendFormat == "__auto") {
				say("%s: a series has no legend", where)
			}
			if p.Type == "timeseries" && strings.Contains(q.Expr, "by (cluster, node, uuid") &&
				!strings.Contains(*q.LegendFormat, "{{node}}") && strings.Contains(*q.LegendFormat, "{{gpu}}") && !single("node") {
				say("%s: the legend names an index without its node", where)
			}
		}
		switch o := p.Options.(type) {
		case *timeseries.Options:
			if o.Tooltip.Mode == "" || o.Tooltip.Sort == "" || !o.Legend.ShowLegend || o.Legend.DisplayMode == "" {
				say("%s: tooltip or legend is not said", where)
			}
		case *stat.Options:
			if o.Orientation == "" || len(o.ReduceOptions.Calcs) == 0 {
				say("%s: orientation or reduction is not said", where)
			}
		case *table.Options:
			if o.Footer == nil || len(o.Footer.Reducer) == 0 || len(o.SortBy) == 0 {
				say("%s: footer or order is not said", where)
			} else if text, _ := json.Marshal(p.FieldConfig.Overrides); !strings.Contains(string(text),
				strconv.Quote(o.SortBy[0].DisplayName)) {
				say("%s is ordered by %s, which is no column", where, o.SortBy[0].DisplayName)
			}
		case *statetimeline.Options:
			if o.Tooltip.Mode == "" || !o.Legend.ShowLegend {
				say("%s: tooltip or legend is not said", where)
			}
			if len(f.Mappings) == 0 {
				say("%s: its states have no names", where)
			}
		}
		for _, o := range p.FieldConfig.Overrides {
			for _, property := range o.Properties {
				if property.Id != "links" {
					continue
				}
				text, _ := json.Marshal(property.Value)
				var own []dashboard.DashboardLink
				if err := json.Unmarshal(text, &own); err != nil {
					say("%s: a column's links: %v", where, err)
				}
				links(where, own)
			}
		}
	}
	return out
}

func TestLint(t *testing.T) {
	all := readDashboards(t)
	for uid, d := range all {
		for _, c := range complaints(d, all) {
			t.Errorf("%s: %s", uid, c)
		}
	}
}

// Each rule is shown a dashboard that breaks it.
func TestLinterFindsPlantedErrors(t *testing.T) {
	first := func(d *dashboard.Dashboard) *dashboard.Panel { return d.Panels[0].Panel }
	target := func(d *dashboard.Dashboard, change func(*prometheus.Dataquery)) {
		p := first(d)
		switch q := p.Targets[0].(type) {
		case prometheus.Dataquery:
			change(&q)
			p.Targets[0] = q
		case *prometheus.Dataquery:
			change(q)
		}
	}
	word := func(s string) *string { return &s }
	all, generated := readDashboards(t), files(t)
	node := generated[slices.IndexFunc(generated, func(f dashboards.File) bool { return f.Name == "gpu-node.json" })]
	for name, c := range map[string]struct {
		plant func(*dashboard.Dashboard)
		want  string
	}{
		"id":          {func(d *dashboard.Dashboard) { first(d).Id = d.Panels[1].Panel.Id }, "no id of its own"},
		"description": {func(d *dashboard.Dashboard) { first(d).Description = nil }, "no description"},
		"unit":        {func(d *dashboard.Dashboard) { first(d).FieldConfig.Defaults.Unit = nil }, "no unit"},
		"empty":       {func(d *dashboard.Dashboard) { first(d).FieldConfig.Defaults.NoValue = nil }, "why it is empty"},
		"overlap":     {func(d *dashboard.Dashboard) { first(d).GridPos.W++ }, "lies over"},
		"grid":        {func(d *dashboard.Dashboard) { first(d).GridPos.W = 30 }, "leaves the grid"},
		"source":      {func(d *dashboard.Dashboard) { first(d).Datasource.Uid = word("prom") }, "chosen data source"},
		"title":       {func(d *dashboard.Dashboard) { first(d).Title = d.Panels[1].Panel.Title }, "no title of its own"},
		"order": {func(d *dashboard.Dashboard) {
			for _, p := range d.Panels {
				if p.Panel != nil && p.Panel.Type == "table" {
					p.Panel.Options.(*table.Options).SortBy[0].DisplayName = "Heat"
				}
			}
		}, "ordered by Heat"},
		"variable": {func(d *dashboard.Dashboard) {
			target(d, func(q *prometheus.Dataquery) { q.Expr += ` + up{a="$rack"}` })
		}, "$rack"},
		"window": {func(d *dashboard.Dashboard) { target(d, func(q *prometheus.Dataquery) { q.Expr += ` + rate(a[5m])` }) },
			"over [5m]"},
		"refId":       {func(d *dashboard.Dashboard) { target(d, func(q *prometheus.Dataquery) { q.RefId = nil }) }, "no refId"},
		"stale":       {func(d *dashboard.Dashboard) { target(d, func(q *prometheus.Dataquery) { q.Instant = nil }) }, "hours old"},
		"orientation": {func(d *dashboard.Dashboard) { first(d).Options.(*stat.Options).Orientation = "" }, "orientation"},
		"version":     {func(d *dashboard.Dashboard) { first(d).PluginVersion = nil }, "no plugin version"},
		"refresh":     {func(d *dashboard.Dashboard) { d.Templating.List[1].Refresh = nil }, "not refreshed"},
		"all":         {func(d *dashboard.Dashboard) { d.Templating.List[1].AllValue = nil }, "All does not match"},
		"first":       {func(d *dashboard.Dashboard) { d.Templating.List = d.Templating.List[1:] }, "first variable"},
		"link": {func(d *dashboard.Dashboard) {
			first(d).FieldConfig.Defaults.Links = []dashboard.DashboardLink{{Title: "x",
				Url: word("/d/gpu-rack/x?${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}")}}
		}, "no board"},
		"link variable": {func(d *dashboard.Dashboard) {
			first(d).FieldConfig.Defaults.Links = []dashboard.DashboardLink{{Title: "x",
				Url: word("/d/gpu-fleet/x?${datasource:queryparam}&${cluster:queryparam}&var-pod=1&${__url_time_range}")}}
		}, "sets pod"},
		"link time": {func(d *dashboard.Dashboard) {
			first(d).FieldConfig.Defaults.Links = []dashboard.DashboardLink{{Title: "x",
				Url: word("/d/gpu-fleet/x?${datasource:queryparam}&${cluster:queryparam}")}}
		}, "does not carry"},
	} {
		t.Run(name, func(t *testing.T) {
			var d dashboard.Dashboard
			must.OK(t, json.Unmarshal(node.Pretty, &d))
			c.plant(&d)
			if found := complaints(d, all); !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("it was not found; the linter says %q", found)
			}
		})
	}
}

// An alert says where to look next: that dashboard must be there and take what the alert hands over.
func TestAlertsLeadToDashboards(t *testing.T) {
	all := readDashboards(t)
	for _, a := range alerts.Alerts() {
		d, ok := all[a.Dashboard.UID]
		if !ok {
			t.Errorf("%s leads to %q, which is no board", a.Name, a.Dashboard.UID)
			continue
		}
		for _, name := range a.Dashboard.Vars {
			if !slices.ContainsFunc(d.Templating.List, func(v dashboard.VariableModel) bool { return v.Name == name }) {
				t.Errorf("%s sets %s, which %s does not have", a.Name, name, a.Dashboard.UID)
			}
		}
		if !strings.HasPrefix(a.Name, "GPU") {
			t.Errorf("%s does not begin with GPU: the dashboards count ALERTS by that", a.Name)
		}
	}
}

// Every metric of interest is on some dashboard: who knows the dashboards of others must find what he had.
func TestDashboardsShowWhatPeopleKnow(t *testing.T) {
	var everything strings.Builder
	for _, f := range files(t) {
		everything.Write(f.Compact)
	}
	for what, metric := range map[string]string{
		"temperature": "gpu_temperature_celsius", "power": "gpu_power_watts", "SM clock": `clock=\"sm\"`,
		"utilization":  "gpu_busy_seconds_total",
		"frame buffer": "gpu_memory_used_bytes", "tensor cores": "gpu_tensor_active_seconds_total",
		"throttle reasons": "gpu_clock_limited_seconds_total",
		"ECC":              "gpu_ecc_errors_total", "XID": "gpu_xid_events_total", "PCIe": "gpu_pcie_receive_bytes_total",
		"NVLink": "gpu_nvlink_receive_bytes_total",
		"energy": "gpu_energy_joules_total", "MIG": "gpu_mig_memory_used_bytes", "processes": "gpu_processes",
		"recovery action": "gpu_recovery_action",
		"P-state":         "gpu_performance_state", "fans": "gpu_fan_speed_ratio", "retired pages": "gpu_retired_pages_total",
		"remapped rows": "gpu_remapped_rows_total",
		"pods":          "gpu_container_allocation_ratio", "alerts": "ALERTS",
	} {
		if !strings.Contains(everything.String(), metric) {
			t.Errorf("no dashboard shows %s (%s)", what, metric)
		}
	}
}
