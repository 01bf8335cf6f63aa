// Command gpu-report accounts for the GPU-hours of a fleet, from the history of gpu-exporter in a Prometheus-compatible
// server, and recommends how to recover the unused ones.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // for --time-zone where the machine has no list of zones

	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/report"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/render"
)

// Exit codes; about has their meaning.
const (
	exitOK      = 0
	exitBroken  = 1 // the server could not be read, a file not be written, or the webhook not be reached
	exitUsage   = 2 // a flag or a file is invalid: nothing was queried
	exitNoData  = 3 // the server has nothing to report on
	exitPartial = 4 // a report was written and misses something, as listed at its top
	exitFailOn  = 5 // a report was written, and a limit of --fail-on is exceeded
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // most of the memory is what was read, for long
	}
	os.Exit(reportMain(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// reportMain makes a report. It returns the exit code.
func reportMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fail := func(err error) { fmt.Fprintf(stderr, "gpu-report: %v\n", err) }
	c, err := parse(args, stdout, stderr)
	switch {
	case errors.Is(err, cmdline.ErrPrinted):
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
	if !c.quiet {
		c.options.Progress = showProgress(stderr)
	}
	doc, err := report.Build(ctx, client, c.options)
	if c.options.Progress != nil {
		c.options.Progress("", 0, 0)
	}
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
	if c.before != nil {
		doc.Compare(c.before)
	}
	if c.goal > 0 {
		doc.Aim(c.goal)
	}
	if list := c.options.Prices; list != nil {
		for _, name := range doc.Project(list.Budgets) {
			doc.Notes = append(doc.Notes, document.Note{Code: "unused_budgets", Text: "The report has no group and no namespace for the " +
				"budget of " + name + "."})
		}
	}
	if c.history != "" {
		doc.Remember(c.past)
		file := filepath.Join(c.history, "gpu-report-"+doc.Period.To.Format("20060102T1504Z")+".json")
		if err := errors.Join(os.MkdirAll(c.history, 0o755), writeFile(file, doc, "json", render.Options{})); err != nil {
			fail(err)
			return exitBroken
		}
	}
	if err := write(doc, c, stdout); err != nil {
		fail(err)
		return exitBroken
	}
	if c.webhook != "" {
		if err := post(ctx, doc, c.webhook, c.server.Retries+1, c.server.RetryDelay); err != nil {
			fail(err)
			return exitBroken
		}
	}
	if doc.Partial {
		for _, p := range doc.PartialReasons {
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

// write writes every format; without --out the only one goes to stdout.
func write(doc *document.Document, c *settings, stdout io.Writer) error {
	shown := render.Options{By: c.by, Top: c.top, Query: c.query}
	if len(c.levels) == 1 {
		shown.Level = c.levels[0]
	}
	if c.out == "" {
		return render.Write(stdout, doc, c.formats[0], shown)
	}
	if !c.directory() {
		return writeFile(c.out, doc, c.formats[0], shown)
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	for _, f := range c.formats {
		levels := []string{""}
		if f == "csv" {
			if levels = c.levels; levels == nil {
				levels = render.CSVLevels(doc)
			}
		}
		for _, shown.Level = range levels {
			if err := writeFile(filepath.Join(c.out, render.File(f, shown.Level)), doc, f, shown); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeFile writes a temporary file and renames it, so that half a report is never visible.
func writeFile(path string, doc *document.Document, format string, o render.Options) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".gpu-report-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it was renamed if all went well
	if err := errors.Join(render.Write(f, doc, format, o), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// showProgress returns a function that shows progress: on a terminal in one line that is overwritten and at the end cleared, elsewhere, as
// in the log of a CronJob, in a line for each stage and each tenth of it.
func showProgress(w io.Writer) func(stage string, done, total int) {
	before, end := "", "\n"
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			before, end = "\r\x1b[K", ""
		}
	}
	last := ""
	return func(stage string, done, total int) {
		text := "reading " + stage
		switch {
		case stage == "":
			text = ""
		case end != "" && total > 1:
			text = fmt.Sprintf("reading %s: %d %% of %d", stage, 100*done/total/10*10, total)
		case total > 1:
			text = fmt.Sprintf("reading %s: %d of %d", stage, done, total)
		}
		if text != last && (text != "" || end == "") {
			fmt.Fprint(w, before, text, end)
		}
		last = text
	}
}
