package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// metricFlags adds the flags that select what is exported. The returned function evaluates them after parsing and returns
// the alerts that cannot fire with it, of which it warns.
func metricFlags(app *kingpin.Application) func(*slog.Logger) (catalog.Selection, []string, error) {
	s := catalog.Selection{Groups: map[string]bool{}}
	size := app.Flag("metrics", "How many metrics to export: core has those that the alerts, the report and the dashboards "+
		"above node level read, default those that anything shipped reads, all the rest as well.").Default(
		catalog.SizeDefault.String()).Enum(catalog.Sizes()...)
	for _, g := range catalog.Groups() {
		app.Flag("collector."+g.Name, fmt.Sprintf("Export all metrics of %q (docs/metrics.md), with --no-collector.%s "+
			"none of them. Without it --metrics decides.", g.Title, g.Name)).SetValue(group{g.Name, s.Groups})
	}
	allow := app.Flag("metric-allowlist", "Names of metrics to export instead of those of --metrics and --collector.*: regular "+
		"expressions separated by commas, each for whole names (repeatable).").Strings()
	deny := app.Flag("metric-denylist", "Names of metrics that are not exported: regular expressions separated by commas, each "+
		"for whole names (repeatable).").Strings()
	return func(log *slog.Logger) (catalog.Selection, []string, error) {
		var unused [][2]string
		s.Size = catalog.SizeNamed(*size)
		for _, list := range []struct {
			flag string
			from []string
			to   **catalog.Names
		}{{"--metric-allowlist", *allow, &s.Allow}, {"--metric-denylist", *deny, &s.Deny}} {
			names, useless, err := catalog.ParseNames(list.from)
			if err != nil {
				return s, nil, fmt.Errorf("%s %w", list.flag, err)
			}
			for _, expr := range useless {
				unused = append(unused, [2]string{list.flag, expr})
			}
			*list.to = names
		}
		if len(s.Families()) == 0 {
			return s, nil, errors.New("--metric-allowlist, --metric-denylist and --no-collector.* leave no metric to export")
		}
		for _, u := range unused {
			log.Warn("no metric has such a name", "flag", u[0], "expression", u[1])
		}
		alerts := s.Silenced()
		silenced := slices.Sorted(maps.Keys(alerts))
		for _, name := range silenced {
			log.Warn("alert cannot fire without metrics that are not exported", "alert", name,
				"metrics", strings.Join(alerts[name], ","))
		}
		return s, silenced, nil
	}
}

// group is the switch of a group, which is not set unless somebody sets it.
type group struct {
	name string
	set  map[string]bool
}

// Set implements kingpin.Value.
func (g group) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("must be true or false, got %q", text)
	}
	g.set[g.name] = on
	return nil
}

// String implements kingpin.Value.
func (g group) String() string { return "" }

// IsBoolFlag makes kingpin offer --no-collector.NAME.
func (g group) IsBoolFlag() bool { return true }

// metricSelection applies the selection: to the driver calls, and as a feature where less than the default is exported.
func metricSelection(p *plan) (*rooms.Room, error) {
	r := &rooms.Room{}
	if p.Page == nil { // its page reads everything
		p.Driver.Unread = p.c.metrics.Unread()
	}
	var missing []string
	if p.c.metrics.Size < catalog.SizeDefault {
		missing = append(missing, "--metrics="+p.c.metrics.Size.String()+" leaves panels of the dashboards GPU, Node, Sharing and "+
			"Exporter empty; --collector.NAME adds a group")
	}
	if p.c.silenced != nil {
		missing = append(missing, "alerts that cannot fire: "+strings.Join(p.c.silenced, ", "))
	}
	r.Feature("metrics", "All metrics that the shipped alerts and dashboards read: set --metrics=default, and remove "+
		"--no-collector.*, --metric-allowlist and --metric-denylist.", true, false, func() (bool, string) {
		return missing == nil, strings.Join(missing, "; ")
	})
	return r, nil
}
