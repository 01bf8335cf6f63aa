// Package prom asks Prometheus-compatible APIs (Prometheus, Thanos, Mimir, VictoriaMetrics) for history.
//
// A range is asked for in pieces that the server is willing to answer, a bounded number at a time; what fails
// for a passing reason is asked again, what is too much is asked for in halves. A piece is handed on only
// when all of it has arrived and was read, so that no failure leaves half of its points in a sum. An answer
// that the server itself calls incomplete is used and remembered: see Client.Warnings.
package prom
