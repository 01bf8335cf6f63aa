package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/report"
	"github.com/gpu-exporter/gpu-exporter/test/board"
	"github.com/gpu-exporter/gpu-exporter/test/process"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// held is what the database was held against: the servers that sent to it, what really happened, and the reference
// where there is one.
type held struct {
	At time.Time
	// Names are how many names of series the database has, Foreign those that no rule made.
	Names   int
	Foreign []string
	// Records are the sums over all series of a name; Different are those that are not the same on both sides.
	Records   int
	Series    float64
	Different []difference
	// Facts are figures of the whole fleet.
	Facts []fact
	// Report is gpu-report's account.
	Report *reports `json:",omitempty"`
	// Boards are what the reference answers otherwise; nil where there is no reference.
	Boards *boardsHeld `json:",omitempty"`

	Problems []string `json:",omitempty"`
}

// difference is a record of which the database has another number of series, or another sum, than the servers together.
type difference struct {
	Name             string
	Series, Expected float64
	Sum, ExpectedSum float64
}

// fact is a figure of the fleet in the database, in the servers together, in truth, and in the reference; -1 where
// there is none.
type fact struct {
	What                               string
	Database, Servers, True, Reference float64
}

// reports are the accounts of gpu-report over one window.
type reports struct {
	From, To time.Time
	// Took and MiB are of the report at the database.
	Took      time.Duration
	MiB       float64
	Workloads [2]int // at the database, at the others together
	Against   string // what the others are
	Lines     []reportLine
	// Sources are what the report at the database says of where it read; Absent those that it did without.
	Absent []string
}

type reportLine struct {
	What             string
	Database, Others float64
}

// boardsHeld compares the boards' answers with those of the reference.
type boardsHeld struct {
	Queries, Same int
	// Other are those that differ, each with how.
	Other []string
}

func (h *held) trouble(what string, err error) {
	if err != nil {
		h.Problems = append(h.Problems, fmt.Sprintf("%s: %v", what, err))
	}
}

// hold compares. What cannot be compared is named.
func (m *measuring) hold(ctx context.Context, boards []board.Board) *held {
	m.say("holding the database against the servers and the truth")
	h := &held{}
	// What was made at this time has arrived.
	h.At = time.Now().Add(-min(30*time.Second, 2*m.Interval)).Truncate(time.Second)
	h.trouble("names of series", m.holdNames(ctx, h))
	h.trouble("records", m.holdRecords(ctx, h))
	h.trouble("facts", m.holdFacts(ctx, h))
	if m.reference != nil {
		h.Boards = &boardsHeld{}
		h.trouble("boards", m.holdBoards(ctx, h, above(boards), 0.05))
	}
	h.trouble("gpu-report", m.holdReport(ctx, h))
	for _, p := range h.Problems {
		m.say("%s", p)
	}
	return h
}

// holdNames looks whether rules alone wrote into the database.
func (m *measuring) holdNames(ctx context.Context, h *held) error {
	series, err := ask(ctx, m.database, `count by (__name__) ({__name__!=""})`, h.At)
	if err != nil {
		return err
	}
	output := regexp.MustCompile("^(" + ruleOutput + ")$")
	h.Names = len(series)
	for _, s := range series {
		if name := s.Labels["__name__"]; !output.MatchString(name) {
			h.Foreign = append(h.Foreign, name)
		}
	}
	slices.Sort(h.Foreign)
	return nil
}

// byName is one value for each name of series.
func byName(ctx context.Context, p *program, op string, at time.Time, into map[string]float64, skip func(string) bool) error {
	series, err := ask(ctx, p, op+` by (__name__) ({__name__=~"`+ruleOutput+`"})`, at)
	if err != nil {
		return err
	}
	for _, s := range series {
		if name := s.Labels["__name__"]; !skip(name) {
			into[name] += finite(s.Points[0].Value)
		}
	}
	return nil
}

// finite is the value, or 0 where it is no number: a share of nothing.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// holdRecords compares number and sum of the series of every name: the database must have all of every server, and nothing else.
func (m *measuring) holdRecords(ctx context.Context, h *held) error {
	asks := regexp.MustCompile("^(" + askedFor + ")$")
	var here, there [2]map[string]float64
	for k, op := range []string{"count", "sum"} {
		here[k], there[k] = map[string]float64{}, map[string]float64{}
		if err := byName(ctx, m.database, op, h.At, here[k], func(string) bool { return false }); err != nil {
			return err
		}
		for i, p := range m.servers {
			notSent := func(name string) bool { return m.Split == byNode && i > 0 && asks.MatchString(name) }
			if err := byName(ctx, p, op, h.At, there[k], notSent); err != nil {
				return err
			}
		}
	}
	names := maps.Clone(here[0])
	maps.Copy(names, there[0])
	h.Records = len(names)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d := difference{name, here[0][name], there[0][name], here[1][name], there[1][name]}
		h.Series += d.Series
		if d.Series != d.Expected || math.Abs(d.Sum-d.ExpectedSum) > 1e-9*math.Abs(d.ExpectedSum) {
			h.Different = append(h.Different, d)
		}
	}
	return nil
}

// holdFacts compares figures of the whole fleet with what really happened in the five minutes before.
func (m *measuring) holdFacts(ctx context.Context, h *held) error {
	config := fleet.Big(1, m.Nodes, m.GPUs/m.Nodes, m.clusters()...)
	config.Epoch = m.epoch
	f, err := fleet.New(config)
	if err != nil {
		return err
	}
	const window = 5 * time.Minute
	truth := f.Truth(h.At.Add(-window), h.At)
	meanOf := func(s gpu.Seconds) float64 { return float64(s) / window.Seconds() }
	alloc := 0.0
	for _, w := range truth.Workloads {
		alloc += meanOf(w.Allocated)
	}
	for _, q := range []struct {
		what, query string
		truth       float64
	}{
		{"nodes", "sum(cluster:gpu_nodes:count)", float64(m.Nodes)},
		{"gpus", "sum(cluster:gpu_device_up:count)", float64(m.GPUs)},
		{"GPU time, GPUs", "sum(cluster:gpu_time_seconds:rate5m)", float64(m.GPUs)},
		{"of it free", `sum(cluster:gpu_time_seconds:rate5m{state="unallocated"})`, meanOf(truth.GPUs[gpu.TimeUnallocated])},
		{"held by workloads, GPUs", "sum(workload:gpu_allocated_seconds:rate5m)", alloc},
		{"the same by namespace", "sum(namespace:gpu_allocated_seconds:rate5m)", alloc},
		{"devices that pods ask for", "sum(cluster:gpu_requests:sum)", -1},
		{"pods that hold GPUs", "sum(workload:gpu_pods:count)", -1},
	} {
		v := fact{q.what, 0, 0, q.truth, -1}
		one := func(p *program) (float64, error) {
			series, err := ask(ctx, p, q.query, h.At)
			if err != nil || len(series) == 0 {
				return 0, err
			}
			return finite(series[0].Points[0].Value), nil
		}
		if v.Database, err = one(m.database); err != nil {
			return err
		}
		for i, p := range m.servers {
			if m.Split == byNode && i > 0 && strings.Contains(q.query, "gpu_requests") {
				continue
			}
			n, err := one(p)
			if err != nil {
				return err
			}
			v.Servers += n
		}
		if m.reference != nil {
			if v.Reference, err = one(m.reference); err != nil {
				return err
			}
		}
		h.Facts = append(h.Facts, v)
	}
	return nil
}

// off says whether two values differ by more than this part: two servers do not scrape at the same moment.
func off(a, b, scale, tolerance float64) bool {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.IsNaN(a) != math.IsNaN(b)
	}
	return math.Abs(a-b) > tolerance*max(math.Abs(a), math.Abs(b))+0.002*scale
}

// holdBoards asks each query of the boards at both, at one moment: the database must show what one server of everything shows.
func (m *measuring) holdBoards(ctx context.Context, h *held, boards []board.Board, tolerance float64) error {
	for _, b := range boards {
		back, err := span(b)
		if err != nil {
			return err
		}
		// The reference has no past but the run's.
		w := window(min(back, time.Since(m.began)), m.Interval, h.At)
		values := board.Values{}
		for _, p := range b.Panels {
			for _, t := range p.Targets {
				query, err := b.Fill(t.Expr, values, w)
				if err != nil {
					return err
				}
				if strings.Contains(query, "kube_") {
					continue // not the rules' output
				}
				h.Boards.Queries++
				var sides [2]map[string]float64
				for i, p := range []*program{m.database, m.reference} {
					series, err := ask(ctx, p, query, h.At)
					if err != nil {
						return fmt.Errorf("%s: %s: %w", p.name, query, err)
					}
					sides[i] = map[string]float64{}
					for _, s := range series {
						sides[i][fmt.Sprint(s.Labels)] = s.Points[0].Value
					}
				}
				name := b.UID + ", " + p.Title
				if len(p.Targets) > 1 {
					name += "/" + t.RefID
				}
				if text := compare(sides[0], sides[1], tolerance); text != "" {
					h.Boards.Other = append(h.Boards.Other, name+": "+text)
				} else {
					h.Boards.Same++
				}
			}
		}
	}
	return nil
}

// compare says how two answers differ by more than the tolerance; a tenth of many series may come or go between two scrapes,
// or pass the limit that a query sets.
func compare(a, b map[string]float64, tolerance float64) string {
	scale := 0.0
	for _, v := range b {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			scale = max(scale, math.Abs(v))
		}
	}
	missing, extra, other, example := 0, 0, 0, ""
	for _, k := range slices.Sorted(maps.Keys(b)) {
		v, ok := a[k]
		switch {
		case !ok:
			missing++
			example = cmp.Or(example, k)
		case off(v, b[k], scale, tolerance):
			other++
			example = cmp.Or(example, fmt.Sprintf("%s is %.4g instead of %.4g", k, v, b[k]))
		}
	}
	for k := range a {
		if _, ok := b[k]; !ok {
			extra++
			example = cmp.Or(example, k)
		}
	}
	if allowed := len(b) / 10; missing <= allowed && extra <= allowed && other <= allowed {
		return ""
	}
	return fmt.Sprintf("of %d series %d are missing, %d too many, %d off, such as %s", len(b), missing, extra, other, example)
}

// holdReport makes gpu-report's account at the database, and at the servers one by one or at the reference.
func (m *measuring) holdReport(ctx context.Context, h *held) error {
	const step = 5 * time.Minute
	to := h.At.Truncate(step).UTC()
	if to.Before(m.began.Add(2 * time.Minute)) { // what rates want before they say anything
		return fmt.Errorf("the run was too short for an account in steps of %v", step)
	}
	// An hour is the shortest window that it takes.
	r := &reports{From: to.Add(-time.Hour), To: to, Against: "the servers one by one, added up"}
	d, use, err := m.account(ctx, m.database, r)
	if err != nil {
		return err
	}
	r.Took, r.MiB = use.took, use.mib
	r.Workloads[0] = len(d.Workloads)
	for _, s := range d.Sources {
		if s.From == "absent" {
			r.Absent = append(r.Absent, s.Data)
		}
	}
	others := m.servers
	if m.reference != nil {
		others, r.Against = []*program{m.reference}, "one Prometheus of everything"
	}
	lines := func(d *report.Document, into *[]float64) {
		at := 0
		add := func(v float64) {
			if at == len(*into) {
				*into = append(*into, 0)
			}
			(*into)[at] += v
			at++
		}
		add(d.Fleet.Hours)
		for c := report.State(0); c < report.StateCount; c++ {
			add(d.Fleet.States.Of(c))
		}
		allocated, busy := 0.0, 0.0
		for _, w := range d.Workloads {
			allocated, busy = allocated+w.Allocated, busy+w.Busy
		}
		add(allocated)
		add(busy)
		if e := d.Fleet.EnergyKWh; e != nil {
			add(*e)
		}
	}
	var here, there []float64
	lines(d, &here)
	for _, p := range others {
		d, _, err := m.account(ctx, p, r)
		if err != nil {
			return err
		}
		r.Workloads[1] += len(d.Workloads)
		lines(d, &there)
	}
	names := []string{"GPU-hours expected"}
	for c := report.State(0); c < report.StateCount; c++ {
		names = append(names, c.Quantity().Word)
	}
	names = append(names, "allocated to workloads", "of it busy", "energy, kWh")
	for i := range min(len(here), len(there)) {
		r.Lines = append(r.Lines, reportLine{names[i], here[i], there[i]})
	}
	h.Report = r
	return nil
}

type taken struct {
	took time.Duration
	mib  float64
}

// account runs gpu-report.
func (m *measuring) account(ctx context.Context, p *program, r *reports) (*report.Document, taken, error) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, programs.Report.Path(m.Root), "--prometheus.url="+p.url, "--format=json", "--quiet",
		"--from="+r.From.Format(time.RFC3339), "--to="+r.To.Format(time.RFC3339), "--now="+r.To.Format(time.RFC3339))
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	began := time.Now()
	mib, err := process.Run(cmd)
	const partial = 4 // a report was written and misses something
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != partial) {
		return nil, taken{}, fmt.Errorf("at %s: %w: %s", p.name, err, said.String())
	}
	t := taken{time.Since(began).Round(time.Millisecond), mib}
	var d report.Document
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		return nil, t, fmt.Errorf("at %s: %w", p.name, err)
	}
	return &d, t, nil
}
