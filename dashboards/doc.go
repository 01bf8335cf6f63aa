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
