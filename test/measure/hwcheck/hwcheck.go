// Package hwcheck checks what gpu-exporter claims on the NVIDIA GPUs of this machine: every field that nvidia-smi
// reports too, and a table of claims (claims.go), each in a stage with a known load (stages.go).
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

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
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
	limit       time.Duration // of the whole run, 0: none
	polls       [3]time.Duration
	resume      bool
	saveJournal bool
	// only are the stages to run; empty: all. The flags changeMIG and causeXIDs allow those that change the GPU.
	only                 []string
	changeMIG, causeXIDs bool
	// library is the NVML library, empty for the system's; cgroups, kmsg, strace and mpsControl are where they are
	// found, and host is the root directory of the files that show how the machine is isolated. under is a command line
	// that runs the exporter and the probe, and flags are more of the exporter's.
	library, cgroups, kmsg, strace, mpsControl, host string
	vgpu                                             bool
	under, flags                                     []string
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
	if c.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("%v are over (--for)", c.limit))
		defer cancel()
	}
	r, err := newRun(ctx, c, stdout)
	if err == nil && c.resume {
		err = r.restore()
	}
	if err == nil {
		err = r.save() // from here on a report is there, whatever happens
	}
	if err != nil {
		return refuse(err)
	}
	r.examine(ctx)
	if err := r.save(); err != nil {
		return refuse(err)
	}
	out := r.whole()
	text, err := page.Render("hwcheck", &out)
	if ctx.Err() != nil {
		fmt.Fprintf(stderr, "hwcheck: stopped: %v; --resume does the rest\n", context.Cause(ctx))
	}
	fmt.Fprintf(stdout, "\n%s\nreport: %s\nresult: %s\n", text, r.out, out.Result())
	if err != nil || out.Result() != passed {
		return exitFindings
	}
	return exitPassed
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("hwcheck", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.exporter, "exporter", beside("gpu-exporter", filepath.Join("bin", "gpu-exporter")), "`path` of the exporter")
	f.StringVar((*string)(&c.smi), "nvidia-smi", "nvidia-smi", "`path` of nvidia-smi, or its name on PATH")
	f.StringVar(&c.out, "out", "", "`file` of the report (default MODEL-DRIVER.md in docs/evidence/hardware, in report of the bundle)")
	f.StringVar(&c.gpu, "gpu", "", "index or UUID of the `GPU` to load (default the first that is not in MIG mode)")
	f.StringVar(&c.load, "load", beside("load", loadAuto), "`program` that uses a GPU as load.c does; auto builds that with cc, "+
		"manual is a load that runs already, none leaves all loads out")
	f.Float64Var(&c.duty, "duty", 0.3, "`share` of each second for which the load keeps the GPU busy")
	f.DurationVar(&c.period, "period", 12*time.Second, "how long to measure in each stage")
	f.DurationVar(&c.limit, "for", 8*time.Minute, "`time` after which to stop; 0 does all stages")
	f.BoolVar(&c.resume, "resume", false, "keep what the report has and run the stages that are missing")
	polls := f.String("polls", "2s,10s,60s", "`intervals` of the exporter's fast, medium and slow polls")
	f.StringVar(&c.host, "host", "/", "`directory` below which /proc and /sys show how the machine is isolated")
	only := f.String("only", "", "`stages` to run, with commas; empty runs all")
	f.BoolVar(&c.changeMIG, "change-mig", false, "enable MIG, create and destroy instances, disable MIG")
	f.BoolVar(&c.causeXIDs, "cause-xids", false, "run a program that causes the XIDs 31 and 43")
	f.StringVar(&c.library, "nvml.library", "", "`path` of the NVML library (default the system's)")
	f.StringVar(&c.cgroups, "cgroups", "/sys/fs/cgroup", "`directory` in which to make cgroups")
	f.StringVar(&c.kmsg, "kmsg", "/dev/kmsg", "`path` of the kernel log")
	f.StringVar(&c.strace, "strace", "strace", "`path` of strace, or its name on PATH")
	f.StringVar(&c.mpsControl, "mps-control", "nvidia-cuda-mps-control", "`path` of MPS' control daemon, or its name on PATH")
	under := f.String("under", "", "`command` that runs the exporter and direct calls, such as env NAME=VALUE")
	f.BoolVar(&c.saveJournal, "record", true, "save the driver calls with gpu-exporter record beside the report")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	c.under, c.flags = strings.Fields(*under), f.Args()
	if *only != "" {
		c.only = strings.Split(*only, ",")
	}
	for i, text := range strings.SplitN(*polls+",,", ",", 4)[:3] {
		d, err := time.ParseDuration(text)
		if err != nil {
			return c, fmt.Errorf("--polls: three durations with commas, got %q", *polls)
		}
		c.polls[i] = d
	}
	for _, name := range c.only {
		if !slices.ContainsFunc(stages(), func(s stage) bool { return s.name == name }) {
			return c, fmt.Errorf("--only: unknown stage %q", name)
		}
	}
	switch {
	case f.NArg() > 0 && !strings.HasPrefix(f.Arg(0), "-"):
		return c, fmt.Errorf("unexpected %s; flags of the exporter follow --", f.Arg(0))
	case c.duty <= 0 || c.duty > 0.95:
		return c, fmt.Errorf("--duty must be more than 0 and at most 0.95, got %g", c.duty)
	case c.period < 3*time.Second:
		return c, fmt.Errorf("--period must be at least 3s, got %v", c.period)
	case c.limit < 0:
		return c, fmt.Errorf("--for must be positive, or 0, got %v", c.limit)
	}
	return c, nil
}

// reports is the directory of reports: in the bundle, which has the load, one of its own.
func reports() string {
	if beside("load", "") != "" {
		return "report"
	}
	return filepath.Join(page.Dir, "hardware")
}

// beside is a program in the directory of this one, as in the bundle, or else another.
func beside(name, otherwise string) string {
	self, err := os.Executable()
	path := filepath.Join(filepath.Dir(self), name)
	if info, statErr := os.Stat(path); err != nil || statErr != nil || info.IsDir() {
		return otherwise
	}
	return path
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
	stages   []stage
	isolated []isolation // what this machine is, and what cannot be tested there
	probed   *probed
	kubelet  *standin.Kubelet
	dir      string // of temporary files
	// write saves a file of the report.
	write func(path string, data []byte) error
	// loadPath is the program of the loads; loadErr is why there is none.
	loadPath string
	loadErr  error
}

func (r *run) progress(format string, args ...any) {
	fmt.Fprintf(r.log, "hwcheck: "+format+"\n", args...)
}

// newRun finds all that the examination needs; an error means that nothing can be checked here.
func newRun(ctx context.Context, c config, log io.Writer) (*run, error) {
	if _, err := exec.LookPath(string(c.smi)); err != nil {
		return nil, fmt.Errorf("nvidia-smi not found: %w; hwcheck needs a machine with an NVIDIA GPU and its driver", err)
	}
	r := &run{config: c, log: log, stages: stages(), write: page.Write}
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
	text, _ := c.smi.run(ctx, "-q", "-x")
	c.vgpu = strings.Contains(text, "<virtualization_mode>VGPU</virtualization_mode>")
	r.isolated = isolations(c)
	for _, i := range r.isolated {
		r.fact("isolation", "%s", i.name)
	}
	r.out = cmp.Or(c.out, filepath.Join(reports(), r.fileName()))
	r.progress("%s, driver %s, GPUs: %d", r.Model, r.Driver, len(r.devices))
	return r, nil
}

// attempts is how often a field may differ before it is a finding: a moving value may miss once, a wrong one misses
// each time.
const attempts = 3

// compareFields compares the fields of all GPUs until there is no finding left, and adds a check for each GPU.
func (r *run) compareFields(ctx context.Context, e *exporter, name string, fields []field, polls ...string) {
	r.progress("comparing %d fields", len(fields))
	known := r.smi.fields(ctx)
	var names []string
	for _, f := range fields {
		i := slices.IndexFunc(f.spellings(), func(n string) bool { return known == nil || known[n] })
		if i >= 0 && f.Field != "uuid" {
			names = append(names, f.spellings()[i])
		}
	}
	r.compareDevices(ctx, e, name, fields, func() ([]device, error) { return r.smi.query(ctx, names) }, polls...)
}

// compareXML compares the fields of nvidia-smi -q -x, which shows some that --query-gpu does not have on a GPU.
func (r *run) compareXML(ctx context.Context, e *exporter) {
	r.compareDevices(ctx, e, "nvidia-smi -q -x", r.fields, func() ([]device, error) {
		text, err := r.smi.run(ctx, "-q", "-x")
		if err != nil {
			return nil, err
		}
		return parseXML(text)
	})
}

// compareDevices compares what read returns for each GPU.
func (r *run) compareDevices(ctx context.Context, e *exporter, name string, fields []field,
	read func() ([]device, error), polls ...string) {
	rows := map[string][]Row{}
	err := func() error {
		for range attempts {
			before, err := e.scrape(ctx)
			if err != nil {
				return err
			}
			devices, err := read()
			if err != nil {
				return err
			}
			after, err := e.until(ctx, 30*time.Second, polled(r.uuids, time.Now(), polls...))
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
func (c config) record(ctx context.Context, path string) Check {
	out := Check{Name: "record"}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "hwcheck-")
	if err != nil {
		return out.incomplete("%v", err)
	}
	defer os.RemoveAll(dir)
	part := filepath.Join(dir, "journal")
	args := c.prefix(c.exporter, "record", "--output="+part)
	if c.library != "" {
		args = append(args, "--nvml.library="+c.library)
	}
	if text, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		return out.incomplete("gpu-exporter record: %v: %s", err, oneLine(string(text)))
	}
	text, err := os.ReadFile(part)
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
		return out.incomplete("%v", err)
	}
	return out.judge(true, "%s", filepath.Base(path))
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// The outcomes of a check. Not tested: the hardware or the machine does not offer it, or a flag left it out;
// incomplete: it should have been checked and was
// not.
const (
	passed     = "passed"
	finding    = "FINDING"
	incomplete = "INCOMPLETE"
	skipped    = "not tested"
)

// Check is one line of the summary.
type Check struct {
	Number                                    int // of the claim in internal/hardware, 0 for a check that is none
	Name, Expected, Measured, Outcome, Detail string
	Stage                                     string
}

func (c Check) with(outcome, format string, args ...any) Check {
	c.Outcome, c.Detail = outcome, strings.TrimRight(strings.TrimSuffix(oneLine(fmt.Sprintf(format, args...)), "; <nil>"), "; ")
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
	// Done are the stages that were run to their end, and IdleBusy is for which share of time the GPU was busy before.
	Done     []string
	IdleBusy float64
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
	row := [2]string{name, fmt.Sprintf(format, args...)}
	r.Facts = append(slices.DeleteFunc(r.Facts, func(f [2]string) bool { return f[0] == name && name != "isolation" }), row)
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
	if len(r.Rows[d["index"]]) == 0 {
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
