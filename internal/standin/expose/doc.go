// Package expose shows a fleet that internal/standin/fleet plays: as the pages of its exporters and of
// kube-state-metrics, as targets for Prometheus to discover, and as a history to be read into a database.
//
// What an exporter shows is rendered by the product's own catalog and collector, so that names, labels and
// help of a simulated fleet cannot drift from those of a real one.
package expose
