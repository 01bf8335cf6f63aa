// Package dashboards holds the Grafana dashboards as Go tables and writes their JSON.
//
// A dashboard is a value: rows of panels, each with its question, its unit, its query and what its empty
// panel means. The house layer turns such a table into the classic dashboard schema that Grafana 10 to 13
// load from files, ConfigMaps, the API and the operator, and refuses a table that breaks a law: a line wider than the
// grid, an id that stands twice, a query that names a metric which does not exist, a link to nowhere.
//
// Above node level (fleet, capacity, namespace, health) the dashboards read the recording rules of package
// alerts and never a raw series; at node, GPU and pod level they read what the exporter exposes.
//
// Nothing here reaches the exporter's binary: tests write the files that are shipped.
package dashboards

import "slices"

// Dashboard is one dashboard. Its UID and the names of its variables are an interface: people bookmark them.
type Dashboard struct {
	UID, Title string
	// Question is what the dashboard is for; it is the description in Grafana's list.
	Question string
	Vars     []Variable
	Rows     []Row
	// Raw is true for dashboards at node, GPU or pod level, which may read what the exporter exposes. The others
	// read recording rules alone.
	Raw bool
	// From is how far back it looks when opened: "now-6h" where it is empty.
	From string
	// Marks names the annotations that it offers.
	Annotations []Annotation
}

// Row is a part of a dashboard under a heading. The first row has none and has the key figures.
type Row struct {
	Title     string
	Collapsed bool
	Lines     []Line
}

// Line is panels side by side, all of one height. Their widths come to at most 24.
type Line struct {
	Height int
	Panels []Panel
}

func line(height int, panels ...Panel) Line { return Line{Height: height, Panels: panels} }

// All returns the shipped dashboards, in the order in which one drills down.
func All() []Dashboard {
	return []Dashboard{
		fleetDashboard(), capacityDashboard(), namespaceDashboard(), healthDashboard(), nodeDashboard(), gpuDashboard(),
		workloadDashboard(), sharingDashboard(), exporterDashboard(),
	}
}

// Without returns the dashboard without the panels of these titles.
func (b Dashboard) Without(titles ...string) Dashboard {
	b.Rows = slices.Clone(b.Rows)
	for i := range b.Rows {
		b.Rows[i].Lines = slices.Clone(b.Rows[i].Lines)
		for j, l := range b.Rows[i].Lines {
			b.Rows[i].Lines[j].Panels = slices.DeleteFunc(slices.Clone(l.Panels), func(p Panel) bool {
				return slices.Contains(titles, p.title)
			})
		}
	}
	return b
}

func (b Dashboard) has(variable string) bool {
	return slices.ContainsFunc(b.Vars, func(v Variable) bool { return v.Name == variable })
}
