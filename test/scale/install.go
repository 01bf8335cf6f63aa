package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/process"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// options say what is measured.
type options struct {
	Root        string
	Nodes, GPUs int
	// Servers share the nodes: by cluster, or, with Split "node", the nodes of one cluster by a hash of their names.
	Servers  int
	Split    string
	Database bool
	// Reference is one more server, which scrapes everything and sends nothing.
	Reference     bool
	For, Interval time.Duration
	Past          time.Duration
	// Ask is how often each query of the boards is asked (0: never), Limit the longest that one may take, BoardsFor all.
	Ask              int
	Limit, BoardsFor time.Duration
	MemoryGiB        float64
	Log              io.Writer
}

// clusters are those of the fleet.
func (o *options) clusters() []string {
	if o.Split == byNode {
		return []string{"c1"}
	}
	var out []string
	for i := range o.Servers {
		out = append(out, fmt.Sprintf("c%d", i+1))
	}
	return out
}

// The ways to split a fleet.
const (
	byCluster = "cluster"
	byNode    = "node"
)

// installation is a running fleet with its servers.
type installation struct {
	options
	dir     string
	epoch   time.Time // of the fleet
	fleet   *program
	servers []*program
	// database and reference are nil where there is none.
	database, reference *program
	// tags are the labels that a server's series have in the database beside their own.
	tags []map[string]string
}

func (in *installation) say(format string, args ...any) {
	fmt.Fprintf(in.Log, "scale: %s  "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

// start starts the fleet, the database and the servers, in that order.
func start(ctx context.Context, o options, dir string) (in *installation, err error) {
	in = &installation{options: o, dir: dir, epoch: fleet.Workday(time.Now())}
	defer func() {
		if err != nil {
			in.stop()
		}
	}()
	at, err := programs.FreeAddress()
	if err != nil {
		return in, err
	}
	if in.fleet, err = launch(ctx, dir, "standin", at, "/", programs.Standin.Path(o.Root), "fleet", fmt.Sprintf("--nodes=%d", o.Nodes), fmt.Sprintf("--gpus=%d", o.GPUs),
		"--clusters="+strings.Join(o.clusters(), ","), "--epoch="+in.epoch.Format(time.RFC3339), "serve", "--listen="+at); err != nil {
		return in, err
	}
	if o.Database || o.Servers > 1 {
		if at, err = programs.FreeAddress(); err != nil {
			return in, err
		}
		if in.database, err = launch(ctx, dir, "victoria-metrics", at, "/health", programs.VictoriaMetrics.Path(o.Root), "-storageDataPath="+filepath.Join(dir, "database"), "-httpListenAddr="+at,
			"-retentionPeriod=30d", "-search.latencyOffset=0s", "-search.maxUniqueTimeseries=1000000", "-search.maxQueryDuration=2m", "-loggerLevel=WARN"); err != nil {
			return in, err
		}
	}
	for i := range o.Servers {
		tags := map[string]string{}
		if o.Split == byNode {
			tags["shard"] = fmt.Sprint(i + 1)
		}
		in.tags = append(in.tags, tags)
		p, err := in.prometheus(ctx, fmt.Sprintf("prometheus-%d", i+1), i)
		if err != nil {
			return in, err
		}
		in.servers = append(in.servers, p)
	}
	if o.Reference {
		in.reference, err = in.prometheus(ctx, "reference", everything)
	}
	return in, err
}

// everything is the share of the reference.
const everything = -1

// prometheus starts a server with a share of the nodes.
func (in *installation) prometheus(ctx context.Context, name string, share int) (*program, error) {
	at, err := programs.FreeAddress()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(in.dir, name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(home, "prometheus.yml")
	if err := os.WriteFile(file, []byte(in.config(share, at)), 0o600); err != nil {
		return nil, err
	}
	return launch(ctx, home, "prometheus", at, "/-/ready", programs.Prometheus.Path(in.Root), "--config.file="+file, "--storage.tsdb.path="+in.data(name),
		"--web.listen-address="+at, "--log.level=warn", "--query.timeout=2m")
}

// data is where a server keeps its series.
func (in *installation) data(server string) string { return filepath.Join(in.dir, server, "data") }

// config is what a server is told: its share of the nodes, the shipped rules, and where their output goes beside.
func (in *installation) config(share int, self string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "global:\n  scrape_interval: %[1]s\n  scrape_timeout: %[1]s\n  evaluation_interval: %[1]s\n", promDuration(in.Interval))
	if share != everything {
		for name, value := range in.tags[share] {
			fmt.Fprintf(&b, "  external_labels: {%s: '%s'}\n", name, value)
		}
	}
	fmt.Fprintf(&b, "rule_files: ['%s/*.rules.yaml']\nscrape_configs:\n  - job_name: fleet\n    honor_labels: true\n    http_sd_configs:\n      - url: %s/sd\n",
		filepath.Join(in.Root, "alerts"), in.fleet.url)
	switch {
	case share == everything || in.Servers == 1:
	case in.Split == byNode:
		// kube-state-metrics is everybody's: it tells whose the pods are.
		fmt.Fprintf(&b, `    relabel_configs:
      - {source_labels: [instance], modulus: %d, target_label: __tmp_shard, action: hashmod}
      - {source_labels: [__tmp_shard, job], regex: '%d;.*|.*;kube-state-metrics', action: keep}
`, in.Servers, share)
	default:
		fmt.Fprintf(&b, "    relabel_configs:\n      - {source_labels: [cluster], regex: %s, action: keep}\n", in.clusters()[share])
	}
	fmt.Fprintf(&b, "  - job_name: prometheus\n    scrape_interval: %[1]s\n    scrape_timeout: %[1]s\n    static_configs:\n      - targets: ['%[2]s']\n", promDuration(min(in.Interval, 15*time.Second)), self)
	if in.database == nil || share == everything {
		return b.String()
	}
	fmt.Fprintf(&b, "remote_write:\n  - url: %s/api/v1/write\n    write_relabel_configs:\n      - {source_labels: [__name__], regex: '%s', action: keep}\n", in.database.url, ruleOutput)
	if in.Split == byNode && share > 0 {
		// What pods ask for is known to each of them, and is sent by one.
		fmt.Fprintf(&b, "      - {source_labels: [__name__], regex: '%s', action: drop}\n", askedFor)
	}
	return b.String()
}

// ruleOutput are the names of what rules make; askedFor those that kube-state-metrics alone decides.
const (
	ruleOutput = ".+:.+|ALERTS"
	askedFor   = "(namespace|cluster):gpu_requests.*"
)

func promDuration(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// all are the programs that run.
func (in *installation) all() []*program {
	all := append(slices.Clone(in.servers), in.reference, in.database, in.fleet)
	return slices.DeleteFunc(all, func(p *program) bool { return p == nil })
}

func (in *installation) stop() {
	for _, p := range in.all() {
		p.stop()
	}
}

// leastMiB is the memory that the machine must keep.
const leastMiB = 1000

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
		for _, p := range in.all() {
			if !p.running() {
				return "", p.died()
			}
		}
		total := 0.0
		for _, p := range in.servers {
			u, err := p.use()
			if err != nil {
				return "", err
			}
			total += u.Resident
		}
		if time.Since(said) > 30*time.Second {
			said = time.Now()
			in.say("%.0f MiB, %v left", total, max(0, time.Until(end).Round(time.Second)))
		}
		if total > in.MemoryGiB*1024 {
			return fmt.Sprintf("Prometheus took more than the %.0f GiB that it was given", in.MemoryGiB), nil
		}
		if left, err := process.Available(); err == nil && left < leastMiB {
			return fmt.Sprintf("the machine had %.0f MiB of memory left", left), nil
		}
	}
	return "", nil
}
