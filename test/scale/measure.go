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
)

// options say what is measured.
type options struct {
	Root          string
	Nodes, Cards  int
	Servers       int
	Database      bool
	For, Interval time.Duration
	Past          time.Duration
	Boards        bool
	Ask           int
	MemoryGiB     float64
	Log           io.Writer
}

// figures are what was measured of one fleet.
type figures struct {
	Nodes, Cards, Servers int
	Scraped               time.Duration
	// Ended says why the run ended before its time; empty: it did not.
	Ended           string
	Targets, Up     int
	Series          float64
	SeriesPerTarget float64
	Records, Alerts float64
	Created         float64 // new series per minute
	Samples         float64 // per second
	Resident, Peak  float64 // MiB of all Prometheus servers together
	CPU             time.Duration
	Standin         use
	StandinCPU      time.Duration
	Scrape50        time.Duration
	Scrape99        time.Duration
	Disk            int64
	Groups          []groupTime
	Rules           []ruleTime
	Missed          float64
	Past            int64
	PastTook        time.Duration
	AfterQueries    float64 // MiB peak
	Asked           []asked
	DatabaseUse     use
	DatabaseCPU     time.Duration
	DatabaseRows    float64 // per second
	DatabaseSeries  float64
	LoadBefore      string
	LoadAfter       string
	// AskedDatabase are the boards above node level, asked of the database.
	AskedDatabase []asked
}

// groupTime is how long a rule group's evaluation takes; ruleTime one rule's.
type groupTime struct {
	Name              string
	Least, Mean, Most time.Duration
	Rules             int
}

type ruleTime struct {
	Group, Name string
	Took        time.Duration
	// Failed is why it made nothing; Waits: its group's turn has not come yet.
	Failed string
	Waits  bool
}

// installation is a running fleet with its servers.
type installation struct {
	options
	dir      string
	fleet    *program
	servers  []*program
	database *program
}

func (in *installation) say(format string, args ...any) {
	fmt.Fprintf(in.Log, "scale: %s  "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

// start starts the fleet, the database and the servers, in that order.
func start(ctx context.Context, o options, dir string) (in *installation, err error) {
	in = &installation{options: o, dir: dir}
	defer func() {
		if err != nil {
			in.stop()
		}
	}()
	var clusters []string
	for i := range o.Servers {
		clusters = append(clusters, fmt.Sprintf("c%d", i+1))
	}
	at, err := freeAddress()
	if err != nil {
		return in, err
	}
	bin := func(name string) string { return filepath.Join(o.Root, "bin", name) }
	if in.fleet, err = launch(ctx, dir, "standin", at, "/", bin("standin"), "fleet", fmt.Sprintf("--nodes=%d", o.Nodes), fmt.Sprintf("--cards=%d", o.Cards),
		"--clusters="+strings.Join(clusters, ","), "serve", "--listen="+at); err != nil {
		return in, err
	}
	if o.Database || o.Servers > 1 {
		at, err := freeAddress()
		if err != nil {
			return in, err
		}
		if in.database, err = launch(ctx, dir, "victoria-metrics", at, "/health", bin("victoria-metrics"), "-storageDataPath="+filepath.Join(dir, "database"), "-httpListenAddr="+at,
			"-retentionPeriod=30d", "-search.latencyOffset=0s", "-search.maxUniqueTimeseries=1000000", "-loggerLevel=WARN"); err != nil {
			return in, err
		}
	}
	for i := range o.Servers {
		at, err := freeAddress()
		if err != nil {
			return in, err
		}
		home := filepath.Join(dir, clusters[i])
		if err := os.MkdirAll(home, 0o755); err != nil {
			return in, err
		}
		file := filepath.Join(home, "prometheus.yml")
		if err := os.WriteFile(file, []byte(in.config(clusters[i], at)), 0o600); err != nil {
			return in, err
		}
		p, err := launch(ctx, home, "prometheus", at, "/-/ready", bin("prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(home, "data"),
			"--web.listen-address="+at, "--log.level=warn", "--query.timeout=2m")
		if err != nil {
			return in, err
		}
		in.servers = append(in.servers, p)
	}
	return in, nil
}

// config is what a server is told: its cluster's nodes, the shipped rules, and where their output goes beside.
func (in *installation) config(cluster, self string) string {
	text := fmt.Sprintf(`global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}
rule_files: ['%[2]s/*.rules.yaml']
scrape_configs:
  - job_name: fleet
    honor_labels: true
    http_sd_configs:
      - url: %[3]s/sd
    relabel_configs:
      - {source_labels: [cluster], regex: %[4]s, action: keep}
  - job_name: prometheus
    scrape_interval: %[5]s
    scrape_timeout: %[5]s
    static_configs:
      - targets: ['%[6]s']
`, promDuration(in.Interval), filepath.Join(in.Root, "alerts"), in.fleet.url, cluster, promDuration(min(in.Interval, 15*time.Second)), self)
	if in.database != nil {
		text += fmt.Sprintf("remote_write:\n  - url: %s/api/v1/write\n    write_relabel_configs:\n      - {source_labels: [__name__], regex: '.+:.+|ALERTS', action: keep}\n", in.database.url)
	}
	return text
}

func promDuration(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

func (in *installation) stop() {
	for _, p := range append(slices.Clone(in.servers), in.database, in.fleet) {
		if p != nil {
			p.stop()
		}
	}
}

// number is the answer to a query that gives one value, summed over the servers; NaN-free: no answer is 0.
func (in *installation) number(ctx context.Context, query string) (float64, error) {
	sum := 0.0
	for _, p := range in.servers {
		series, err := board.Client{URL: p.url}.Instant(ctx, query, time.Now())
		if err != nil {
			return 0, err
		}
		for _, s := range series {
			sum += s.Points[0].Value
		}
	}
	return sum, nil
}

// watch waits, and looks at the memory meanwhile. It says why it ended early, if it did.
func (in *installation) watch(ctx context.Context, length time.Duration) (ended string, err error) {
	end := time.Now().Add(length)
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	said := time.Now()
	for time.Now().Before(end) {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-tick.C:
		}
		total := 0.0
		for _, p := range append(slices.Clone(in.servers), in.fleet, in.database) {
			if p != nil && !p.running() {
				return "", p.died()
			}
		}
		for _, p := range in.servers {
			u, err := p.use()
			if err != nil {
				return "", err
			}
			total += u.Resident
		}
		if time.Since(said) > 30*time.Second {
			said = time.Now()
			in.say("%.0f MiB, %v left", total, time.Until(end).Round(time.Second))
		}
		if total > in.MemoryGiB*1024 {
			return fmt.Sprintf("Prometheus took more than the %.0f GiB that it was given", in.MemoryGiB), nil
		}
	}
	return "", nil
}

// measure plays one fleet and takes its figures.
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
	f = figures{Nodes: o.Nodes, Cards: o.Nodes * o.Cards, Servers: o.Servers, LoadBefore: load()}
	began := time.Now()
	in, err := start(ctx, o, dir)
	if err != nil {
		return f, err
	}
	defer in.stop()
	in.say("%d nodes, scraped for %v", o.Nodes, o.For)
	// The figures speak of the second half, when the fleet is known.
	settle := o.For / 2
	if f.Ended, err = in.watch(ctx, settle); err != nil {
		return f, err
	}
	before, err := in.uses()
	if err != nil {
		return f, err
	}
	half := time.Now()
	if f.Ended == "" {
		if f.Ended, err = in.watch(ctx, o.For-settle); err != nil {
			return f, err
		}
	}
	after, err := in.uses()
	if err != nil {
		return f, err
	}
	f.Scraped = time.Since(began).Round(time.Second)
	for i := range in.servers {
		f.Resident += after[i].Resident
		f.Peak += after[i].Peak
		f.CPU += perMinute(before[i], after[i])
	}
	n := len(in.servers)
	f.Standin, f.StandinCPU = after[n], perMinute(before[n], after[n])
	if in.database != nil {
		f.DatabaseUse, f.DatabaseCPU = after[n+1], perMinute(before[n+1], after[n+1])
	}
	if err := in.series(ctx, &f, max(time.Since(half), 2*o.Interval)); err != nil {
		return f, err
	}
	if err := in.rules(ctx, &f, max(time.Since(half), 2*o.Interval)); err != nil {
		return f, err
	}
	for i := range in.servers {
		f.Disk += diskBytes(filepath.Join(dir, fmt.Sprintf("c%d", i+1), "data"))
	}
	in.say("%.0f series, %.0f samples/s, %.0f MiB, %.1f s of processor a minute", f.Series, f.Samples, f.Resident, f.CPU.Seconds())
	if !o.Boards {
		return f, nil
	}
	if o.Past > 0 {
		if err := in.givePast(ctx, &f, boards, began); err != nil {
			return f, err
		}
	}
	f.LoadAfter = load()
	if o.Servers == 1 {
		in.say("asking the boards at Prometheus")
		if f.Asked, err = askAll(ctx, in.servers[0].url, boards, o.Ask, o.Interval); err != nil {
			return f, err
		}
	}
	if in.database != nil {
		in.say("asking the boards above node level at VictoriaMetrics")
		above := slices.DeleteFunc(slices.Clone(boards), func(b board.Board) bool { return !slices.Contains(aboveNode, b.UID) })
		if f.AskedDatabase, err = askAll(ctx, in.database.url, above, o.Ask, o.Interval); err != nil {
			return f, err
		}
	}
	last, err := in.uses()
	if err != nil {
		return f, err
	}
	for i := range in.servers {
		f.AfterQueries += last[i].Peak
	}
	return f, nil
}

// uses are those of the servers, the fleet and the database.
func (in *installation) uses() ([]use, error) {
	var out []use
	for _, p := range append(slices.Clone(in.servers), in.fleet, in.database) {
		if p == nil {
			continue
		}
		u, err := p.use()
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// series asks the servers about themselves, over the window that is measured.
func (in *installation) series(ctx context.Context, f *figures, w time.Duration) error {
	over := "[" + promDuration(w) + "]"
	var up, targets, p50, p99 float64
	for _, q := range []struct {
		into  *float64
		query string
	}{
		{&targets, `count(up{job!="prometheus"})`},
		{&up, `sum(up{job!="prometheus"})`},
		{&f.Series, "prometheus_tsdb_head_series"},
		{&f.SeriesPerTarget, `avg(scrape_samples_post_metric_relabeling{job="gpu-exporter"} and on (instance) up == 1)`},
		{&f.Records, `count({__name__=~".+:.+"})`},
		{&f.Alerts, `count(ALERTS)`},
		{&f.Created, "60 * rate(prometheus_tsdb_head_series_created_total" + over + ")"},
		{&f.Samples, "sum(rate(prometheus_tsdb_head_samples_appended_total" + over + "))"},
		{&p50, `quantile(0.5, scrape_duration_seconds{job="gpu-exporter"})`},
		{&p99, `quantile(0.99, scrape_duration_seconds{job="gpu-exporter"})`},
	} {
		v, err := in.number(ctx, q.query)
		if err != nil {
			return err
		}
		*q.into = v
	}
	servers := float64(len(in.servers))
	f.SeriesPerTarget /= servers
	f.Targets, f.Up = int(targets), int(up)
	f.Scrape50, f.Scrape99 = seconds(p50/servers), seconds(p99/servers)
	if in.database != nil {
		for _, q := range []struct {
			into *float64
			path string
		}{{&f.DatabaseSeries, "vm_cache_entries{type=\"storage/hour_metric_ids\"}"}, {&f.DatabaseRows, "vm_rows_inserted_total{type=\"promremotewrite\"}"}} {
			v, err := in.databaseMetric(ctx, q.path)
			if err != nil {
				return err
			}
			*q.into = v
		}
		f.DatabaseRows /= f.Scraped.Seconds()
	}
	return nil
}

// databaseMetric reads one of the database's metrics of itself.
func (in *installation) databaseMetric(ctx context.Context, series string) (float64, error) {
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

// rules reads how long groups and rules took. Groups: mean and longest over the window, rules: their last.
func (in *installation) rules(ctx context.Context, f *figures, w time.Duration) error {
	over := "[" + promDuration(w) + "]"
	var err error
	if f.Missed, err = in.number(ctx, "sum(prometheus_rule_group_iterations_missed_total)"); err != nil {
		return err
	}
	for _, p := range in.servers {
		for _, q := range []struct {
			function string
			into     func(*groupTime) *time.Duration
		}{{"min_over_time", func(g *groupTime) *time.Duration { return &g.Least }}, {"avg_over_time", func(g *groupTime) *time.Duration { return &g.Mean }}, {"max_over_time", func(g *groupTime) *time.Duration { return &g.Most }}} {
			series, err := board.Client{URL: p.url}.Instant(ctx, q.function+"(prometheus_rule_group_last_duration_seconds"+over+")", time.Now())
			if err != nil {
				return err
			}
			for _, s := range series {
				name := s.Labels["rule_group"][strings.LastIndexByte(s.Labels["rule_group"], ';')+1:]
				i := slices.IndexFunc(f.Groups, func(g groupTime) bool { return g.Name == name })
				if i < 0 {
					i, f.Groups = len(f.Groups), append(f.Groups, groupTime{Name: name})
				}
				into := q.into(&f.Groups[i])
				*into = max(*into, seconds(s.Points[0].Value))
			}
		}
		rules, err := ruleTimes(ctx, p.url)
		if err != nil {
			return err
		}
		f.Rules = append(f.Rules, rules...)
	}
	for i := range f.Groups {
		for _, r := range f.Rules {
			if r.Group == f.Groups[i].Name {
				f.Groups[i].Rules++
			}
		}
		f.Groups[i].Rules /= len(in.servers)
	}
	slices.SortFunc(f.Groups, func(a, b groupTime) int { return cmp.Compare(b.Mean, a.Mean) })
	slices.SortFunc(f.Rules, func(a, b ruleTime) int { return cmp.Compare(b.Took, a.Took) })
	return nil
}

// ruleTimes asks a server for each rule's last evaluation. A rule that failed has its error.
func ruleTimes(ctx context.Context, url string) ([]ruleTime, error) {
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

// givePast gives the records of the first server the past that the boards look back to, and waits until it is seen.
func (in *installation) givePast(ctx context.Context, f *figures, boards []board.Board, began time.Time) error {
	depth, err := depths(boards, in.Past)
	if err != nil {
		return err
	}
	start := time.Now()
	to := began.Truncate(time.Minute).Add(-time.Minute)
	var all []past
	for _, p := range in.servers {
		series, err := records(ctx, p.url, depth, in.Interval)
		if err != nil {
			return err
		}
		all = append(all, series...)
	}
	in.say("%d series of records are given a past", len(all))
	if in.database != nil {
		n, err := importPast(ctx, in.database.url, all, to)
		if err != nil {
			return err
		}
		in.say("%d samples of a past in the database after %v", n, time.Since(start).Round(time.Second))
		f.Past = n
	}
	if in.Servers > 1 {
		return nil
	}
	start = time.Now()
	if f.Past, err = writePast(ctx, filepath.Join(in.dir, "c1", "data"), all, to); err != nil {
		return err
	}
	f.PastTook = time.Since(start)
	in.say("%d samples of a past in %v", f.Past, f.PastTook.Round(time.Second))
	// Prometheus looks for new blocks once a minute.
	for end := time.Now().Add(3 * time.Minute); ; {
		blocks, err := in.number(ctx, "prometheus_tsdb_blocks_loaded")
		if err != nil {
			return err
		}
		if blocks > 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("Prometheus does not take up the blocks of the past")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Second):
		}
	}
}

// load is the machine's load average of the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
