package scale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/replay"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/process"
)

// measurement is one step while it is measured. What cannot be measured is a problem in the figures, and costs no other
// figure.
type measurement struct {
	*lab
	Step
	start time.Time
	// over is the measured period as a PromQL range.
	over string
}

func (m *measurement) problem(what string, err error) {
	if err != nil {
		m.Problems = append(m.Problems, fmt.Sprintf("%s: %v", what, err))
		m.progress("%s: %v", what, err)
	}
}

// measure runs one fleet and returns its figures.
func measure(ctx context.Context, o options) (s Step, err error) {
	dir, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	dashboards, err := dashboard.LoadAll(filepath.Join(o.root, "dashboards"))
	if err != nil {
		return s, err
	}
	m := &measurement{start: time.Now(), Step: Step{Date: time.Now().UTC().Format(time.DateOnly),
		Nodes: o.nodes, GPUs: o.nodes * o.gpus, Split: o.split}}
	if m.lab, err = start(ctx, o, dir); err != nil {
		return s, err
	}
	defer m.stop()
	m.progress("%d nodes on %d servers, scraped for %v", o.nodes, o.servers, o.period)
	if err := m.scrape(ctx); err != nil {
		return m.Step, err
	}
	if m.Aborted != "" {
		m.progress("aborted: %s", m.Aborted)
		return m.Step, nil
	}
	if m.database != nil { // before there is a history, which the database has alone
		c := &Comparison{}
		m.problem("comparison with the database", errors.Join(m.compareNames(ctx, c), m.compareRecords(ctx, c), m.compareTruth(ctx, c)))
		m.Compared = c
	}
	if o.history > 0 {
		m.problem("history", m.writeHistory(ctx, dashboards))
	}
	m.query(ctx, dashboards)
	for i, s := range m.servers {
		u, err := process.Of(s.PID())
		m.problem("memory after the queries", err)
		m.Servers[i]["peak"] = u.Peak
	}
	return m.Step, ctx.Err()
}

// scrape lets the servers scrape and reads what that takes, over the second half of the time, when the fleet is known.
func (m *measurement) scrape(ctx context.Context) (err error) {
	if m.Aborted, err = m.wait(ctx, m.period/2); err != nil || m.Aborted != "" {
		return err
	}
	half := time.Now()
	var before []process.Usage
	for _, s := range m.all() {
		u, err := process.Of(s.PID())
		if err != nil {
			return err
		}
		before = append(before, u)
	}
	if m.Aborted, err = m.wait(ctx, m.period/2); err != nil || m.Aborted != "" {
		return err
	}
	m.Scraped = time.Since(m.start).Round(time.Second)
	m.over = "[" + milliseconds(max(time.Since(half), 2*m.interval)) + "]"
	for i, s := range m.all() {
		u, err := process.Of(s.PID())
		if err != nil {
			return err
		}
		figures := map[string]float64{"resident": u.Resident, "peak": u.Peak, "cpu": process.PerMinute(before[i], u).Minutes()}
		switch s {
		case m.fleet:
			m.Simulator = figures
		case m.database:
			m.Database = figures
		case m.reference:
		default:
			m.Servers = append(m.Servers, figures)
		}
	}
	m.series(ctx)
	m.alerts(ctx)
	m.rules(ctx)
	m.progress("%.0f series, %.0f samples/s, %.0f MiB, %.2f cores", m.Of("series"), m.Of("samples"), m.Of("resident"), m.Of("cpu"))
	return nil
}

// queries are what the servers report of themselves, by figure; $w is the measured period.
func (m *measurement) queries() map[string]string {
	const targets = `{job!="prometheus"}`
	late := fmt.Sprintf("sum(count_over_time((scrape_duration_seconds%s >= %g)[%s:%s]))", targets,
		0.99*m.interval.Seconds(),
		strings.Trim(m.over, "[]"), milliseconds(m.interval))
	out := map[string]string{
		"targets": `count(up` + targets + `)`,
		"up":      `sum(up` + targets + `)`,
		"scrapes": `sum(count_over_time(up` + targets + `$w))`,
		"failed":  `sum(count_over_time(up` + targets + `$w)) - sum(sum_over_time(up` + targets + `$w))`,
		"late":    late,
		"series":  `prometheus_tsdb_head_series`,
		"created": `60 * rate(prometheus_tsdb_head_series_created_total$w)`,
		"page":    `avg(scrape_samples_post_metric_relabeling{job="gpu-exporter"} and on (instance) up == 1)`,
		"records": `count({__name__=~".+:.+"})`,
		"samples": `sum(rate(prometheus_tsdb_head_samples_appended_total$w))`,
		"missed":  `sum(prometheus_rule_group_iterations_missed_total)`,
		"disk": `prometheus_tsdb_wal_storage_size_bytes + prometheus_tsdb_storage_blocks_bytes + ` +
			`prometheus_tsdb_head_chunks_storage_size_bytes`,

		"scrape50": `quantile(0.5, scrape_duration_seconds{job="gpu-exporter"})`,
		"scrape99": `quantile(0.99, scrape_duration_seconds{job="gpu-exporter"})`,
	}
	if m.database != nil {
		out["unsent"] = `sum(prometheus_remote_storage_samples_failed_total) + ` +
			`sum(prometheus_remote_storage_samples_dropped_total{reason!="dropped_series"} or vector(0))`
	}
	for name, query := range out {
		out[name] = strings.ReplaceAll(query, "$w", m.over)
	}
	return out
}

// series reads what the servers report of themselves.
func (m *measurement) series(ctx context.Context) {
	for name, query := range m.queries() {
		for i, s := range m.servers {
			v, err := value(ctx, s, query, time.Now())
			m.problem(name, err)
			if err == nil {
				m.Servers[i][name] = v
			}
		}
	}
	if m.database != nil {
		v, err := value(ctx, m.database, `count({__name__!=""})`, time.Now())
		m.problem("series of the database", err)
		m.Database["series"] = v
	}
}

// alerts reads which alerts there are: a number alone hides that most of them are one that is wrong.
func (m *measurement) alerts(ctx context.Context) {
	for _, s := range m.servers {
		series, err := instant(ctx, s, `count by (alertname, severity, alertstate) (ALERTS)`, time.Now())
		m.problem("alerts", err)
		for _, s := range series {
			m.addAlerts(s.Labels["alertname"], s.Labels["severity"], s.Labels["alertstate"], s.Points[0].Value)
		}
	}
}

// rules reads how long groups took over the period, and rules at their last evaluation; of several servers the slowest
// counts.
func (m *measurement) rules(ctx context.Context) {
	groups := map[string]*Group{}
	const last = "_over_time(prometheus_rule_group_last_duration_seconds"
	for _, s := range m.servers {
		for query, to := range map[string]func(*Group) *float64{
			"min" + last + m.over + ")":                     func(g *Group) *float64 { return &g.Min },
			"avg" + last + m.over + ")":                     func(g *Group) *float64 { return &g.Mean },
			"max" + last + m.over + ")":                     func(g *Group) *float64 { return &g.Max },
			"prometheus_rule_group_iterations_missed_total": func(g *Group) *float64 { return &g.Missed },
			"prometheus_rule_group_interval_seconds":        func(g *Group) *float64 { return &g.Interval },
		} {
			series, err := instant(ctx, s, query, time.Now())
			m.problem("rule groups", err)
			for _, s := range series {
				_, name, _ := strings.Cut(s.Labels["rule_group"], ";")
				if groups[name] == nil {
					groups[name] = &Group{Name: name}
				}
				*to(groups[name]) = max(*to(groups[name]), s.Points[0].Value)
			}
		}
		rules, err := ruleTimes(ctx, s)
		m.problem("rules", err)
		m.Rules = append(m.Rules, rules...)
	}
	for _, g := range groups {
		m.Groups = append(m.Groups, *g)
	}
	slices.SortFunc(m.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Mean, a.Mean), strings.Compare(a.Name, b.Name))
	})
	for _, r := range m.Rules {
		if r.Failed != "" {
			m.problem("rule "+r.Name, errors.New(r.Failed))
		}
	}
	slices.SortFunc(m.Rules, func(a, b Rule) int { return cmp.Compare(b.Seconds, a.Seconds) })
	m.Rules = m.Rules[:min(10, len(m.Rules))]
}

// ruleTimes returns each rule's last evaluation.
func ruleTimes(ctx context.Context, s *server) ([]Rule, error) {
	api, err := s.API()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	result, err := api.Rules(ctx, nil)
	var out []Rule
	for _, g := range result.Groups {
		for _, rule := range g.Rules {
			r := Rule{Group: g.Name}
			var health v1.RuleHealth
			switch rule := rule.(type) {
			case v1.RecordingRule:
				r.Name, r.Seconds, health, r.Failed = rule.Name, rule.EvaluationTime, rule.Health, rule.LastError
			case v1.AlertingRule:
				r.Name, r.Seconds, health, r.Failed = rule.Name, rule.EvaluationTime, rule.Health, rule.LastError
			}
			r.Pending = health != v1.RuleHealthGood && r.Failed == ""
			out = append(out, r)
		}
	}
	return out, err
}

// writeHistory gives the recorded series the history that the dashboards read, and waits until Prometheus has loaded
// it.
func (m *measurement) writeHistory(ctx context.Context, dashboards []dashboard.Dashboard) error {
	depth, err := depths(dashboards, m.history)
	if err != nil {
		return err
	}
	to := m.start.Truncate(time.Minute).Add(-time.Minute)
	for i, s := range m.servers {
		all, err := records(ctx, s, depth, m.interval)
		if err != nil {
			return err
		}
		if m.database != nil {
			err = replay.Import(ctx, m.database.URL, func(w io.Writer) error { return writeText(w, all, m.tags(i), to) })
		} else {
			_, err = writeBlocks(ctx, m.data(s.name), all, to)
		}
		if err != nil {
			return err
		}
		m.progress("history of %d recorded series written", len(all))
	}
	if m.database != nil {
		return nil
	}
	// Prometheus looks for new blocks once a minute, also while they are written.
	for _, s := range m.servers {
		if err := m.loaded(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// loaded waits until a Prometheus has loaded all blocks in its data.
func (m *measurement) loaded(ctx context.Context, s *server) error {
	written, err := filepath.Glob(filepath.Join(m.data(s.name), "*", "meta.json"))
	if err != nil {
		return err
	}
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(5 * time.Second) {
		blocks, err := value(ctx, s, "prometheus_tsdb_blocks_loaded", time.Now())
		if err == nil && int(blocks) >= len(written) {
			return nil
		}
	}
	return errors.Join(ctx.Err(), fmt.Errorf("Prometheus did not load the %d blocks of the history", len(written)))
}

// query runs the queries of the dashboards: of one server all, of the database those above node level.
func (m *measurement) query(ctx context.Context, dashboards []dashboard.Dashboard) {
	q := querier{server: m.servers[0], repeat: m.repeat, timeout: m.timeout, total: m.queriesFor, scrape: m.interval}
	into := &m.Queries
	if m.database != nil {
		q.server, into, dashboards = m.database, &m.DatabaseQueries, above(dashboards)
	}
	if m.repeat == 0 {
		return
	}
	m.progress("running the queries of %d dashboards on %s", len(dashboards), q.server.name)
	var err error
	*into, err = q.all(ctx, dashboards)
	m.problem("queries of the dashboards", err)
}
