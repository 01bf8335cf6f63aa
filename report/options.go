package report

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Options say what to report on. Their zero values are not useful: begin with Defaults.
type Options struct {
	From, To time.Time
	// Now stands in the report as the moment of its making.
	Now  time.Time
	Step time.Duration
	// Match are extra matchers for every selector, such as cluster="prod".
	Match string
	// ClusterLabel is the label that names the cluster.
	ClusterLabel string
	// PoolLabel is the label of nodes that names their pool; empty: the usual ones, else the nodes' names.
	PoolLabel string
	Prices    *Prices
	// DCGM reads what dcgm-exporter left.
	DCGM bool
	// Gone is for how long a node must be silent until the end of the window to have left the fleet.
	Gone time.Duration
	// Parallel is how many namespaces are read at once.
	Parallel int
	Advice   Guards
	// Progress is told what is being read; nil is fine.
	Progress func(Progress)
	Log      *slog.Logger
}

// Progress is how far the reading is.
type Progress struct {
	Stage       string
	Done, Total int
}

// Guards are what must hold before advice is given.
type Guards struct {
	// Observed is how long a workload must have held its GPUs before its size is judged, and Quiet how long it must
	// have been idle before its release is advised.
	Observed, Quiet time.Duration
	// Coverage is the part of that time that must be known.
	Coverage float64
	// Saving is the least number of GPUs, as a mean over the window, that is worth a line.
	Saving float64
	// Overload is how often the demand may exceed the advised size.
	Overload float64
	// Train is the part of the window from which held-out advice is taken.
	Train float64
}

// Defaults are what the flags default to.
func Defaults() Options {
	return Options{Step: 5 * time.Minute, ClusterLabel: "cluster", Gone: 24 * time.Hour, Parallel: 2, Log: slog.New(slog.DiscardHandler),
		Advice: Guards{Observed: 7 * 24 * time.Hour, Quiet: 24 * time.Hour, Coverage: 0.95, Saving: 0.02, Overload: 0.01, Train: 0.7}}
}

// Validate says what contradicts itself.
func (o *Options) Validate() error {
	w := NewWindow(o.From, o.To, o.Step)
	switch {
	case o.Step < time.Minute || o.Step > time.Hour:
		return fmt.Errorf("a step of %s is not between a minute and an hour", o.Step)
	case !o.To.After(o.From):
		return fmt.Errorf("the window ends (%s) before it begins (%s): --from is the earlier one", o.To.Format(time.RFC3339), o.From.Format(time.RFC3339))
	case w.Steps() < 12:
		return fmt.Errorf("the window has %d steps of %s: let it be an hour at least", w.Steps(), o.Step)
	case w.Steps() > 200_000:
		return fmt.Errorf("the window has %d steps of %s: ask for less with a later --from", w.Steps(), o.Step)
	case o.ClusterLabel == "" || strings.ContainsAny(o.ClusterLabel, " ,(){}\""):
		return errors.New("the name of the cluster's label is none")
	case strings.ContainsAny(o.Match, "{}"):
		return errors.New(`--match takes matchers without braces, such as cluster="prod"`)
	case o.Advice.Train <= 0.2 || o.Advice.Train >= 0.95:
		return errors.New("the part of the window that held-out advice is taken from must lie between 0.2 and 0.95")
	}
	return nil
}
