package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// option is something that a panel may ask for. The path is that of the panel's JSON without the names of
// lists; one that ends in a point stands for everything below it. Kinds are the panels that have it, all where
// empty. Values are those that are drawn as Grafana draws them; nil: whatever it is.
type option struct {
	path   string
	kinds  string
	values []any
}

// options lists what the preview knows: what it draws, and what makes no difference on a page that stands
// still (tooltips, editing, what a click would do).
func options() []option {
	return []option{
		// The panel.
		{"id", "", nil}, {"type", "", nil}, {"title", "", nil}, {"description", "", nil}, {"gridPos.", "", nil}, {"datasource.", "", nil},
		{"pluginVersion", "", nil}, {"interval", "", nil}, {"maxDataPoints", "", nil}, {"collapsed", "", nil}, {"panels.", "", nil}, {"transparent", "", []any{false}},
		{"targets.", "", nil}, {"transformations.", "table", nil}, {"options.tooltip.", "", nil}, {"fieldConfig.matcher.", "", nil},

		// How values are written and coloured.
		{"fieldConfig.unit", "", nil}, {"fieldConfig.decimals", "", nil}, {"fieldConfig.min", "", nil}, {"fieldConfig.max", "", nil},
		{"fieldConfig.noValue", "", nil}, {"fieldConfig.displayName", "", nil}, {"fieldConfig.mappings.", "", nil}, {"fieldConfig.links.", "", nil},
		{"fieldConfig.thresholds.mode", "", []any{"absolute", "percentage"}}, {"fieldConfig.thresholds.steps.", "", nil},
		{"fieldConfig.color.mode", "", []any{"thresholds", "fixed", "palette-classic", "palette-classic-by-name"}},
		{"fieldConfig.color.fixedColor", "", nil}, {"fieldConfig.color.seriesBy", "", []any{"last"}},
		{"fieldConfig.custom.hideFrom.", "", nil},

		// Graphs.
		{"fieldConfig.custom.drawStyle", "timeseries", []any{"line", "bars"}}, {"fieldConfig.custom.lineInterpolation", "timeseries", []any{"linear", "stepAfter"}},
		{"fieldConfig.custom.lineWidth", "timeseries", nil}, {"fieldConfig.custom.fillOpacity", "timeseries", nil},
		{"fieldConfig.custom.gradientMode", "timeseries", []any{"none"}}, {"fieldConfig.custom.showPoints", "timeseries", []any{"never", "auto"}},
		{"fieldConfig.custom.pointSize", "timeseries", nil}, {"fieldConfig.custom.spanNulls", "timeseries state-timeline", nil},
		{"fieldConfig.custom.stacking.mode", "timeseries", []any{"none", "normal", "percent"}}, {"fieldConfig.custom.stacking.group", "timeseries", []any{"A"}},
		{"fieldConfig.custom.thresholdsStyle.mode", "timeseries", []any{"off", "line", "dashed", "area", "line+area", "dashed+area"}},
		{"fieldConfig.custom.axisPlacement", "timeseries", []any{"auto", "left"}}, {"fieldConfig.custom.axisLabel", "timeseries", nil},
		{"fieldConfig.custom.axisSoftMin", "timeseries", nil}, {"fieldConfig.custom.axisSoftMax", "timeseries", nil},
		{"fieldConfig.custom.axisColorMode", "timeseries", []any{"text"}}, {"fieldConfig.custom.axisBorderShow", "timeseries", []any{false}},
		{"fieldConfig.custom.axisCenteredZero", "timeseries", []any{false}}, {"fieldConfig.custom.barAlignment", "timeseries", []any{0.0}},
		{"fieldConfig.custom.insertNulls", "timeseries", []any{false}}, {"fieldConfig.custom.lineStyle.", "timeseries", nil},
		{"fieldConfig.custom.scaleDistribution.type", "timeseries heatmap", []any{"linear"}},
		{"options.legend.showLegend", "timeseries state-timeline bargauge", nil}, {"options.legend.displayMode", "timeseries state-timeline bargauge", []any{"list", "table", "hidden"}},
		{"options.legend.placement", "timeseries state-timeline bargauge", []any{"bottom", "right"}}, {"options.legend.calcs.", "timeseries state-timeline bargauge", nil},
		{"options.legend.sortBy", "timeseries", nil}, {"options.legend.sortDesc", "timeseries", nil},

		// Numbers.
		{"options.reduceOptions.calcs.", "stat gauge bargauge", nil}, {"options.reduceOptions.fields", "stat gauge bargauge", []any{""}},
		{"options.reduceOptions.values", "stat gauge bargauge", []any{false}}, {"options.orientation", "stat gauge", []any{"auto", "horizontal", "vertical"}},
		{"options.orientation", "bargauge", []any{"horizontal"}},
		{"options.graphMode", "stat", []any{"none", "area"}}, {"options.colorMode", "stat", []any{"value", "background", "background_solid", "none"}},
		{"options.textMode", "stat", []any{"auto", "value", "value_and_name", "name", "none"}}, {"options.justifyMode", "stat", []any{"auto", "center"}},
		{"options.wideLayout", "stat", nil}, {"options.showPercentChange", "stat", []any{false}}, {"options.percentChangeColorMode", "stat", nil},
		{"options.displayMode", "bargauge", []any{"basic", "gradient"}}, {"options.showUnfilled", "bargauge", []any{true}}, {"options.valueMode", "bargauge", []any{"color"}},
		{"options.namePlacement", "bargauge", []any{"auto", "left"}}, {"options.sizing", "bargauge gauge", []any{"auto"}},
		{"options.minVizHeight", "bargauge gauge", nil}, {"options.minVizWidth", "bargauge gauge", nil}, {"options.maxVizHeight", "bargauge gauge", nil},
		{"options.showThresholdLabels", "gauge", []any{false}}, {"options.showThresholdMarkers", "gauge", []any{false}},

		// Tables.
		{"fieldConfig.custom.align", "table", []any{"auto", "left", "right"}}, {"fieldConfig.custom.cellOptions.type", "table", []any{"auto", "gauge", "color-text", "color-background"}},
		{"fieldConfig.custom.cellOptions.mode", "table", []any{"basic", "gradient"}}, {"fieldConfig.custom.cellOptions.valueDisplayMode", "table", []any{"text"}},
		{"fieldConfig.custom.width", "table", nil}, {"fieldConfig.custom.minWidth", "table", nil}, {"fieldConfig.custom.hidden", "table", nil}, {"fieldConfig.custom.filterable", "table", nil}, {"fieldConfig.custom.inspect", "table", nil},
		{"options.cellHeight", "table", nil}, {"options.footer.show", "table", []any{false}}, {"options.footer.", "table", nil}, {"options.frameIndex", "table", []any{0.0}},
		{"options.showHeader", "table", nil}, {"options.showTypeIcons", "table", []any{false}}, {"options.sortBy.", "table", nil},

		// States.
		{"fieldConfig.custom.fillOpacity", "state-timeline", nil}, {"fieldConfig.custom.lineWidth", "state-timeline", []any{0.0}},
		{"options.alignValue", "state-timeline", nil}, {"options.mergeValues", "state-timeline", []any{true}}, {"options.perPage", "state-timeline", nil},
		{"options.rowHeight", "state-timeline", nil}, {"options.showValue", "state-timeline", []any{"never", "auto", "always"}},

		// Heat.
		{"options.calculate", "heatmap", []any{false}}, {"options.cellGap", "heatmap", nil}, {"options.cellValues.unit", "heatmap", nil},
		{"options.color.mode", "heatmap", []any{"scheme"}}, {"options.color.", "heatmap", nil}, {"options.exemplars.", "heatmap", nil}, {"options.filterValues.", "heatmap", nil},
		{"options.legend.show", "heatmap", nil}, {"options.selectionMode", "heatmap", nil}, {"options.showValue", "heatmap", []any{"never"}},
		{"options.yAxis.axisPlacement", "heatmap", []any{"left"}}, {"options.yAxis.unit", "heatmap", []any{"none", "short"}}, {"options.yAxis.reverse", "heatmap", []any{false}},
		{"options.rowsFrame.", "heatmap", nil},

		// Words and alerts.
		{"options.mode", "text", []any{"markdown"}}, {"options.content", "text", nil}, {"options.code.", "text", nil},
	}
}

// Unknown lists what a panel asks for and the preview does not draw, each with its value.
func Unknown(p board.Panel) ([]string, error) {
	var tree map[string]any
	if err := json.Unmarshal(p.Raw, &tree); err != nil {
		return nil, err
	}
	var out []string
	known := options()
	leaf := func(path string, value any) {
		text := fmt.Sprintf("%s = %v", path, value)
		if !allowed(known, p.Type, path, value) && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if config, ok := tree["fieldConfig"].(map[string]any); ok {
		delete(tree, "fieldConfig")
		walk("fieldConfig", config["defaults"], leaf)
		overrides, _ := config["overrides"].([]any)
		for _, o := range overrides {
			object, _ := o.(map[string]any)
			properties, _ := object["properties"].([]any)
			for _, property := range properties {
				one, _ := property.(map[string]any)
				walk(fmt.Sprintf("fieldConfig.%v", one["id"]), one["value"], leaf)
			}
		}
	}
	if p.Type != "row" {
		walk("", tree, leaf)
	}
	slices.Sort(out)
	return out, nil
}

// walk calls f for every value of a tree. Nulls and empty lists and objects ask for nothing.
func walk(path string, value any, f func(string, any)) {
	switch v := value.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			at := k
			if path != "" {
				at = path + "." + k
			}
			walk(at, v[k], f)
		}
	case []any:
		for _, one := range v {
			walk(path+".", one, f)
		}
	case nil:
	default:
		f(strings.ReplaceAll(path, "..", "."), value)
	}
}

// allowed looks at the first option that fits the path.
func allowed(known []option, kind, path string, value any) bool {
	for _, o := range known {
		if o.kinds != "" && !slices.Contains(strings.Fields(o.kinds), kind) {
			continue
		}
		if o.path != path && !(strings.HasSuffix(o.path, ".") && strings.HasPrefix(path+".", o.path)) {
			continue
		}
		return o.values == nil || slices.Contains(o.values, value)
	}
	return false
}
