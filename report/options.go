package report

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

// Options say what to report on. Their zero values are not useful: start with Defaults.
type Options struct {
	From, To time.Time
	// Month is the length of the month that monthly figures are of; 0 is that of a mean month.
	Month time.Duration
	// Now is printed as the time of the report.
	Now  time.Time
	Step time.Duration
	// Match are extra matchers for every selector, such as cluster="prod".
	Match string
	// ClusterLabel is the label that names the cluster.
	ClusterLabel string
	// PoolLabel is the label of nodes that names their pool; empty tries the usual ones, then the nodes' names.
	PoolLabel string
	// GroupLabel is the label of pods or namespaces by which workloads are added up; empty is none.
	GroupLabel string
	Prices     *prices.List
	// ShareCost adds to each namespace and group its part of the cost that belongs to none.
	ShareCost bool
	// DCGM reads the metrics of dcgm-exporter.
	DCGM bool
	// RemovedAfter is how long a node must be without samples at the end of the period to count as removed.
	RemovedAfter time.Duration
	// Parallel is the number of namespaces that are read at a time.
	Parallel int
	// Zone is the time zone of hours of the day, weekends and months; nil is UTC.
	Zone   *time.Location
	Advice Guards
	// Progress is called with what is being read, of how many parts how many are done; nil is fine.
	Progress func(stage string, done, total int)
}

// Guards are the conditions of advice.
type Guards struct {
	// Observed is how long a workload must have had its GPUs before its size is judged, Idle how long it must have been
	// idle before its release is recommended.
	Observed, Idle time.Duration
	// Coverage is the fraction of that time that must be known.
	Coverage float64
	// Saving is the minimum number of GPUs, as a mean over the period, that is worth a line.
	Saving float64
	// Budget is the fraction of time in which the demand may exceed what is recommended.
	Budget float64
}

// Defaults are the defaults of the flags.
func Defaults() Options {
	return Options{Step: 5 * time.Minute, ClusterLabel: "cluster", RemovedAfter: day, Parallel: 2,
		Advice: Guards{Observed: 7 * day, Idle: day, Coverage: 0.95, Saving: 0.02, Budget: 0.001}}
}

// Validate returns an error about options that contradict each other.
func (o *Options) Validate() error {
	steps := series.NewPeriod(o.From, o.To, o.Step).Steps()
	switch {
	case !o.To.After(o.From):
		return fmt.Errorf("the period ends (%s) before it begins (%s): --from must be earlier than --to",
			o.To.Format(time.RFC3339), o.From.Format(time.RFC3339))
	case steps < 12:
		return fmt.Errorf("the period must be at least 1h, got %d steps of %s", steps, o.Step)
	case steps > 200_000:
		return fmt.Errorf("the period has %d steps of %s, the maximum is 200000: use a later --from", steps, o.Step)
	case o.ClusterLabel == "" || strings.ContainsAny(o.ClusterLabel, " ,(){}\""):
		return fmt.Errorf("--cluster-label must be the name of a label, got %q", o.ClusterLabel)
	case !(o.Advice.Budget > 0 && o.Advice.Budget <= 0.5):
		return fmt.Errorf("--advice.budget must be above 0 and at most 0.5, got %g", o.Advice.Budget)
	case strings.ContainsAny(o.Match, "{}"):
		return errors.New(`--match takes matchers without braces, such as cluster="prod"`)
	}
	return nil
}

// zone is the time zone of the report.
func (o *Options) zone() *time.Location { return cmp.Or(o.Zone, time.UTC) }
