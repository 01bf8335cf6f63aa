package dashboards

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

const (
	tag = "gpu"
	// pluginVersion is the shape of the panels' options: without it Grafana runs the migrations of its oldest
	// panels over them, with a later one it leaves out those that it needs.
	pluginVersion = "11.0.0"
	// minInterval is the smallest step: below it a query gains nothing, for most clusters scrape twice a minute.
	minInterval = "1m"
)

// render makes the SDK's dashboard. It fills its types rather than call its builders, whose defaults leave
// ids out, hide links in a menu and move panels without a word.
func (b Dashboard) render(all []Dashboard) (*dashboard.Dashboard, error) {
	grid, err := b.layout()
	if err != nil {
		return nil, err
	}
	d := dashboard.NewDashboard()
	from := b.From
	if from == "" {
		from = "now-6h"
	}
	d.Uid, d.Title, d.Description = new(b.UID), new(b.Title), new(b.Question)
	d.Tags = []string{tag}
	d.GraphTooltip = new(dashboard.DashboardCursorSyncCrosshair)
	d.Time = &dashboard.DashboardDashboardTime{From: from, To: "now"}
	d.Refresh = new("1m")
	d.Links = []dashboard.DashboardLink{{
		Title: "GPU dashboards", Type: dashboard.DashboardLinkTypeDashboards, Icon: "external link",
		Tooltip: "Other dashboards, with the same time range and variables",
		Tags:    []string{tag}, AsDropdown: true, IncludeVars: true, KeepTime: true,
	}}
	for _, v := range b.Vars {
		model, err := b.renderVariable(v)
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", b.UID, err)
		}
		d.Templating.List = append(d.Templating.List, model)
	}
	for _, m := range b.Annotations {
		expr, err := b.expand(m.Expr)
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", b.UID, err)
		}
		d.Annotations.List = append(d.Annotations.List, dashboard.AnnotationQuery{
			Name: m.Name, Datasource: datasource(), Enable: m.On, IconColor: m.Color,
			Expr: new(expr), Step: new(minInterval), TitleFormat: new(m.Title), TextFormat: new(m.Text),
			TagKeys: new(m.Tags),
		})
	}
	for _, r := range grid.rows {
		var panels []dashboard.Panel
		for _, p := range r.panels {
			panel, err := b.renderPanel(p, all)
			if err != nil {
				return nil, fmt.Errorf("dashboard %s: panel %q: %w", b.UID, p.title, err)
			}
			panels = append(panels, panel)
		}
		if r.heading != nil {
			row := &dashboard.RowPanel{Type: "row", Title: new(r.row.Title), Collapsed: r.row.Collapsed,
				Id:      uint32(r.heading.id),
				GridPos: gridPos(*r.heading), Panels: []dashboard.Panel{}}
			if r.row.Collapsed {
				row.Panels, panels = panels, nil
			}
			d.Panels = append(d.Panels, dashboard.PanelOrRowPanel{RowPanel: row})
		}
		for i := range panels {
			d.Panels = append(d.Panels, dashboard.PanelOrRowPanel{Panel: &panels[i]})
		}
	}
	return d, nil
}

func datasource() *common.DataSourceRef {
	return &common.DataSourceRef{Type: new("prometheus"), Uid: new("${" + varDatasource + "}")}
}

func gridPos(p place) *dashboard.GridPos {
	return &dashboard.GridPos{X: uint32(p.x), Y: uint32(p.y), W: uint32(p.w), H: uint32(p.h)}
}

func (b Dashboard) renderVariable(v Variable) (dashboard.VariableModel, error) {
	m := dashboard.VariableModel{Type: dashboard.VariableTypeQuery, Name: v.Name, Label: new(v.Label),
		Description: new(v.Help),
		Hide:        new(dashboard.VariableHideDontHide), SkipUrlSync: new(false)}
	if v.Text != "" {
		m.Type = dashboard.VariableTypeTextbox
		m.Query = &dashboard.StringOrMap{String: new(v.Text)}
		word := dashboard.StringOrArrayOfString{String: new(v.Text)}
		m.Current = &dashboard.VariableOption{Selected: new(true), Text: word, Value: word}
		return m, nil
	}
	if v.Query == "" {
		m.Type = dashboard.VariableTypeDatasource
		m.Query = &dashboard.StringOrMap{String: new("prometheus")}
		m.Refresh = new(dashboard.VariableRefreshOnDashboardLoad)
		return m, nil
	}
	query, err := b.expand(v.Query)
	if err != nil {
		return m, fmt.Errorf("variable %s: %w", v.Name, err)
	}
	m.Datasource = datasource()
	m.Query, m.Definition = &dashboard.StringOrMap{String: new(query)}, new(query)
	m.Refresh = new(dashboard.VariableRefreshOnTimeRangeChanged)
	m.Sort = new(dashboard.VariableSortAlphabeticalCaseInsensitiveAsc)
	if v.Regex != "" {
		m.Regex = new(v.Regex)
	}
	m.Multi, m.IncludeAll = new(v.Multi), new(v.Multi && !v.Some)
	if v.Hidden {
		m.Hide, m.SkipUrlSync = new(dashboard.VariableHideHideVariable), new(true)
	}
	if v.Multi && !v.Some {
		m.Current = &dashboard.VariableOption{Selected: new(true),
			Text:  dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value: dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}}}
	}
	if v.Multi && !v.Hidden {
		m.AllValue = new(".*")
	}
	return m, nil
}

func (b Dashboard) renderPanel(p placedPanel, all []Dashboard) (dashboard.Panel, error) {
	p.links = slices.Clone(p.links)
	for i, l := range p.links {
		p.links[i] = b.carry(l, all)
	}
	p.columns = slices.Clone(p.columns)
	for i, c := range p.columns {
		if c.link != nil {
			p.columns[i].link = new(b.carry(*c.link, all))
		}
	}
	out := *dashboard.NewPanel()
	out.Type, out.Id, out.Title, out.Description = string(p.kind), new(uint32(p.at.id)), new(p.title), new(p.help)
	out.PluginVersion, out.GridPos = new(pluginVersion), gridPos(p.at)
	out.RepeatDirection = nil
	if p.kind != kindText {
		*out.Description += p.hint(p.kind == kindStat, " Switch: %s.")
		out.Datasource = datasource()
		out.Interval = new(minInterval)
		if p.points > 0 {
			out.MaxDataPoints = new(float64(p.points))
		}
	}
	for i, query := range p.allQueries() {
		expr, err := b.expand(query.Expr)
		if err != nil {
			return out, err
		}
		target := prometheus.Dataquery{Expr: expr, RefId: new(refID(i)), Datasource: datasource(),
			EditorMode: new(prometheus.QueryEditorModeCode)}
		switch p.kind {
		case kindTable:
			target.Format, target.Instant, target.Range = new(prometheus.PromQueryFormatTable), new(true), new(false)
		case kindBars, kindStat:
			// Asked once, for now: the last of a range would go on showing what an exporter said before it died.
			target.Format, target.Instant, target.Range = new(prometheus.PromQueryFormatTimeSeries), new(true),
				new(false)
		default:
			target.Format, target.Instant, target.Range = new(prometheus.PromQueryFormatTimeSeries), new(false),
				new(true)
		}
		legend := query.Legend
		if legend == "" && p.kind != kindTable {
			legend = p.title
		}
		if legend != "" {
			target.LegendFormat = new(legend)
		}
		out.Targets = append(out.Targets, variants.Dataquery(target))
	}
	out.Options = p.options()
	if p.kind == kindTable {
		out.Transformations = p.transformations()
	}
	if p.kind == kindText {
		out.FieldConfig = nil
		return out, nil
	}
	out.FieldConfig = &dashboard.FieldConfigSource{Defaults: p.defaults(), Overrides: p.overrides()}
	return out, nil
}

// refID names queries A to Z, then A1 and on.
func refID(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return string(rune('A'+i%26)) + fmt.Sprint(i/26)
}

func thresholds(steps []Step) *dashboard.ThresholdsConfig {
	t := &dashboard.ThresholdsConfig{Mode: dashboard.ThresholdsModeAbsolute}
	if len(steps) == 0 {
		steps = plainSteps()
	}
	for i, s := range steps {
		if i == 0 {
			t.Steps = append(t.Steps, dashboard.Threshold{Color: s.Color})
			continue
		}
		t.Steps = append(t.Steps, dashboard.Threshold{Value: new(s.From), Color: s.Color})
	}
	return t
}

func valueMappings(all []Mapping) []dashboard.ValueMapping {
	if len(all) == 0 {
		return nil
	}
	options := map[string]dashboard.ValueMappingResult{}
	for i, m := range all {
		options[m.Value] = dashboard.ValueMappingResult{Text: new(m.Text), Color: new(m.Color), Index: new(int32(i))}
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText,
		Options: options}}}
}

// dataLinks are links of values. Placement stays empty: a value's link has no place in a menu.
func dataLinks(links []Link, k kind) []dashboard.DashboardLink {
	var out []dashboard.DashboardLink
	for _, l := range links {
		out = append(out, dashboard.DashboardLink{Title: l.Title, Type: dashboard.DashboardLinkTypeLink,
			Url: new(l.url(k)), Tags: []string{}, KeepTime: true})
	}
	return out
}

func (p Panel) defaults() dashboard.FieldConfig {
	f := dashboard.FieldConfig{Unit: new(string(p.unit)), Min: p.limits[0], Max: p.limits[1],
		Thresholds: thresholds(p.steps), Mappings: valueMappings(p.mappings)}
	if p.decimals >= 0 {
		f.Decimals = new(float64(p.decimals))
	}
	f.Links = dataLinks(p.links, p.kind)
	f.NoValue = new(p.emptyNeeds() + p.hint(p.kind != kindStat, " (switch: %s)"))
	f.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdThresholds}
	if p.kind == kindSeries {
		f.Color.Mode = dashboard.FieldColorModeIdPaletteClassic
	}
	if c := p.custom(); c != nil {
		f.Custom = c
	}
	return f
}

// needs are what a panel needs, by what its query reads; those of a record are those of the series that its name has.
var needs = []struct {
	reads *regexp.Regexp
	what  string
}{
	{regexp.MustCompile(`:gpu_`), "rules"},
	{regexp.MustCompile(`\bkube_|:gpu_requests`), "kube-state-metrics"},
	{regexp.MustCompile(`\bnode_(cpu|memory|network)_`), "node_exporter"},
	{regexp.MustCompile(regexp.QuoteMeta(priceSeries)), "prices of models"},
	{regexp.MustCompile(`\b(workload|namespace|pod):gpu_|\bgpu_container_|:gpu_(requests|by_pods|pods)|_by_resource`),
		"pods with GPUs"},
	{regexp.MustCompile(`\b(node|model|cluster):gpu_((un)?alloc|schedulable)|\bgpu_allocation_ratio|gpu_node_allocat`),
		"known allocation"},
	{regexp.MustCompile(`gpu_(container_)?(unattributed_)?(busy|observed|measured)|(workload|namespace):gpu_power|gpu_container_energy`),
		"measured activity"},
	{regexp.MustCompile(`\bgpu_(sm|tensor|dram|pipe)_active`), "Hopper or newer"},
	{regexp.MustCompile(`\bgpu_mig_(busy|sm_active)`), "MIG devices of Hopper or newer"},
	{regexp.MustCompile(`\bgpu_mig_(allocation|info|memory|share)`), "MIG devices"},
}

// recordGroups are the groups of metrics that records come from, by their names.
var recordGroups = []struct {
	reads *regexp.Regexp
	group string
}{
	{regexp.MustCompile(`^(node|gpu|model|cluster):gpu_(busy|observed|sm_active|tensor|activity)`), "activity"},
	{regexp.MustCompile(`:gpu_(\w*alloc(ation|atable|ated_devices)|unallocated_devices|schedulable|by_pods|pods|shared|use_over)`),
		"allocation"},
	{regexp.MustCompile(`^(workload|namespace|pod|container):gpu_(busy|observed|measured|unused|power|memory|last|allocated|` +
		`shared|use|team)|:gpu_(unattributed|attribution)`), "containers"},
	{regexp.MustCompile(`^(node|gpu|model|cluster):gpu_power`), "power"},
	{regexp.MustCompile(`^(node|gpu|model|cluster):gpu_memory`), "memory"},
	{regexp.MustCompile(`:gpu_temperature`), "temperature"},
	{regexp.MustCompile(`:gpu_clock`), "clocks"},
	{regexp.MustCompile(`:gpu_(xid|ecc)`), "errors"},
	{regexp.MustCompile(`:gpu_(exporter|nodes)`), "exporter"},
	{regexp.MustCompile(`:gpu_(model|driver|device|health|problems|verdicts|time|node_devices|last_read|unavailable)`), "identity"},
}

// ourName finds names of metrics and records.
var ourName = regexp.MustCompile(`\b(?:[a-z]+:)?gpu_[a-z0-9_]+(?::[a-z0-9_]+)?`)

// switches are the flags that export what a query reads, where somebody has switched that off.
func switches(expr string) string {
	found := map[string]bool{}
	for _, name := range ourName.FindAllString(expr, -1) {
		for _, r := range recordGroups {
			if r.reads.MatchString(name) {
				found["--collector."+r.group] = true
			}
		}
		for _, g := range catalog.Groups() {
			if slices.ContainsFunc(g.Rows, func(f catalog.Family) bool {
				return f.Name == name || f.Type == catalog.Histogram && strings.HasPrefix(name, f.Name+"_")
			}) {
				found["--collector."+g.Name] = true
			}
		}
	}
	if len(found) > 1 {
		delete(found, "--collector.identity")
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), ", ")
}

// hint names the switches of the metrics of an empty panel. A tile has them in its description: Grafana shrinks a text until it fits.
func (p Panel) hint(here bool, format string) string {
	if s := switches(p.allQueries()[0].Expr); here && s != "" {
		return fmt.Sprintf(format, s)
	}
	return ""
}

// emptyNeeds is what the query needs. What is missing is unknown here: it names all.
func (p Panel) emptyNeeds() string {
	if p.empty != "" {
		return p.empty
	}
	var all []string
	for _, n := range needs {
		if n.reads.MatchString(p.allQueries()[0].Expr) { // the other queries add to it
			all = append(all, n.what)
		}
	}
	switch last := len(all) - 1; {
	case last < 0:
		return "not supported or not reported"
	case last == 0 && all[0] == "rules":
		return "needs rules and GPUs that report it"
	case last == 0:
		return "needs " + all[0]
	default:
		return "needs " + strings.Join(all[:last], ", ") + " and " + all[last]
	}
}

func byName(name string, properties ...dashboard.DynamicConfigValue) dashboard.DashboardFieldConfigSourceOverrides {
	return dashboard.DashboardFieldConfigSourceOverrides{Matcher: dashboard.MatcherConfig{Id: "byName", Options: name},
		Properties: properties}
}

func property(id string, value any) dashboard.DynamicConfigValue {
	return dashboard.DynamicConfigValue{Id: id, Value: value}
}

func (p Panel) overrides() []dashboard.DashboardFieldConfigSourceOverrides {
	out := []dashboard.DashboardFieldConfigSourceOverrides{}
	for _, name := range slices.Sorted(maps.Keys(p.colors)) {
		out = append(out, byName(name, property("color", map[string]any{"mode": "fixed", "fixedColor": p.colors[name]})))
	}
	for _, name := range slices.Sorted(maps.Keys(p.seriesSteps)) {
		out = append(out, byName(name, property("thresholds", thresholds(p.seriesSteps[name]))))
	}
	for i, c := range p.columns {
		// An empty cell is unknown, which the table's own text for no rows does not say.
		properties := []dashboard.DynamicConfigValue{property("displayName", c.title), property("unit", string(c.unit)),
			property("noValue", "–"), property("custom.wrapHeaderText", true)}
		width, fixed := c.pixels()
		if fixed {
			properties = append(properties, property("custom.width", width))
		} else {
			properties = append(properties, property("custom.minWidth", width))
		}
		if c.label != "" && fixed && width > 100 { // the filter's icon takes room from the title
			properties = append(properties, property("custom.filterable", true))
		}
		if digits := columnDigits[c.unit]; digits > 0 {
			properties = append(properties, property("decimals", digits))
		}
		if c.hidden { // as Grafana 10 to 12 spell it, and 13
			properties = append(properties, property("custom.hidden", true), property("custom.hideFrom",
				common.HideSeriesConfig{Viz: true}))
		}
		if c.link != nil {
			properties = append(properties, property("links", dataLinks([]Link{*c.link}, kindTable)))
		}
		if len(c.names) > 0 || c.bar {
			all := valueMappings(c.names)
			if c.bar { // what is unknown is no bar of 0 %
				all = append(all, dashboard.ValueMapping{SpecialValueMap: &dashboard.SpecialValueMap{
					Type: dashboard.MappingTypeSpecialValue, Options: dashboard.DashboardSpecialValueMapOptions{
						Match:  dashboard.SpecialValueMatchNullAndNan,
						Result: dashboard.ValueMappingResult{Text: new("–"), Color: new("transparent"), Index: new(int32(0))}}}})
			}
			properties = append(properties, property("mappings", all))
		}
		if c.unit == Ratio {
			properties = append(properties, property("min", 0), property("max", 1))
		}
		switch {
		case c.bar:
			properties = append(properties, property("thresholds", thresholds(c.steps)),
				property("custom.cellOptions", common.TableBarGaugeCellOptions{Type: common.TableCellDisplayModeGauge,
					Mode: new(common.BarGaugeDisplayModeBasic), ValueDisplayMode: new(common.BarGaugeValueModeText)}))
		case len(c.steps) > 0 || len(c.names) > 0:
			properties = append(properties, property("thresholds", thresholds(c.steps)),
				property("custom.cellOptions", common.TableColorTextCellOptions{Type: common.TableCellDisplayModeColorText}))
		}
		out = append(out, byName(p.fieldName(i), properties...))
	}
	return out
}

// columnWidths are wide enough for the usual names; without them all columns are equally wide, and names are cut.
var columnWidths = map[string]int{"node": 170, "namespace": 130, "pod": 250, "workload": 210, "model": 220, "uuid": 350, "mig_uuid": 365,
	"resource": 180, "container": 130, "xid": 250, "alertname": 230, "workload_type": 100, "cluster": 90, "call": 380}

// pixels is how wide a column is. One that is not fixed is at least so wide, and gets an equal part of what others leave.
func (c Column) pixels() (width int, fixed bool) {
	switch {
	case c.width > 0:
		return c.width, !c.grows
	case columnWidths[c.label] > 0:
		return columnWidths[c.label], true
	case c.unit == When:
		return 145, true // a few seconds ago
	}
	if c.bar { // beside the number there is a bar
		return max(95, titleWidth(c.title)), false
	}
	return titleWidth(c.title), false
}

// titleWidth is the width that a title takes when it is wrapped between words, in pixels: Grafana cuts what is longer.
func titleWidth(title string) int {
	longest := 0
	for word := range strings.FieldsSeq(title) {
		longest = max(longest, len(word))
	}
	return max(64, 8*longest+28)
}

// columnDigits are the decimals of columns: one precision in each.
var columnDigits = map[Unit]int{Hours: 1, Celsius: 0, KWh: 1, Ratio: 1}

// fieldName is Grafana's name of a table's column: the label, or Value with the refId where there are several.
func (p Panel) fieldName(column int) string {
	if l := p.columns[column].label; l != "" {
		return l
	}
	values := p.valueColumns()
	if len(values) == 1 {
		return "Value"
	}
	n := 0
	for _, c := range p.columns[:column] {
		if c.label == "" {
			n++
		}
	}
	return "Value #" + refID(n)
}

var grouping = regexp.MustCompile(`\bby\s*\(([^()]+)\)`)

// transformations merge a table's queries into one row per combination of labels and put the columns in order.
func (p Panel) transformations() []dashboard.DataTransformerConfig {
	order := map[string]any{}
	for i := range p.columns {
		order[p.fieldName(i)] = i
	}
	// What queries group by and no column shows, such as the cluster where there is one, is left out.
	hidden := map[string]any{"Time": true}
	for _, c := range p.columns {
		for _, list := range grouping.FindAllStringSubmatch(c.expr, -1) {
			for _, name := range strings.Split(list[1], ",") {
				name = strings.TrimSpace(name)
				if !slices.ContainsFunc(p.columns, func(o Column) bool { return o.label == name }) {
					hidden[name] = true
				}
			}
		}
	}
	return []dashboard.DataTransformerConfig{
		{Id: "merge", Options: map[string]any{}},
		{Id: "organize", Options: map[string]any{"excludeByName": hidden, "indexByName": order,
			"renameByName": map[string]any{}}},
	}
}

// carry adds the variables that both dashboards have and the link does not set.
func (b Dashboard) carry(l Link, all []Dashboard) Link {
	for _, target := range all {
		for _, v := range target.Vars {
			sets := slices.ContainsFunc(l.Vars, func(have LinkVar) bool { return have.Name == v.Name })
			if target.UID == l.UID && !sets && !v.Hidden && v.Name != varDatasource && v.Name != varCluster &&
				b.has(v.Name) {
				l.Vars = append(slices.Clone(l.Vars), hand(v.Name))
			}
		}
	}
	return l
}
