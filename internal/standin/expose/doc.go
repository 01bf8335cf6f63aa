// Package expose serves a simulated fleet: the pages of its exporters and of kube-state-metrics, the targets for
// service discovery, and a history to import into a database.
//
// Pages are rendered by the exporter's own catalog and collector, so that names, labels and help texts of a simulated
// fleet cannot drift from those of a real one.
package expose
