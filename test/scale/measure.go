package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
	"github.com/gpu-exporter/gpu-exporter/test/process"
)

// patience is how long a question about the servers themselves may take; the boards' have a limit of their own.
const patience = 2 * time.Minute

// perMinute is the processor time that was taken in each minute between two looks.
func perMinute(from, to use) time.Duration { return process.PerMinute(from, to) }

// ask asks a server one thing.
func ask(ctx context.Context, p *program, query string, at time.Time) ([]board.Series, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	return board.Client{URL: p.url}.Instant(ctx, query, at)
}

// each is the answer of each server to a query that gives one value: series are added up, no series is 0.
func (in *installation) each(ctx context.Context, query string) ([]float64, error) {
	out := make([]float64, len(in.servers))
	for i, p := range in.servers {
		series, err := ask(ctx, p, query, time.Now())
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			out[i] += s.Points[0].Value
		}
	}
	return out, nil
}

// number is what each gives, summed over the servers.
func (in *installation) number(ctx context.Context, query string) (float64, error) {
	each, err := in.each(ctx, query)
	return sum(each), err
}

func sum(v []float64) (total float64) {
	for _, x := range v {
		total += x
	}
	return total
}

// highest is the largest of them, 0 where there is none; mean their mean.
func highest(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return slices.Max(v)
}

func mean(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return sum(v) / float64(len(v))
}

// measuring is one fleet while it is measured. What cannot be measured is named among the figures' problems, and
// nothing else is lost by it.
type measuring struct {
	*installation
	figures
	began time.Time
	// over is the window that is measured, in PromQL.
	over string
}

func (m *measuring) trouble(what string, err error) {
	if err != nil {
		m.Problems = append(m.Problems, fmt.Sprintf("%s: %v", what, err))
		m.say("%s: %v", what, err)
	}
}

// measure plays one fleet and takes its figures. A run that ended early, for a server that died too, says so in its
// figures.
func measure(ctx context.Context, o options) (f figures, err error) {
	dir, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	boards, err := board.LoadAll(filepath.Join(o.Root, "dashboards"))
	if err != nil {
		return f, err
	}
	m := &measuring{began: time.Now(), figures: figures{Nodes: o.Nodes, GPUs: o.Nodes * o.GPUs, Servers: o.Servers, Split: o.Split, LoadBefore: process.Load()}}
	if m.installation, err = start(ctx, o, dir); err != nil {
		return f, err
	}
	defer m.stop()
	m.say("%d nodes on %d servers, scraped for %v", o.Nodes, o.Servers, o.For)
	if err := m.scrape(ctx); err != nil {
		if ctx.Err() != nil {
			return m.figures, err
		}
		m.Ended = err.Error() // a server that ends is where the fleet was too large
	}
	if m.Ended != "" {
		m.say("ended early: %s", m.Ended)
		if m.database == nil {
			return m.figures, nil
		}
		// The database can be asked at no cost of the servers' memory.
	}
	// Held before there is a past, which the database has alone.
	if m.database != nil {
		m.Held = m.hold(ctx, boards)
	}
	if o.Past > 0 && m.Ended == "" {
		m.trouble("the past of records", m.givePast(ctx, boards))
	}
	m.LoadAfter = process.Load()
	m.ask(ctx, boards)
	last, err := m.uses(m.servers)
	m.trouble("memory after the boards were asked", err)
	for _, u := range last {
		m.AfterQueries += u.Peak
	}
	return m.figures, nil
}

// scrape lets the servers scrape, and reads what it takes. The figures speak of the second half of the time, when the
// fleet is known.
func (m *measuring) scrape(ctx context.Context) (err error) {
	settle := m.For / 2
	if m.Ended, err = m.watch(ctx, settle); err != nil {
		return err
	}
	half := time.Now()
	before, err := m.uses(m.all())
	if err != nil {
		return err
	}
	if m.Ended == "" {
		if m.Ended, err = m.watch(ctx, m.For-settle); err != nil {
			return err
		}
	}
	after, err := m.uses(m.all())
	if err != nil {
		return err
	}
	m.Scraped = time.Since(m.began).Round(time.Second)
	m.over = "[" + promDuration(max(time.Since(half), 2*m.Interval)) + "]"
	for i, p := range m.all() {
		taken := perMinute(before[i], after[i])
		switch {
		case slices.Contains(m.servers, p):
			m.Resident += after[i].Resident
			m.Peak += after[i].Peak
			m.CPU += taken
			m.Each = append(m.Each, server{Name: fmt.Sprintf("prometheus-%d", len(m.Each)+1), Resident: after[i].Resident, CPU: taken})
		case p == m.fleet:
			m.Standin, m.StandinCPU = after[i], taken
		case p == m.database:
			m.DatabaseUse, m.DatabaseCPU = after[i], taken
		}
	}
	m.series(ctx)
	m.rules(ctx)
	for _, s := range m.Each {
		m.Disk += diskBytes(m.data(s.Name))
	}
	m.say("%.0f series, %.0f samples/s, %.0f MiB, %.1f s of processor a minute, %.0f evaluations missed", m.Series, m.Samples, m.Resident, m.CPU.Seconds(), m.Missed)
	return nil
}

// ask asks the boards: of the one server all of them, of the database those above node level.
func (m *measuring) ask(ctx context.Context, boards []board.Board) {
	if m.Ask == 0 {
		return
	}
	a := asking{Often: m.Ask, Limit: m.Limit, For: m.BoardsFor, Scrape: m.Interval}
	var err error
	if m.Servers == 1 && m.Ended == "" {
		m.say("asking the boards at Prometheus, for %v at most", m.BoardsFor)
		a.URL = m.servers[0].url
		m.Asked, err = a.all(ctx, boards)
		m.trouble("boards", err)
	}
	if m.database != nil {
		m.say("asking the boards above node level at VictoriaMetrics, for %v at most", m.BoardsFor)
		a.URL = m.database.url
		m.AskedDatabase, err = a.all(ctx, above(boards))
		m.trouble("boards at the database", err)
	}
}

// uses are those of the programs.
func (in *installation) uses(of []*program) ([]use, error) {
	var out []use
	for _, p := range of {
		u, err := p.use()
		if err != nil {
			return out, err
		}
		out = append(out, u)
	}
	return out, nil
}

// series asks the servers about themselves, over the window that is measured.
func (m *measuring) series(ctx context.Context) {
	count := func(v *float64) func([]float64) { return func(each []float64) { *v = sum(each) } }
	whole := func(v *int) func([]float64) { return func(each []float64) { *v = int(sum(each)) } }
	took := func(v *time.Duration, of func([]float64) float64) func([]float64) {
		return func(each []float64) { *v = seconds(of(each)) }
	}
	own := func(set func(*server, float64)) func([]float64) {
		return func(each []float64) {
			for i, v := range each {
				set(&m.Each[i], v)
			}
		}
	}
	const targets = `{job!="prometheus"}`
	late := fmt.Sprintf("sum(count_over_time((scrape_duration_seconds"+targets+" >= %g)[%s:%s]))", 0.99*m.Interval.Seconds(), strings.Trim(m.over, "[]"), promDuration(m.Interval))
	for _, q := range []struct {
		query string
		into  []func([]float64)
	}{
		{`count(up` + targets + `)`, []func([]float64){whole(&m.Targets), own(func(s *server, v float64) { s.Targets = int(v) })}},
		{`sum(up` + targets + `)`, []func([]float64){whole(&m.Up)}},
		{"sum(count_over_time(up" + targets + m.over + "))", []func([]float64){count(&m.Scrapes)}},
		{"sum(count_over_time(up" + targets + m.over + ")) - sum(sum_over_time(up" + targets + m.over + "))", []func([]float64){count(&m.Failed)}},
		{late, []func([]float64){count(&m.Late)}},
		{"prometheus_tsdb_head_series", []func([]float64){count(&m.Series), own(func(s *server, v float64) { s.Series = v })}},
		{`avg(scrape_samples_post_metric_relabeling{job="gpu-exporter"} and on (instance) up == 1)`, []func([]float64){func(each []float64) { m.SeriesPerTarget = mean(each) }}},
		{`count({__name__=~".+:.+"})`, []func([]float64){count(&m.Records)}},
		{`count(ALERTS)`, []func([]float64){count(&m.Alerts)}},
		{"60 * rate(prometheus_tsdb_head_series_created_total" + m.over + ")", []func([]float64){count(&m.Created)}},
		{"sum(rate(prometheus_tsdb_head_samples_appended_total" + m.over + "))", []func([]float64){count(&m.Samples), own(func(s *server, v float64) { s.Samples = v })}},
		{`quantile(0.5, scrape_duration_seconds{job="gpu-exporter"})`, []func([]float64){took(&m.Scrape50, highest)}},
		{`quantile(0.99, scrape_duration_seconds{job="gpu-exporter"})`, []func([]float64){took(&m.Scrape99, highest)}},
		{`max(max_over_time(scrape_duration_seconds{job="gpu-exporter"}` + m.over + `))`, []func([]float64){took(&m.ScrapeMost, highest)}},
		{"sum(prometheus_rule_group_iterations_missed_total)", []func([]float64){count(&m.Missed)}},
		{`sum(prometheus_remote_storage_samples_failed_total) + sum(prometheus_remote_storage_samples_dropped_total{reason!="dropped_series"} or vector(0))`, []func([]float64){own(func(s *server, v float64) { s.RemoteFailed = v })}},
		{"max(prometheus_remote_storage_highest_timestamp_in_seconds) - min(prometheus_remote_storage_queue_highest_sent_timestamp_seconds)", []func([]float64){own(func(s *server, v float64) { s.RemoteLag = v })}},
	} {
		each, err := m.each(ctx, q.query)
		if err != nil {
			m.trouble("asking the server about itself: "+q.query, err)
			continue
		}
		for _, into := range q.into {
			into(each)
		}
	}
	if m.database == nil {
		return
	}
	for _, q := range []struct {
		into *float64
		name string
	}{{&m.DatabaseSeries, `vm_cache_entries{type="storage/hour_metric_ids"}`}, {&m.DatabaseRows, `vm_rows_inserted_total{type="promremotewrite"}`}} {
		v, err := m.databaseMetric(ctx, q.name)
		m.trouble("asking the database about itself", err)
		*q.into = v
	}
	m.DatabaseRows /= m.Scraped.Seconds()
}

// databaseMetric reads one of the database's metrics of itself.
func (in *installation) databaseMetric(ctx context.Context, series string) (float64, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.database.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, series+" "); ok {
			var v float64
			_, err := fmt.Sscan(rest, &v)
			return v, err
		}
	}
	return 0, fmt.Errorf("the database does not expose %s", series)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// rules reads how long groups and rules took. Groups: mean and longest over the window, rules: their last. Of several
// servers the slowest counts.
func (m *measuring) rules(ctx context.Context) {
	group := func(file string) *groupTime {
		name := file[strings.LastIndexByte(file, ';')+1:]
		i := slices.IndexFunc(m.Groups, func(g groupTime) bool { return g.Name == name })
		if i < 0 {
			i, m.Groups = len(m.Groups), append(m.Groups, groupTime{Name: name})
		}
		return &m.Groups[i]
	}
	longest := func(of func(*groupTime) *time.Duration) func(*groupTime, float64) {
		return func(g *groupTime, v float64) { into := of(g); *into = max(*into, seconds(v)) }
	}
	const last = "_over_time(prometheus_rule_group_last_duration_seconds"
	for i, p := range m.servers {
		for _, q := range []struct {
			query string
			into  func(*groupTime, float64)
		}{
			{"min" + last + m.over + ")", longest(func(g *groupTime) *time.Duration { return &g.Least })},
			{"avg" + last + m.over + ")", longest(func(g *groupTime) *time.Duration { return &g.Mean })},
			{"max" + last + m.over + ")", longest(func(g *groupTime) *time.Duration { return &g.Most })},
			{"prometheus_rule_group_iterations_missed_total", func(g *groupTime, v float64) { g.Missed += v }},
			{"topk(1, max" + last + m.over + "))", func(g *groupTime, v float64) { m.Each[i].Slowest, m.Each[i].SlowestGroup = seconds(v), g.Name }},
		} {
			series, err := ask(ctx, p, q.query, time.Now())
			if err != nil {
				m.trouble("time of rule groups", err)
				continue
			}
			for _, s := range series {
				q.into(group(s.Labels["rule_group"]), s.Points[0].Value)
			}
		}
		rules, err := ruleTimes(ctx, p.url)
		m.trouble("time of rules", err)
		m.Rules = append(m.Rules, rules...)
	}
	for i := range m.Groups {
		for _, r := range m.Rules {
			if r.Group == m.Groups[i].Name {
				m.Groups[i].Rules++
			}
		}
		m.Groups[i].Rules /= len(m.servers)
	}
	missed := 0.0
	for _, g := range m.Groups {
		missed += g.Missed
	}
	m.Missed = max(m.Missed, missed) // asked later, and to fit the table
	slices.SortFunc(m.Groups, func(a, b groupTime) int { return cmp.Or(cmp.Compare(b.Mean, a.Mean), strings.Compare(a.Name, b.Name)) })
	slices.SortFunc(m.Rules, func(a, b ruleTime) int { return cmp.Compare(b.Took, a.Took) })
}

// ruleTimes asks a server for each rule's last evaluation. A rule that failed has its error.
func ruleTimes(ctx context.Context, url string) ([]ruleTime, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/rules", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var answer struct {
		Data struct {
			Groups []struct {
				Name  string
				Rules []struct {
					Name, Health, LastError string
					EvaluationTime          float64
				}
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s/api/v1/rules: %w", url, err)
	}
	var out []ruleTime
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			t := ruleTime{Group: g.Name, Name: r.Name, Took: seconds(r.EvaluationTime)}
			if r.Health != "ok" {
				t.Failed, t.Waits = r.LastError, r.LastError == ""
			}
			out = append(out, t)
		}
	}
	return out, nil
}

// givePast gives the records the past that the boards look back to, and waits until it is seen.
func (m *measuring) givePast(ctx context.Context, boards []board.Board) error {
	depth, err := depths(boards, m.installation.Past)
	if err != nil {
		return err
	}
	start := time.Now()
	to := m.began.Truncate(time.Minute).Add(-time.Minute)
	var all []past
	for i, p := range m.servers {
		series, err := records(ctx, p.url, depth, m.Interval)
		if err != nil {
			return err
		}
		if m.database != nil {
			n, err := importPast(ctx, m.database.url, series, m.tags[i], to)
			if err != nil {
				return err
			}
			m.figures.Past += n
		}
		all = append(all, series...)
	}
	if m.database != nil {
		m.say("%d samples of a past in the database after %v", m.figures.Past, time.Since(start).Round(time.Second))
	}
	if m.Servers > 1 {
		return nil
	}
	m.say("%d series of records are given a past", len(all))
	start = time.Now()
	if m.figures.Past, err = writePast(ctx, m.data("prometheus-1"), all, to); err != nil {
		return err
	}
	m.PastTook = time.Since(start)
	m.say("%d samples of a past in %v", m.figures.Past, m.PastTook.Round(time.Second))
	// Prometheus looks for new blocks once a minute.
	for end := time.Now().Add(5 * time.Minute); ; {
		blocks, err := m.number(ctx, "prometheus_tsdb_blocks_loaded")
		if err == nil && blocks > 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(errors.New("the blocks of the past are not taken up by Prometheus"), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Second):
		}
	}
}
