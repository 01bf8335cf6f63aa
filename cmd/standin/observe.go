package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/replay"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// observer runs a database that scrapes the exporter and a simulated fleet, with a page to look at, and the evaluator of the
// rules. If any of it fails, the exporter keeps running.
type observer struct {
	// database, rules and fleet are the addresses of the database, the evaluator and the simulated fleet.
	database, rules, fleet string
	// history is how much of the fleet's history the database gets.
	history time.Duration

	root      string // the repository: programs are built from its tools
	dir       string // of the data; the caller removes it
	exporter  string // address
	out       io.Writer
	simulated *fleet.Fleet
}

// observe starts the simulated fleet and the observer, and returns when ctx ends or any of it fails.
func (o observer) observe(ctx context.Context, dir, exporter string, out io.Writer) (err error) {
	o.dir, o.exporter, o.out = dir, exporter, out
	if o.root, err = standin.RepositoryRoot(); err != nil {
		return err
	}
	preset := fleet.Demo(1)
	preset.Epoch = fleet.Workday(time.Now())
	if o.simulated, err = fleet.New(preset); err != nil {
		return err
	}
	handler, err := expose.NewServer(o.simulated, time.Now, catalog.All())
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", o.fleet)
	if err != nil {
		return fmt.Errorf("serve the simulated fleet: %w; make demo FLEET_LISTEN=127.0.0.1:PORT takes another address", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { stop(serveUntil(ctx, l, handler)) })
	defer serving.Wait()
	defer stop(nil)
	if err := o.run(ctx); err != nil {
		return err
	}
	return ended(ctx)
}

// run builds, starts and fills; it returns when ctx ends, or with the first error.
func (o observer) run(ctx context.Context) error {
	for _, address := range []string{o.database, o.rules} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("listen on %s: %w; make demo DATABASE=127.0.0.1:PORT RULES=127.0.0.1:PORT takes "+
				"others", address, err)
		}
		l.Close()
	}
	start := time.Now()
	fmt.Fprintln(o.out, "building VictoriaMetrics and vmalert (half a minute the first time) ...")
	bin := filepath.Join(o.root, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+string(filepath.Separator),
		"github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics",
		"github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert")
	build.Dir = filepath.Join(o.root, "tools", "victoriametrics")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build VictoriaMetrics: %w: %s", err, out)
	}
	config := filepath.Join(o.dir, "scrape.yaml")
	if err := os.WriteFile(config, []byte(o.scrapeConfig()), 0o600); err != nil {
		return err
	}
	base := "http://" + o.database
	ctx, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	launch := func(name string, args ...string) {
		running.Go(func() { stop(o.keep(ctx, name, args...)) })
	}
	defer func() {
		stop(nil)
		running.Wait()
	}()
	launch("victoria-metrics", "-httpListenAddr="+o.database, "-storageDataPath="+filepath.Join(o.dir, "data"),
		"-retentionPeriod=90d",
		"-promscrape.config="+config, "-search.latencyOffset=5s", "-vmalert.proxyURL=http://"+o.rules,
		"-loggerLevel=ERROR")
	if err := await(ctx, base+"/health"); err != nil {
		return err
	}
	to := time.Now()
	from := to.Add(-o.history).Truncate(time.Minute)
	if o.history > 0 {
		if err := replay.Import(ctx, base, func(w io.Writer) error {
			return expose.History{From: from, To: to, Step: time.Minute}.Write(ctx, o.simulated, w)
		}); err != nil {
			return fmt.Errorf("write the history: %w", err)
		}
		fmt.Fprintf(o.out, "%v of history written, replaying the rules ...\n", o.history)
		if err := replay.Rules(ctx, filepath.Join(bin, "vmalert"), base, o.dir, from, to, func() error {
			return await(ctx, base+"/internal/force_flush")
		}); err != nil {
			return err
		}
	}
	launch("vmalert", append(o.ruleFiles(), "-datasource.url="+base, "-remoteWrite.url="+base, "-remoteRead.url="+base,
		"-notifier.blackhole", "-evaluationInterval=30s", "-httpListenAddr="+o.rules, "-loggerLevel=ERROR")...)
	if err := await(ctx, "http://"+o.rules+"/health"); err != nil {
		return err
	}
	fmt.Fprintf(o.out, "\n  database %s/vmui/  (after %v: metrics of this node and of a simulated fleet, %v back)\n  "+
		"alerts   http://%s/vmalert/groups\n  preview  make preview\n\n",
		base, time.Since(start).Round(time.Second), o.history, o.rules)
	<-ctx.Done()
	return ended(ctx)
}

// ended is the cause for which ctx ended; nil if it was canceled.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// keep runs a program until ctx ends.
func (o observer) keep(ctx context.Context, name string, args ...string) error {
	var output testkit.Output
	cmd := exec.CommandContext(ctx, filepath.Join(o.root, "bin", name), args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); ctx.Err() == nil {
		return fmt.Errorf("%s exited: %w: %s", name, err, output.LastLine())
	}
	return nil
}

func (o observer) ruleFiles() []string {
	var out []string
	for _, f := range []string{"recording.rules.yaml", "alerts.rules.yaml"} {
		out = append(out, "-rule="+filepath.Join(o.root, "alerts", f))
	}
	return out
}

func (o observer) scrapeConfig() string {
	return `global:
  scrape_interval: 15s
scrape_configs:
  - job_name: gpu-exporter
    honor_labels: true
    static_configs:
      - targets: ["` + o.exporter + `"]
  - job_name: fleet
    honor_labels: true
    http_sd_configs:
      - url: http://` + o.fleet + `/sd
`
}

// await waits until the URL responds.
func await(ctx context.Context, url string) error {
	return testkit.Within(ctx, 30*time.Second, func() error {
		_, err := testkit.Client{}.Fetch(ctx, url)
		return err
	})
}
