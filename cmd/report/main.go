// Command gpu-report answers where the hours of a fleet's GPUs went, from the history that gpu-exporter left in
// a Prometheus-compatible server, and what would get the wasted ones back.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/gpu-exporter/gpu-exporter/report"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/render"
)

// Exit codes; see docs/report.md.
const (
	exitOK      = 0
	exitBroken  = 1 // the server could not be read, or a file not be written
	exitUsage   = 2 // a flag or a file is wrong: nothing was asked
	exitNoData  = 3 // the server has nothing to report on
	exitPartial = 4 // a report was written and misses something, as it says at its top
	exitFailOn  = 5 // a report was written, and a limit of --fail-on is exceeded
)

func main() { os.Exit(reportMain(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// reportMain makes a report. It returns the exit code.
func reportMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fail := func(err error) { fmt.Fprintf(stderr, "gpu-report: %v\n", err) }
	c, err := parse(args, stdout, stderr)
	switch {
	case errors.As(err, new(errHelp)):
		return exitOK
	case err != nil:
		fail(err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := prom.New(c.server, c.log)
	if err != nil {
		fail(err)
		return exitUsage
	}
	bar := newProgress(stderr, c.quiet)
	c.options.Progress = bar.show
	doc, err := report.Build(ctx, client, c.options)
	bar.end()
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted: no report was written")
		}
		fail(err)
		if errors.As(err, new(*report.NoData)) {
			return exitNoData
		}
		return exitBroken
	}
	if err := write(doc, c, stdout); err != nil {
		fail(err)
		return exitBroken
	}
	tellStats(c.log, client.Stats())
	if doc.Partial {
		for _, p := range doc.Problems {
			fmt.Fprintf(stderr, "gpu-report: partial: %s\n", p)
		}
		return exitPartial
	}
	for _, l := range c.failOn {
		if text, exceeded := l.exceeded(doc); exceeded {
			fmt.Fprintf(stderr, "gpu-report: --fail-on: %s\n", text)
			return exitFailOn
		}
	}
	return exitOK
}

func tellStats(log *slog.Logger, s prom.Stats) {
	log.Debug("read", "requests", s.Requests, "retries", s.Retries, "halved", s.Halved, "series", s.Series, "points", s.Points, "bytes", s.Bytes, "waited", s.Waited)
}

// write writes every format: the first to stdout when there is no place to write to.
func write(doc *report.Document, c *settings, stdout io.Writer) error {
	shown := render.Options{By: c.by, Top: c.top}
	if c.out == "" {
		return render.Write(stdout, doc, c.formats[0], shown)
	}
	if len(c.formats) == 1 && filepath.Ext(c.out) != "" {
		return writeFile(c.out, doc, c.formats[0], shown)
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	for _, f := range c.formats {
		if err := writeFile(filepath.Join(c.out, "gpu-report."+render.Extension(f)), doc, f, shown); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes beside and renames, so that nobody reads half a report.
func writeFile(path string, doc *report.Document, format string, o render.Options) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".gpu-report-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it is gone when all went well
	if err := errors.Join(render.Write(f, doc, format, o), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
