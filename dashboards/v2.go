package dashboards

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	v2 "github.com/grafana/grafana-foundation-sdk/go/dashboardv2"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/resource"
)

// apiVersion is the stable version of the schema, of Grafana 13; the SDK names only its predecessors.
const apiVersion = "dashboard.grafana.app/v2"

// resourceOf converts a dashboard of the classic schema to a resource of schema v2, as Grafana converts it when it loads one
// (grafana/grafana 000803c, apps/dashboard/pkg/migration/conversion/v1_to_v2alpha1.go and v2alpha1_to_v2beta1.go).
func resourceOf(d *dashboard.Dashboard) (*resource.Manifest, error) {
	spec := v2.NewDashboard()
	spec.Title, spec.Description, spec.Tags, spec.CursorSync = *d.Title, d.Description, d.Tags, v2.DashboardCursorSyncCrosshair
	spec.TimeSettings.From, spec.TimeSettings.To, spec.TimeSettings.AutoRefresh = d.Time.From, d.Time.To, *d.Refresh
	for _, l := range d.Links {
		to := v2.DashboardLink{Title: l.Title, Type: v2.DashboardLinkType(l.Type), Icon: l.Icon, Tooltip: l.Tooltip, Tags: l.Tags,
			AsDropdown: l.AsDropdown, IncludeVars: l.IncludeVars, KeepTime: l.KeepTime}
		spec.Links = append(spec.Links, to)
	}
	for _, v := range d.Templating.List {
		spec.Variables = append(spec.Variables, variableV2(v))
	}
	for _, a := range d.Annotations.List {
		to := v2.NewAnnotationQueryKind()
		to.Spec.Name, to.Spec.Enable, to.Spec.IconColor, to.Spec.Query = a.Name, a.Enable, a.IconColor, queryV2(map[string]any{})
		to.Spec.LegacyOptions = map[string]any{"expr": *a.Expr, "step": *a.Step, "titleFormat": *a.TitleFormat,
			"textFormat": *a.TextFormat, "tagKeys": *a.TagKeys}
		spec.Annotations = append(spec.Annotations, *to)
	}
	rows := v2.NewRowsLayoutKind()
	spec.Layout.RowsLayoutKind = rows
	var grid *v2.GridLayoutKind // of the current row
	y := 0                      // below its heading
	begin := func(title string, collapsed, hidden bool, top int) {
		grid, y = v2.NewGridLayoutKind(), top
		row := v2.NewRowsLayoutRowKind()
		row.Spec.Title, row.Spec.Collapse = &title, &collapsed
		if hidden {
			row.Spec.HideHeader = &hidden
		}
		row.Spec.Layout.GridLayoutKind = grid
		rows.Spec.Rows = append(rows.Spec.Rows, *row)
	}
	add := func(p *dashboard.Panel) error {
		panel, err := panelV2(p)
		if err != nil {
			return fmt.Errorf("panel %q: %w", *p.Title, err)
		}
		item := v2.NewGridLayoutItemKind()
		item.Spec.Element.Name = fmt.Sprintf("panel-%d", *p.Id)
		item.Spec.X, item.Spec.Y = int64(p.GridPos.X), int64(p.GridPos.Y)-int64(y)
		item.Spec.Width, item.Spec.Height = int64(p.GridPos.W), int64(p.GridPos.H)
		grid.Spec.Items = append(grid.Spec.Items, *item)
		spec.Elements[item.Spec.Element.Name] = v2.Element{PanelKind: panel}
		return nil
	}
	for _, p := range d.Panels {
		if p.RowPanel != nil {
			begin(*p.RowPanel.Title, p.RowPanel.Collapsed, false, int(p.RowPanel.GridPos.Y)+1)
			for i := range p.RowPanel.Panels {
				if err := add(&p.RowPanel.Panels[i]); err != nil {
					return nil, err
				}
			}
			continue
		}
		if grid == nil {
			begin("", false, true, 0)
		}
		if err := add(p.Panel); err != nil {
			return nil, err
		}
	}
	return &resource.Manifest{ApiVersion: apiVersion, Kind: resource.DashboardKind, Metadata: resource.Metadata{Name: *d.Uid}, Spec: spec},
		nil
}

// queryV2 is a query of the data source that the dashboard's variable names.
func queryV2(spec any) v2.DataQueryKind {
	q := v2.NewDataQueryKind()
	q.Group, q.Datasource, q.Spec = "prometheus", &v2.Dashboardv2DataQueryKindDatasource{Name: datasource().Uid}, spec
	return *q
}

// The classic schema numbers what v2 has words for.
var (
	hideV2    = []v2.VariableHide{v2.VariableHideDontHide, v2.VariableHideHideLabel, v2.VariableHideHideVariable}
	refreshV2 = []v2.VariableRefresh{v2.VariableRefreshNever, v2.VariableRefreshOnDashboardLoad, v2.VariableRefreshOnTimeRangeChanged}
)

func variableV2(v dashboard.VariableModel) v2.VariableKind {
	nothing := v2.StringOrArrayOfString{String: new("")}
	current := &v2.VariableOption{Text: nothing, Value: nothing}
	if v.Current != nil {
		current.Text, current.Value = v2.StringOrArrayOfString(v.Current.Text), v2.StringOrArrayOfString(v.Current.Value)
	}
	switch v.Type {
	case dashboard.VariableTypeTextbox:
		to := v2.NewTextVariableKind()
		s := &to.Spec
		s.Name, s.Label, s.Description, s.Hide, s.Query, s.Current = v.Name, v.Label, v.Description, hideV2[*v.Hide], *v.Query.String,
			*current
		return v2.VariableKind{TextVariableKind: to}
	case dashboard.VariableTypeDatasource:
		to := v2.NewDatasourceVariableKind()
		s := &to.Spec
		s.Name, s.Label, s.Description, s.Hide, s.PluginId = v.Name, v.Label, v.Description, hideV2[*v.Hide], *v.Query.String
		s.Refresh, s.Current = refreshV2[*v.Refresh], *current
		return v2.VariableKind{DatasourceVariableKind: to}
	}
	to := v2.NewQueryVariableKind()
	s := &to.Spec
	s.Name, s.Label, s.Description, s.Hide, s.SkipUrlSync = v.Name, v.Label, v.Description, hideV2[*v.Hide], *v.SkipUrlSync
	s.Query, s.Definition = queryV2(map[string]any{"__legacyStringValue": *v.Query.String}), v.Definition
	s.Refresh, s.Current, s.AllValue = refreshV2[*v.Refresh], *current, v.AllValue
	s.Sort, s.Multi, s.IncludeAll = v2.VariableSortAlphabeticalCaseInsensitiveAsc, *v.Multi, *v.IncludeAll
	if v.Regex != nil {
		s.Regex = *v.Regex
	}
	return v2.VariableKind{QueryVariableKind: to}
}

func panelV2(p *dashboard.Panel) (*v2.PanelKind, error) {
	to := v2.NewPanelKind()
	to.Spec.Id, to.Spec.Title, to.Spec.Description = float64(*p.Id), *p.Title, *p.Description
	data, viz := &to.Spec.Data.Spec, &to.Spec.VizConfig
	data.QueryOptions.Interval = p.Interval
	if p.MaxDataPoints != nil {
		data.QueryOptions.MaxDataPoints = new(int64(*p.MaxDataPoints))
	}
	for _, t := range p.Targets {
		query := t.(prometheus.Dataquery)
		q := v2.NewPanelQueryKind()
		q.Spec.RefId = *query.RefId
		query.RefId, query.Datasource = nil, nil
		q.Spec.Query = queryV2(query)
		data.Queries = append(data.Queries, *q)
	}
	for _, t := range p.Transformations {
		k := v2.NewTransformationKind()
		k.Group, k.Spec.Options = t.Id, t.Options
		data.Transformations = append(data.Transformations, *k)
	}
	viz.Group, viz.Version, viz.Spec.Options = p.Type, *p.PluginVersion, p.Options
	if p.FieldConfig == nil {
		return to, nil
	}
	// Both schemas write it alike.
	text, err := json.Marshal(p.FieldConfig)
	if err != nil {
		return nil, err
	}
	return to, json.Unmarshal(text, &viz.Spec.FieldConfig)
}
