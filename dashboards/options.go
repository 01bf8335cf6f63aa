package dashboards

import (
	"slices"
	"strings"

	sdkbargauge "github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	sdkheatmap "github.com/grafana/grafana-foundation-sdk/go/heatmap"
	sdkstat "github.com/grafana/grafana-foundation-sdk/go/stat"
	sdkstatetimeline "github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	sdktable "github.com/grafana/grafana-foundation-sdk/go/table"
	sdktext "github.com/grafana/grafana-foundation-sdk/go/text"
	sdktimeseries "github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func legendAtBottom() common.VizLegendOptions {
	return common.VizLegendOptions{DisplayMode: common.LegendDisplayModeList, Placement: common.LegendPlacementBottom,
		ShowLegend: true, Calcs: []string{}}
}

func lastValue() common.ReduceDataOptions {
	return common.ReduceDataOptions{Values: new(false), Calcs: []string{"lastNotNull"}, Fields: new("")}
}

// options are the panel's own settings. Tooltip, legend and orientation are always said: the SDK's empty
// ones hide legends and come out as empty words.
func (p Panel) options() any {
	allByValue := common.VizTooltipOptions{Mode: common.TooltipDisplayModeMulti, Sort: common.SortOrderDescending}
	switch p.kind {
	case kindStat:
		o := sdkstat.NewOptions()
		o.ReduceOptions, o.Orientation = lastValue(), common.VizOrientationAuto
		o.GraphMode, o.ColorMode = common.BigValueGraphModeNone, common.BigValueColorModeValue
		o.TextMode = common.BigValueTextModeValue
		if p.names != "" {
			o.TextMode = common.BigValueTextMode(p.names)
		}
		return o
	case kindSeries:
		o := sdktimeseries.NewOptions()
		o.Legend, o.Tooltip = legendAtBottom(), allByValue
		if p.width >= 12 {
			o.Legend.DisplayMode, o.Legend.Placement = common.LegendDisplayModeTable, common.LegendPlacementRight
			o.Legend.Calcs = []string{"mean", "max", "lastNotNull"}
			if slices.ContainsFunc(p.queries, func(q Query) bool { return strings.Count(q.Legend, "{{") > 1 }) {
				o.Legend.Width = new(420.0) // long names would take 60 % of the panel
			}
		}
		return o
	case kindTable:
		o := sdktable.NewOptions()
		title, descending := p.sortKey()
		o.SortBy = []common.TableSortByFieldState{{DisplayName: title, Desc: new(descending)}}
		o.Footer = &common.TableFooterOptions{Show: false, Reducer: []string{"sum"}, CountRows: new(false),
			EnablePagination: new(false)}
		return o
	case kindTimeline:
		o := sdkstatetimeline.NewOptions()
		o.Legend, o.Tooltip = legendAtBottom(), common.VizTooltipOptions{Mode: common.TooltipDisplayModeSingle,
			Sort: common.SortOrderNone}
		o.ShowValue = common.VisibilityModeNever
		return o
	case kindHeatmap:
		o := sdkheatmap.NewOptions()
		o.Color.Mode = new(sdkheatmap.HeatmapColorModeScheme)
		o.Tooltip = sdkheatmap.HeatmapTooltip{Mode: common.TooltipDisplayModeSingle, YHistogram: new(false),
			ShowColorScale: new(true)}
		o.YAxis = sdkheatmap.YAxisConfig{AxisPlacement: new(common.AxisPlacementLeft), Unit: new(string(Plain))}
		o.ShowValue = common.VisibilityModeNever
		o.CellValues = &sdkheatmap.CellValues{Unit: new(string(p.unit))}
		return o
	case kindBars:
		o := sdkbargauge.NewOptions()
		o.ReduceOptions, o.Orientation, o.DisplayMode = lastValue(), common.VizOrientationHorizontal,
			common.BarGaugeDisplayModeBasic
		o.Legend = legendAtBottom()
		o.Legend.ShowLegend = false
		return o
	default:
		o := sdktext.NewOptions()
		o.Mode, o.Content = sdktext.TextModeMarkdown, p.text
		return o
	}
}

// custom is how the values are drawn.
func (p Panel) custom() any {
	visible := &common.HideSeriesConfig{}
	switch p.kind {
	case kindSeries:
		c := common.NewGraphFieldConfig()
		c.DrawStyle, c.LineInterpolation, c.LineWidth = new(common.GraphDrawStyleLine),
			new(common.LineInterpolationLinear), new(1.0)
		c.FillOpacity, c.GradientMode, c.ShowPoints = new(10.0), new(common.GraphGradientModeNone),
			new(common.VisibilityModeNever)
		c.AxisSoftMax = p.softMax
		c.PointSize, c.AxisPlacement, c.HideFrom = new(5.0), new(common.AxisPlacementAuto), visible
		// Nothing is drawn where nothing was measured.
		c.SpanNulls = &common.BoolOrFloat64{Bool: new(false)}
		c.Stacking = &common.StackingConfig{Mode: new(common.StackingModeNone), Group: new("A")}
		c.ThresholdsStyle = &common.GraphThresholdsStyleConfig{Mode: common.GraphThresholdsStyleModeOff}
		if len(p.steps) > 0 {
			c.ThresholdsStyle.Mode = common.GraphThresholdsStyleModeDashed
		}
		switch p.stack {
		case "normal":
			c.Stacking.Mode, c.FillOpacity = new(common.StackingModeNormal), new(60.0)
		case "percent":
			c.Stacking.Mode, c.FillOpacity = new(common.StackingModePercent), new(70.0)
		}
		if p.drawBars {
			c.DrawStyle, c.FillOpacity = new(common.GraphDrawStyleBars), new(80.0)
		}
		return c
	case kindTable:
		c := common.NewTableFieldOptions()
		c.Filterable, c.Inspect = new(false), true
		// Unasked, a column takes 150 px, and a table of ten hides its last ones behind a scroll bar.
		c.MinWidth = new(64.0)
		c.CellOptions = &common.TableCellOptions{TableAutoCellOptions: &common.TableAutoCellOptions{Type: common.TableCellDisplayModeAuto}}
		return c
	case kindTimeline:
		c := sdkstatetimeline.NewFieldConfig()
		c.LineWidth, c.FillOpacity, c.HideFrom = new(uint32(0)), new(uint32(80)), visible
		c.SpanNulls = &sdkstatetimeline.BoolOrUint32{Bool: new(false)}
		return c
	case kindHeatmap:
		return &sdkheatmap.FieldConfig{HideFrom: visible,
			ScaleDistribution: &common.ScaleDistributionConfig{Type: common.ScaleDistributionLinear}}
	default:
		return nil
	}
}
