// Package alerts holds the recording rules and the alerts as Go tables, and writes the rules files from
// them: plain ones for Prometheus and vmalert, and the PrometheusRule for its operator.
//
// Nothing here reaches the exporter's binary.
package alerts
