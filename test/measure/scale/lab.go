package scale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
	"github.com/gpu-exporter/gpu-exporter/test/process"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// server is a running program with an HTTP API.
type server struct {
	*testkit.Child
	dashboard.Client
	name  string
	ready string // path that responds once it is ready
}

// lab is a running fleet with its servers.
type lab struct {
	options
	dir                 string
	epoch               time.Time // of the fleet
	fleet               *server
	servers             []*server
	database, reference *server // nil: none
}

func (l *lab) progress(format string, args ...any) {
	fmt.Fprintf(l.log, "scale: %s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

// launch starts a program and waits until it is ready.
func launch(ctx context.Context, name, address, ready string, args ...string) (*server, error) {
	child, err := testkit.Start(exec.Command(args[0], args[1:]...))
	if err != nil {
		return nil, err
	}
	s := &server{child, dashboard.Client{URL: "http://" + address}, name, ready}
	if err := child.Within(ctx, 2*time.Minute, func() error { return get(ctx, s.URL+ready) }); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not ready: %w", name, err), child.Stop())
	}
	return s, nil
}

// restart stops a server and starts it again with the same data.
func (s *server) restart(ctx context.Context) (*server, error) {
	if err := s.Stop(); err != nil {
		return nil, err
	}
	return launch(ctx, s.name, strings.TrimPrefix(s.URL, "http://"), s.ready, s.Args()...)
}

// get requests a page.
func get(ctx context.Context, url string) error {
	_, err := testkit.Client{}.Fetch(ctx, url)
	return err
}

// clusters are those of the fleet.
func (o *options) clusters() []string {
	if o.split == byNode {
		return []string{"c1"}
	}
	var out []string
	for i := range o.servers {
		out = append(out, fmt.Sprintf("c%d", i+1))
	}
	return out
}

// start starts the fleet, the database and the servers, in that order.
func start(ctx context.Context, o options, dir string) (l *lab, err error) {
	l = &lab{options: o, dir: dir, epoch: fleet.Workday(time.Now())}
	defer func() {
		if err != nil {
			l.stop()
		}
	}()
	at, err := standin.FreeAddress()
	if err != nil {
		return l, err
	}
	if l.fleet, err = launch(ctx, "fleet", at, "/", append([]string{cmp.Or(o.standin, programs.Standin.Path(o.root)), "fleet",
		fmt.Sprintf("--nodes=%d", o.nodes), fmt.Sprintf("--gpus=%d", o.gpus), "--clusters=" + strings.Join(o.clusters(), ","),
		"--epoch=" + l.epoch.Format(time.RFC3339), "--listen=" + at}, o.serve...)...); err != nil {
		return l, err
	}
	if o.servers > 1 {
		if at, err = standin.FreeAddress(); err != nil {
			return l, err
		}
		if l.database, err = launch(ctx, "victoria-metrics", at, "/health", programs.VictoriaMetrics.Path(o.root),
			"-storageDataPath="+filepath.Join(dir, "database"), "-httpListenAddr="+at, "-retentionPeriod=30d",
			"-search.disableCache",
			"-search.latencyOffset=0s", "-search.maxUniqueTimeseries=1000000", "-search.maxQueryDuration=2m",
			"-loggerLevel=WARN"); err != nil {
			return l, err
		}
	}
	for i := range o.servers {
		s, err := l.prometheus(ctx, fmt.Sprintf("prometheus-%d", i+1), i)
		if err != nil {
			return l, err
		}
		l.servers = append(l.servers, s)
	}
	if o.reference {
		l.reference, err = l.prometheus(ctx, "reference", everything)
	}
	return l, err
}

// everything is the share of the reference.
const everything = -1

// prometheus starts a server with a share of the nodes.
func (l *lab) prometheus(ctx context.Context, name string, share int) (*server, error) {
	at, err := standin.FreeAddress()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(l.dir, name+".yml")
	if err := os.WriteFile(config, []byte(l.config(share, at)), 0o600); err != nil {
		return nil, err
	}
	return launch(ctx, name, at, "/-/ready", programs.Prometheus.Path(l.root), "--config.file="+config,
		"--storage.tsdb.path="+l.data(name),
		"--web.listen-address="+at, "--log.level=warn", "--query.timeout=2m")
}

// data is where a server keeps its series.
func (l *lab) data(server string) string { return filepath.Join(l.dir, server) }

// recorded are the names of what rules record; requests those that kube-state-metrics alone determines.
const (
	recorded = ".+:.+|ALERTS"
	requests = "namespace:gpu_requests.*"
)

// tags are the labels that a server's series have in the database beside their own.
func (l *lab) tags(share int) map[string]string {
	if l.split == byNode {
		return map[string]string{"shard": fmt.Sprint(share + 1)}
	}
	return map[string]string{}
}

// config is that of a server: its share of the nodes, the shipped rules, and remote write of what they record.
func (l *lab) config(share int, self string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "global:\n  scrape_interval: %[1]s\n  scrape_timeout: %[1]s\n  evaluation_interval: %[1]s\n",
		milliseconds(l.interval))
	if share != everything {
		for name, value := range l.tags(share) {
			fmt.Fprintf(&b, "  external_labels: {%s: '%s'}\n", name, value)
		}
	}
	rules := cmp.Or(l.rules, filepath.Join(l.root, "alerts"))
	fmt.Fprintf(&b, "rule_files: ['%s/*.rules.yaml']\nscrape_configs:\n  - job_name: fleet\n    honor_labels: true\n"+
		"    http_sd_configs:\n      - url: %s/sd\n", rules, l.fleet.URL)
	switch {
	case share == everything || l.options.servers == 1:
	case l.split == byNode:
		// Every server scrapes kube-state-metrics, which has the workloads of the pods.
		fmt.Fprintf(&b, `    relabel_configs:
      - {source_labels: [instance], modulus: %d, target_label: __tmp_shard, action: hashmod}
      - {source_labels: [__tmp_shard, job], regex: '%d;.*|.*;kube-state-metrics', action: keep}
`, l.options.servers, share)
	default:
		fmt.Fprintf(&b, "    relabel_configs:\n      - {source_labels: [cluster], regex: %s, action: keep}\n", l.clusters()[share])
	}
	fmt.Fprintf(&b, "  - job_name: prometheus\n    scrape_interval: %[1]s\n    scrape_timeout: %[1]s\n    "+
		"static_configs:\n"+
		"      - targets: ['%[2]s']\n", milliseconds(min(l.interval, 15*time.Second)), self)
	if l.database == nil || share == everything {
		return b.String()
	}
	fmt.Fprintf(&b, "remote_write:\n  - url: %s/api/v1/write\n    write_relabel_configs:\n"+
		"      - {source_labels: [__name__], regex: '%s', action: keep}\n", l.database.URL, recorded)
	if l.split == byNode && share > 0 {
		// Every server knows what pods request; one writes it.
		fmt.Fprintf(&b, "      - {source_labels: [__name__], regex: '%s', action: drop}\n", requests)
	}
	return b.String()
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// all are the programs that run.
func (l *lab) all() []*server {
	all := append(slices.Clone(l.servers), l.reference, l.database, l.fleet)
	return slices.DeleteFunc(all, func(s *server) bool { return s == nil })
}

func (l *lab) stop() {
	for _, s := range l.all() {
		if err := s.Stop(); err != nil {
			l.progress("stop %s: %v", s.name, err)
		}
	}
}

// minFreeMiB is the memory that the machine must keep.
const minFreeMiB = 1000

// wait waits while the servers scrape, and returns why it had to stop early: too little memory, or a server that
// exited.
func (l *lab) wait(ctx context.Context, length time.Duration) (aborted string, err error) {
	for end := time.Now().Add(length); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(2 * time.Second):
		}
		total := 0.0
		for _, s := range l.all() {
			if err := s.Exited(); err != nil {
				return err.Error(), nil //nolint:nilerr // an exit under load is a result
			}
			u, err := process.Of(s.PID())
			if err != nil {
				return "", err
			}
			if slices.Contains(l.servers, s) {
				total += u.Resident
			}
		}
		if total > l.memoryGiB*1024 {
			return fmt.Sprintf("Prometheus used more than %.0f GiB (--memory)", l.memoryGiB), nil
		}
		if _, left, err := process.Memory(); err == nil && left < minFreeMiB {
			return fmt.Sprintf("the machine had %.0f MiB of memory left", left), nil
		}
	}
	return "", nil
}

// options say how a fleet is measured.
type options struct {
	root        string
	rules       string   // folder of the rules; empty: the shipped ones
	standin     string   // program of the fleet; empty: the one in bin/
	serve       []string // further flags of it
	nodes, gpus int      // gpus of each node
	// servers share the nodes: by cluster, or, with split "node", the nodes of one cluster by a hash of their names.
	servers int
	split   string
	// reference is one more server that scrapes everything and writes nothing.
	reference bool
	// period is how long the fleet is scraped, at each interval.
	period, interval time.Duration
	history          time.Duration
	// repeat is how often each query runs (0: never), timeout the limit of one, queriesFor that of all.
	repeat              int
	timeout, queriesFor time.Duration
	memoryGiB           float64
	log                 io.Writer
}

// The ways to share nodes between servers.
const (
	byCluster = "cluster"
	byNode    = "node"
)

// queryTimeout limits the queries about the servers themselves, which may be busy.
const queryTimeout = 2 * time.Minute

// instant evaluates a query on a server now.
func instant(ctx context.Context, s *server, query string, at time.Time) ([]dashboard.Series, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.Instant(ctx, query, at)
}

// value is the sum of the series of a result.
func value(ctx context.Context, s *server, query string, at time.Time) (float64, error) {
	series, err := instant(ctx, s, query, at)
	total := 0.0
	for _, s := range series {
		total += s.Points[0].Value
	}
	return total, err
}
