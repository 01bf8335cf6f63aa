// Command fleet writes the past of a simulated fleet as blocks of a Prometheus database.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/test/fleet/blocks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "fleet: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	preset := flag.String("preset", "", "small fleet by name (demo); empty: a big one")
	seed := flag.Uint64("seed", 1, "another number, another fleet")
	nodes, devs := flag.Int("nodes", 125, "nodes of the big fleet"), flag.Int("gpus", 8, "GPUs of each")
	clusters := flag.String("clusters", "main", "clusters of the big fleet, separated by commas")
	length, step := flag.Duration("length", 6*time.Hour, "how much past, up to -to"), flag.Duration("step", 30*time.Second, "time between two scrapes")
	to := flag.String("to", "", "where it ends, RFC 3339; empty: now")
	families := flag.String("families", "", "write these families alone, separated by commas")
	out := flag.String("out", "", "the database's folder")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		return fmt.Errorf("-out=FOLDER is needed, and no argument beside the flags")
	}
	config := fleet.Big(*seed, *nodes, *devs, strings.Split(*clusters, ",")...)
	var err error
	if *preset != "" {
		if config, err = fleet.Preset(*preset, *seed); err != nil {
			return err
		}
	}
	f, err := fleet.New(config)
	if err != nil {
		return err
	}
	o := blocks.Options{To: time.Now(), Step: *step}
	if *to != "" {
		if o.To, err = time.Parse(time.RFC3339, *to); err != nil {
			return fmt.Errorf("-to: %w", err)
		}
	}
	o.From = o.To.Add(-*length).Truncate(*step)
	if *families != "" {
		want := map[string]bool{}
		for name := range strings.SplitSeq(*families, ",") {
			want[name] = true
		}
		o.Want = func(name string) bool { return want[name] }
	}
	began := time.Now()
	r, err := blocks.Write(ctx, *out, f, o)
	if err != nil {
		return err
	}
	fmt.Printf("%d samples in %d blocks, %v\n", r.Samples, r.Blocks, time.Since(began).Round(time.Millisecond))
	return nil
}
