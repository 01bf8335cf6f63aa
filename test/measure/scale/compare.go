package scale

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// compareTime is a time whose samples have arrived in the database.
func (l *lab) compareTime() time.Time {
	return time.Now().Add(-min(30*time.Second, 2*l.interval)).Truncate(time.Second)
}

// compareNames looks for series in the database that no rule records.
func (l *lab) compareNames(ctx context.Context, c *Comparison) error {
	found, err := instant(ctx, l.database, `count by (__name__) ({__name__!=""})`, l.compareTime())
	c.Names = len(found)
	output := regexp.MustCompile("^(" + recorded + ")$")
	for _, s := range found {
		c.Series += s.Points[0].Value
		if name := s.Labels["__name__"]; !output.MatchString(name) {
			c.differs("%s is recorded by no rule", name)
		}
	}
	return err
}

// compareRecords compares number and sum of the series of every name: the database must have those of every server, and
// no others.
func (l *lab) compareRecords(ctx context.Context, c *Comparison) error {
	at, once := l.compareTime(), regexp.MustCompile("^("+requests+")$")
	for _, op := range []string{"count", "sum"} {
		byName := func(s *server, into map[string]float64, share int) error {
			found, err := instant(ctx, s, op+` by (__name__) ({__name__=~"`+recorded+`"})`, at)
			for _, x := range found {
				v, name := x.Points[0].Value, x.Labels["__name__"]
				if math.IsNaN(v) || math.IsInf(v, 0) { // a ratio of nothing
					v = 0
				}
				if l.split != byNode || share == 0 || !once.MatchString(name) {
					into[name] += v
				}
			}
			return err
		}
		have, want := map[string]float64{}, map[string]float64{}
		if err := byName(l.database, have, 0); err != nil {
			return err
		}
		for i, s := range l.servers {
			if err := byName(s, want, i); err != nil {
				return err
			}
		}
		names := maps.Clone(have)
		maps.Copy(names, want)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if math.Abs(have[name]-want[name]) > 1e-9*math.Abs(want[name]) {
				c.differs("%s of %s: %.6g in the database, %.6g in the servers", op, name, have[name], want[name])
			}
		}
	}
	return nil
}

// compareTruth compares figures of the whole fleet with what it did in the five minutes before.
func (l *lab) compareTruth(ctx context.Context, c *Comparison) error {
	config := fleet.Big(1, l.nodes, l.gpus, l.clusters()...)
	config.Epoch = l.epoch
	f, err := fleet.New(config)
	if err != nil {
		return err
	}
	const span = 5 * time.Minute
	at := l.compareTime()
	truth := f.Truth(at.Add(-span), at)
	allocated := gpu.Seconds(0)
	for _, w := range truth.Workloads {
		allocated += w.Allocated
	}
	for _, q := range []struct {
		name, query string
		truth       float64
	}{
		{"nodes", "sum(cluster:gpu_nodes:count)", float64(l.nodes)},
		{"GPUs", "sum(model:gpu_time_seconds:rate5m)", float64(l.nodes * l.gpus)},
		{"unallocated GPUs", `sum(model:gpu_time_seconds:rate5m{state="unallocated"})`,
			float64(truth.GPUs[gpu.TimeUnallocated]) / span.Seconds()},
		{"GPUs allocated to workloads", "sum(workload:gpu_allocated_seconds:rate5m)",
			float64(allocated) / span.Seconds()},
	} {
		v, err := value(ctx, l.database, q.query, at)
		if err != nil {
			return err
		}
		c.Facts = append(c.Facts, Fact{q.name, v, q.truth})
	}
	return nil
}

// compareDashboards runs each query of the dashboards on the database and on the reference at one time: the database
// must have what one server of everything has.
func (l *lab) compareDashboards(ctx context.Context, c *Comparison, dashboards []dashboard.Dashboard, start time.Time,
	tolerance float64) error {
	at := l.compareTime()
	for _, d := range dashboards {
		span, err := timeRange(d)
		if err != nil {
			return err
		}
		w := window(min(span, time.Since(start)), l.interval, 0, at) // the reference has the history of the run alone
		for _, p := range d.Panels {
			for _, t := range p.Targets {
				query, err := d.Fill(t.Expr, dashboard.Values{}, w)
				if err != nil {
					return err
				}
				if strings.Contains(query, "kube_") {
					continue // not recorded
				}
				c.Queries++
				var sides [2]map[string]float64
				for i, s := range []*server{l.database, l.reference} {
					found, err := instant(ctx, s, query, at)
					if err != nil {
						return err
					}
					sides[i] = map[string]float64{}
					for _, x := range found {
						sides[i][fmt.Sprint(x.Labels)] = x.Points[0].Value
					}
				}
				if text := compare(sides[0], sides[1], tolerance); text != "" {
					c.differs("%s, %s/%s: %s", d.UID, p.Title, t.RefID, text)
				}
			}
		}
	}
	return nil
}

// compare says how two results differ by more than the tolerance. Servers scrape at different times: a tenth of many
// series may come or go between two scrapes, or pass a threshold of the query.
func compare(have, want map[string]float64, tolerance float64) string {
	scale := 0.0
	for _, v := range want {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			scale = max(scale, math.Abs(v))
		}
	}
	missing, extra, off := 0, 0, 0
	for k, v := range want {
		h, ok := have[k]
		switch {
		case !ok:
			missing++
		case math.IsNaN(h) != math.IsNaN(v), math.Abs(h-v) > tolerance*max(math.Abs(h), math.Abs(v))+0.002*scale:
			off++
		}
	}
	for k := range have {
		if _, ok := want[k]; !ok {
			extra++
		}
	}
	if max(missing, extra, off) <= len(want)/10 {
		return ""
	}
	return fmt.Sprintf("of %d series %d are missing, %d extra, %d off", len(want), missing, extra, off)
}
