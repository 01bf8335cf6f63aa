package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// misused is an error of the arguments or of a file that they name: nothing was started.
type misused struct{ error }

// Unwrap returns what was wrong, or that only a text was requested.
func (m misused) Unwrap() error { return m.error }

// exitCodes are those of both commands.
func exitCodes() [][2]string {
	return [][2]string{{"0", "stopped"}, {"1", "failed while running"}, {"2", "invalid flag or file: nothing was started"}}
}

// fleetFlags are the flags of `standin fleet`.
type fleetFlags struct {
	preset      string
	seed        uint64
	nodes, gpus int
	clusters    string
	epoch       string
	cycle       time.Duration
	listen      string
	length      time.Duration
	metrics     string
}

// runFleet is `standin fleet …`: it serves a simulated fleet.
func runFleet(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c fleetFlags
	app := cmdline.New(&cmdline.About{Name: "standin fleet", Text: "Simulates many nodes with GPUs: pages to scrape. The same flags " +
		"give the same fleet.", ExitCodes: exitCodes()}, stdout, stderr)
	app.Flag("preset", "Small fleet with every class of workload and fault: demo. Empty: a large one, see "+
		"--nodes.").StringVar(
		&c.preset)
	app.Flag("seed", "Seed of the random source.").Default("1").Uint64Var(&c.seed)
	app.Flag("nodes", "Nodes of the large fleet.").Default("2000").IntVar(&c.nodes)
	app.Flag("gpus", "GPUs of each of its nodes.").Default("8").IntVar(&c.gpus)
	app.Flag("clusters", "Its clusters, separated by commas.").Default("main").StringVar(&c.clusters)
	app.Flag("epoch", "A Monday's midnight for the fleet, RFC 3339: its weeks and maintenance cycles are counted "+
		"from there.").Default(fleet.DefaultEpoch().Format(time.RFC3339)).StringVar(&c.epoch)
	app.Flag("cycle", "Length of a maintenance cycle.").Default("336h").DurationVar(&c.cycle)

	app.Flag("listen", "Address to listen on.").Default("127.0.0.1:10836").StringVar(&c.listen)
	app.Flag("for", "Stop after this time; 0: at Ctrl-C.").Default("0s").DurationVar(&c.length)

	app.Flag("metrics", "How many metrics the exporters have.").Default(catalog.SizeAll.String()).EnumVar(&c.metrics, catalog.Sizes()...)

	if err := app.Parse(args); err != nil {
		return misused{err}
	}
	f, err := c.fleet()
	if err != nil {
		return misused{err}
	}
	return c.serve(ctx, f, stdout)
}

func (c *fleetFlags) fleet() (*fleet.Fleet, error) {
	config := fleet.Big(c.seed, c.nodes, c.gpus, strings.Split(c.clusters, ",")...)
	if c.preset != "" {
		var err error
		if config, err = fleet.Preset(c.preset, c.seed); err != nil {
			return nil, err
		}
	}
	epoch, err := time.Parse(time.RFC3339, c.epoch)
	if err != nil {
		return nil, fmt.Errorf("--epoch: %w", err)
	}
	config.Epoch, config.Cycle = epoch, c.cycle
	return fleet.New(config)
}

func (c *fleetFlags) serve(ctx context.Context, f *fleet.Fleet, stdout io.Writer) error {
	if c.length > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.length)
		defer stop()
	}
	handler, err := expose.NewServer(f, time.Now, catalog.Selection{Size: catalog.SizeNamed(c.metrics)}.Families())
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d nodes\n\n  index    http://%s/\n  targets  http://%s/sd\n\nCtrl-C stops it.\n", f.Len(), l.Addr(), l.Addr())
	return serveUntil(ctx, l, handler)
}

// serveUntil serves requests until ctx ends.
func serveUntil(ctx context.Context, l net.Listener, handler http.Handler) (err error) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		closing, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer stop()
		if server.Shutdown(closing) != nil {
			server.Close()
		}
		err = <-done
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
