// Package hwcheck compares gpu-exporter with nvidia-smi on the NVIDIA GPUs of this machine: every field that both
// report, busy time under a load of known duty, energy against power, GPM against utilization, and the latency of each
// driver call.
package hwcheck

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
)

// Exit codes: all checks passed, there are findings or checks that could not be made, nothing was checked.
const (
	exitPassed   = 0
	exitFindings = 1
	exitRefused  = 2
)

type config struct {
	exporter    string
	smi         smi
	out, gpu    string
	load        string
	duty        float64
	period      time.Duration
	saveJournal bool
}

// Run is the command; it returns its exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	refuse := func(err error) int {
		fmt.Fprintf(stderr, "hwcheck: %s\n", oneLine(err.Error()))
		return exitRefused
	}
	c, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitPassed
	}
	if err != nil {
		return refuse(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.period+20*time.Minute)
	defer cancel()
	r, err := newRun(ctx, c, stdout)
	if err != nil {
		return refuse(err)
	}
	r.examine(ctx)
	if ctx.Err() != nil {
		fmt.Fprintf(stderr, "hwcheck: interrupted (%v); no report\n", context.Cause(ctx))
		return exitFindings
	}
	text, err := page.Render("hwcheck", &r.Report)
	if err == nil {
		err = page.Save(filepath.Dir(r.out), strings.TrimSuffix(filepath.Base(r.out), ".md"), text, &r.Report)
	}
	if err != nil {
		r.add(Check{Name: "report"}.incomplete("%v", err))
	}
	fmt.Fprintf(stdout, "\n%s\nreport: %s\nresult: %s\n", text, r.out, r.Result())
	if r.Result() != passed {
		return exitFindings
	}
	return exitPassed
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("hwcheck", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.exporter, "exporter", filepath.Join("bin", "gpu-exporter"), "`path` of the exporter")
	f.StringVar((*string)(&c.smi), "nvidia-smi", "nvidia-smi", "`path` of nvidia-smi, or its name on PATH")
	f.StringVar(&c.out, "out", "", "`file` of the report (default docs/hardware/MODEL-DRIVER.md)")
	f.StringVar(&c.gpu, "gpu", "", "index or UUID of the `GPU` to load (default the first that is not in MIG mode)")
	f.StringVar(&c.load, "load", loadAuto, "`kind` of load: "+strings.Join(loadKinds(), ", "))
	f.Float64Var(&c.duty, "duty", 0.3, "`share` of each second for which the load keeps the GPU busy")
	f.DurationVar(&c.period, "period", time.Minute, "how long to measure, once idle and once under load")
	f.BoolVar(&c.saveJournal, "record", true, "save the driver calls with gpu-exporter record beside the report")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected %s; --help lists the flags", f.Arg(0))
	case !slices.Contains(loadKinds(), c.load):
		return c, fmt.Errorf("--load must be one of %s, got %s", strings.Join(loadKinds(), ", "), c.load)
	case c.duty <= 0 || c.duty > 0.95:
		return c, fmt.Errorf("--duty must be more than 0 and at most 0.95, got %g", c.duty)
	case c.period < 3*time.Second:
		return c, fmt.Errorf("--period must be at least 3s, got %v", c.period)
	}
	return c, nil
}

// run is one examination of the machine.
type run struct {
	config
	Report
	log      io.Writer
	devices  []device
	uuids    []string
	checked  device // the GPU that is loaded and shown in full
	fields   []field
	idleBusy float64 // share of time for which the GPU was busy before the load
}

func (r *run) progress(format string, args ...any) {
	fmt.Fprintf(r.log, "hwcheck: "+format+"\n", args...)
}

// newRun finds all that the examination needs; an error means that nothing can be checked here.
func newRun(ctx context.Context, c config, log io.Writer) (*run, error) {
	if _, err := exec.LookPath(string(c.smi)); err != nil {
		return nil, fmt.Errorf("nvidia-smi not found: %w; hwcheck needs a machine with an NVIDIA GPU and its driver",
			err)
	}
	r := &run{config: c, log: log}
	var err error
	if r.devices, err = c.smi.query(ctx, []string{"index", "name", "driver_version", "compute_cap",
		"mig.mode.current"}); err != nil {
		return nil, fmt.Errorf("no GPU to check: %w", err)
	}
	path, err := exec.LookPath(c.exporter)
	if err != nil {
		return nil, fmt.Errorf("no exporter to check: %w; build it with `make build`", err)
	}
	if r.fields, err = queryFields(); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, d := range r.devices {
		r.uuids = append(r.uuids, d["uuid"])
		counts[d["name"]]++
		wanted := c.gpu == d["index"] || c.gpu == d["uuid"] || c.gpu == "" && d["mig.mode.current"] != "Enabled"
		if r.checked == nil && wanted {
			r.checked = d
		}
	}
	if r.checked == nil && c.gpu != "" {
		return nil, fmt.Errorf("nvidia-smi lists no GPU %s (--gpu)", c.gpu)
	}
	if r.checked == nil {
		r.checked = r.devices[0] // all are in MIG mode; checks that do not apply are skipped
	}
	r.Model, r.Driver, r.Date = r.checked["name"], r.checked["driver_version"], time.Now().UTC().Format(time.DateOnly)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		r.fact("GPUs", "%d x %s", counts[name], name)
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	r.fact("kernel", "Linux %s, %s", strings.TrimSpace(string(kernel)), runtime.GOARCH)
	version, _ := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	r.fact("exporter", "%s", firstLine(string(version)))
	r.out = cmp.Or(c.out, filepath.Join("docs", "hardware", r.fileName()))
	r.progress("%s, driver %s, GPUs: %d", r.Model, r.Driver, len(r.devices))
	return r, nil
}

// examine makes all checks. What fails on the way is a line of the report.
func (r *run) examine(ctx context.Context) {
	start := Check{Name: "start"}
	e, err := startExporter(r.exporter)
	if err != nil {
		r.add(start.judge(false, "%v", err))
		return
	}
	launched := time.Now()
	_, err = e.until(ctx, time.Minute+time.Duration(len(r.uuids))*10*time.Second, polled(r.uuids, time.Time{}))
	r.add(
		start.judge(err == nil, "GPUs: %d, read within %v of the start; %v", len(r.uuids),
			time.Since(launched).Round(100*time.Millisecond), err),
	)
	if err != nil {
		_ = e.Stop()
		return
	}
	defer func() {
		err := e.Stop()
		r.add(Check{Name: "stop"}.judge(err == nil, "exit after SIGTERM: %v", err))
	}()
	r.compareFields(ctx, e, "fields", r.fields)
	if r.load == loadManual {
		r.add(Check{Name: "idle"}.skipped("a load runs already (--load=manual)"))
	} else if p := r.watch(ctx, e, nil); p != nil {
		r.idleBusy, _ = p.busy()
	}
	r.examineLoaded(ctx, e)
	if last, err := e.scrape(ctx); err != nil {
		r.add(Check{Name: "counters of the exporter"}.incomplete("%v", err))
	} else {
		r.add(checkCounters(last)...)
		cpu, _ := last.sum("process_cpu_seconds_total")
		memory, _ := last.sum("process_resident_memory_bytes")
		r.add(Check{Name: "cost of the exporter"}.judge(true,
			"%.2f %% of a core with a fast poll every %v, %.0f MiB resident",
			100*cpu/time.Since(launched).Seconds(), fastPoll, memory/(1<<20)))
	}
	if r.saveJournal {
		r.add(record(ctx, r.exporter, strings.TrimSuffix(r.out, ".md")+".journal"))
	}
}

// watch observes the GPU for the period and checks every claim; nil if that failed.
func (r *run) watch(ctx context.Context, e *exporter, l *load) *period {
	c, idle := Check{Name: "idle"}, true
	if l != nil {
		c.Name, idle = "load", false
	}
	r.progress("measuring for %v, load: %t", r.period, !idle)
	p, err := observe(ctx, e, r.smi, r.checked["uuid"], r.period, l)
	if l != nil {
		err = errors.Join(err, l.exited())
	}
	if err != nil {
		r.add(c.incomplete("%v", err))
		return nil
	}
	for _, claim := range claims() {
		if claim.applies == nil || claim.applies(p) {
			r.add(claim.check(p))
		}
	}
	for call, h := range p.calls() {
		r.latency(call, idle, h)
	}
	return p
}

// examineLoaded makes the checks that need a load.
func (r *run) examineLoaded(ctx context.Context, e *exporter) {
	c := Check{Name: "load"}
	if r.load == loadNone {
		r.add(c.incomplete("--load=none: %s", manualHint))
		return
	}
	dir, err := os.MkdirTemp("", "hwcheck-")
	if err != nil {
		r.add(c.incomplete("%v", err))
		return
	}
	defer os.RemoveAll(dir)
	// The load lasts longer than the period, for the comparison after it; it is stopped then.
	l, err := startLoad(ctx, r.load, r.checked, r.duty, r.period+10*time.Minute, dir)
	if err != nil {
		r.add(c.incomplete("no load could be started (%v): %s", err, manualHint))
		return
	}
	defer l.stop()
	r.fact("load", "%s", l.name)
	switch {
	case r.idleBusy > busyTolerance && l.child != nil:
		l.disturbed = true
		r.add(
			c.incomplete("another process kept the GPU busy %.4f of the time before the load; choose another GPU "+
				"with --gpu",
				r.idleBusy),
		)
	case !l.known:
		r.add(c.incomplete("%s has an unknown duty: install nvcc or PyTorch, or %s", l.name, manualHint))
	}
	if l.child != nil {
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second): // until the readings are those of the load
		}
	}
	if r.watch(ctx, e, l) == nil {
		return
	}
	// What moves was compared at idle; under load memory and processes matter.
	r.compareFields(ctx, e, "fields under load",
		slices.DeleteFunc(slices.Clone(r.fields), func(f field) bool { return ruleOf(f).moving }))
}

// attempts is how often a field may differ before it is a finding: a moving value may miss once, a wrong one misses
// each time.
const attempts = 3

// compareFields compares the fields of all GPUs until there is no finding left, and adds a check for each GPU.
func (r *run) compareFields(ctx context.Context, e *exporter, name string, fields []field) {
	r.progress("comparing %d fields", len(fields))
	known := r.smi.fields(ctx)
	var names []string
	for _, f := range fields {
		i := slices.IndexFunc(f.spellings(), func(n string) bool { return known == nil || known[n] })
		if i >= 0 && f.Field != "uuid" {
			names = append(names, f.spellings()[i])
		}
	}
	rows := map[string][]Row{}
	err := func() error {
		for range attempts {
			before, err := e.scrape(ctx)
			if err != nil {
				return err
			}
			devices, err := r.smi.query(ctx, names)
			if err != nil {
				return err
			}
			after, err := e.until(ctx, 30*time.Second, polled(r.uuids, time.Now()))
			if err != nil {
				return err
			}
			left := 0
			for _, d := range devices {
				rows[d["uuid"]] = better(rows[d["uuid"]], compare(fields, d, before, after))
				left += len(findings(rows[d["uuid"]]))
			}
			if left == 0 {
				break
			}
		}
		return nil
	}()
	if err != nil {
		r.add(Check{Name: name}.incomplete("%v", err))
		return
	}
	for _, d := range r.devices {
		r.addFields(name, d, rows[d["uuid"]], d["uuid"] == r.checked["uuid"])
	}
}

// better keeps, of two comparisons of the same fields, the better verdict of each.
func better(first, second []Row) []Row {
	for i := range first {
		if !first[i].Verdict.finding() {
			second[i] = first[i]
		}
	}
	return second
}

func findings(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !r.Verdict.finding() })
}

// record saves the exporter's driver calls beside the report. The exporter does not overwrite files: an older journal
// is replaced when the new one is complete.
func record(ctx context.Context, exporter, path string) Check {
	c := Check{Name: "record"}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "hwcheck-")
	if err != nil {
		return c.incomplete("%v", err)
	}
	defer os.RemoveAll(dir)
	part := filepath.Join(dir, "journal")
	if out, err := exec.CommandContext(ctx, exporter, "record", "--output="+part).CombinedOutput(); err != nil {
		return c.incomplete("gpu-exporter record: %v: %s", err, oneLine(string(out)))
	}
	text, err := os.ReadFile(part)
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
		return c.incomplete("%v", err)
	}
	return c.judge(true, "%s", filepath.Base(path))
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// The outcomes of a check. Skipped: the hardware does not offer it; incomplete: it should have been checked and was
// not.
const (
	passed     = "passed"
	finding    = "FINDING"
	incomplete = "INCOMPLETE"
	skipped    = "skipped"
)

// Check is one line of the summary.
type Check struct{ Name, Outcome, Detail string }

func (c Check) with(outcome, format string, args ...any) Check {
	c.Outcome, c.Detail = outcome, strings.TrimSuffix(oneLine(fmt.Sprintf(format, args...)), "; <nil>")
	return c
}

func (c Check) judge(ok bool, format string, args ...any) Check {
	if ok {
		return c.with(passed, format, args...)
	}
	return c.with(finding, format, args...)
}

func (c Check) skipped(format string, args ...any) Check { return c.with(skipped, format, args...) }
func (c Check) incomplete(format string, args ...any) Check {
	return c.with(incomplete, format, args...)
}

// Report is what one run found: the figures of the page.
type Report struct {
	Model, Driver, Date string
	Facts               [][2]string
	Checks              []Check
	// Rows are those of the checked GPU, by GPU index, and the findings of the others.
	Rows  map[string][]Row
	Calls map[string]*Latency
}

// Latency of a driver call, idle and under load.
type Latency struct{ Idle, Loaded Percentiles }

// Percentiles are in microseconds.
type Percentiles struct{ Calls, Mean, P50, P99 float64 }

func (r *Report) add(checks ...Check) { r.Checks = append(r.Checks, checks...) }

func (r *Report) fact(name, format string, args ...any) {
	r.Facts = append(r.Facts, [2]string{name, fmt.Sprintf(format, args...)})
}

// Result is the result in a sentence.
func (r *Report) Result() string {
	counts := map[string]int{}
	for _, c := range r.Checks {
		counts[c.Outcome]++
	}
	if counts[finding]+counts[incomplete] == 0 {
		return passed
	}
	return fmt.Sprintf("%d findings, %d incomplete", counts[finding], counts[incomplete])
}

// addFields adds the check of one GPU's fields; all of the rows are kept of the GPU that is shown in full.
func (r *Report) addFields(name string, d device, rows []Row, full bool) {
	counts := map[verdict]int{}
	for _, row := range rows {
		counts[row.Verdict]++
	}
	detail := fmt.Sprintf("%d fields", len(rows))
	for _, v := range []verdict{agrees, absentInBoth, notCompared, differs, notExported, onlyExported} {
		if counts[v] > 0 {
			detail += fmt.Sprintf(", %s: %d", v, counts[v])
		}
	}
	wrong := findings(rows)
	for _, f := range wrong {
		detail += fmt.Sprintf("; %s %s (nvidia-smi %q, exporter %q)", f.Field, f.Verdict, f.SMI, f.Ours)
	}
	r.add(Check{Name: name + " of GPU " + d["index"]}.judge(len(rows) > 0 && len(wrong) == 0, "%s", detail))
	if r.Rows == nil {
		r.Rows = map[string][]Row{}
	}
	if !full {
		rows = wrong
	}
	if r.Rows[d["index"]] == nil {
		r.Rows[d["index"]] = rows
	}
}

// latency adds the latencies of a call.
func (r *Report) latency(call string, idle bool, h *histogram.FloatHistogram) {
	if h.Count == 0 {
		return
	}
	p50, _ := promql.HistogramQuantile(0.5, h, "", posrange.PositionRange{})
	p99, _ := promql.HistogramQuantile(0.99, h, "", posrange.PositionRange{})
	micro := func(seconds float64) float64 { return math.Round(seconds*1e7) / 10 }
	p := Percentiles{h.Count, micro(h.Sum / h.Count), micro(p50), micro(p99)}
	if r.Calls == nil {
		r.Calls = map[string]*Latency{}
	}
	if r.Calls[call] == nil {
		r.Calls[call] = &Latency{}
	}
	if idle {
		r.Calls[call].Idle = p
	} else {
		r.Calls[call].Loaded = p
	}
}

var notFileName = regexp.MustCompile(`[^a-z0-9.]+`)

// fileName is made of model and driver, in characters that any file system takes.
func (r *Report) fileName() string {
	name := strings.ToLower(strings.TrimPrefix(r.Model, "NVIDIA ") + "-" + r.Driver)
	return strings.Trim(notFileName.ReplaceAllString(name, "-"), "-") + ".md"
}
