// Package report answers where the hours of a fleet's GPUs went, and what would get the wasted ones back.
//
// It reads the history that gpu-exporter left in a Prometheus-compatible API (package prom), first the
// nodes, then one namespace after the other, so that memory follows from the largest namespace and not from
// the fleet. Every cell of the account is summed on its own; what they fail to add up to is printed as the
// closing error and never put into a cell. Advice is given by rules, each with its reason, the evidence, why not a smaller
// size, and what to change; a rule that does not apply says why, too.
//
// The result is a Document: package render shows it. Equal history, options and now give an equal document.
package report
