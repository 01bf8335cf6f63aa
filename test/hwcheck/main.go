// Command hwcheck holds gpu-exporter against the hardware that it runs on: every field that nvidia-smi tells
// too, busy time against a load of known duty, energy against power, profiling against utilization, and what
// each driver call costs. It needs an NVIDIA GPU with its driver and nvidia-smi, and says so where there is none.
//
// It writes a report and exits with 0 when all is good, 1 when there are findings or a check could not be
// made, 2 when nothing was checked.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitGood     = 0
	exitFindings = 1
	exitRefused  = 2
)

// config is what the flags say. Paths are relative to where the program is run.
type config struct {
	exporter, smi string
	out                string
	dev                string
	load               string
	duty               float64
	window             time.Duration
	record             bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := hwcheck(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// hwcheck is the program; it returns its exit code.
func hwcheck(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitGood
	}
	refuse := func(err error) int {
		fmt.Fprintf(stderr, "hwcheck: %s\n", strings.Join(strings.Fields(err.Error()), " "))
		return exitRefused
	}
	if err != nil {
		return refuse(err)
	}
	// Everything has a limit of its own; this one is for what nobody thought of.
	ctx, cancel := context.WithTimeout(ctx, 2*c.window+20*time.Minute)
	defer cancel()
	r, fields, err := prepare(ctx, c)
	if err != nil {
		return refuse(err)
	}
	progress := func(text string, args ...any) { fmt.Fprintf(stdout, "hwcheck: "+text+"\n", args...) }
	progress("%s, driver %s, %s", r.model, r.driver, plural(len(r.devs), "card"))
	examine(ctx, c, r, fields, progress)
	if ctx.Err() != nil {
		fmt.Fprintf(stderr, "hwcheck: stopped before its end (%v); no report\n", context.Cause(ctx))
		return exitFindings
	}

	path := c.report(r)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(r.markdown()), 0o644)); err != nil {
		r.add(check{name: "report"}.incomplete("%v", err))
	}
	fmt.Fprintf(stdout, "\n%s\nreport: %s\n%s\n", r.text(), path, r.result())
	if r.count(found)+r.count(incomplete) > 0 {
		return exitFindings
	}
	return exitGood
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("hwcheck", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.exporter, "exporter", filepath.Join("bin", "gpu-exporter"), "the `program` to check")
	f.StringVar(&c.smi, "nvidia-smi", "nvidia-smi", "the nvidia-smi to compare with, a `name` on PATH or a path")
	f.StringVar(&c.out, "out", "", "the `file` for the report; else docs/hardware/<model>-<driver>.md")
	f.StringVar(&c.dev, "gpu", "", "index or UUID of the `GPU` to load; else the first that is not in MIG mode")
	f.StringVar(&c.load, "load", loadAuto, "the `kind` of load: "+strings.Join(loadKinds(), ", ")+"; hand: it runs already, with the duty of --duty")
	f.Float64Var(&c.duty, "duty", 0.3, "`part` of each second for which the load works")
	f.DurationVar(&c.window, "window", time.Minute, "how `long` to measure, once idle and once under load")
	f.BoolVar(&c.record, "record", true, "also make a recording beside the report, where the exporter can")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	switch {
	case f.NArg() > 0:
		return c, fmt.Errorf("unexpected %s; --help lists the flags", f.Arg(0))
	case !slices.Contains(loadKinds(), c.load):
		return c, fmt.Errorf("--load=%s: there are %s", c.load, strings.Join(loadKinds(), ", "))
	case c.duty <= 0 || c.duty > 0.95:
		return c, fmt.Errorf("--duty=%g: more than 0 and at most 0.95", c.duty)
	case c.window < 3*time.Second:
		return c, fmt.Errorf("--window=%v: at least 3s", c.window)
	}
	return c, nil
}

// report is where the report goes.
func (c config) report(r *report) string {
	return cmp.Or(c.out, filepath.Join("docs", "hardware", r.fileName()))
}

// prepare finds all that the examination needs; an error means that nothing can be checked here.
func prepare(ctx context.Context, c config) (*report, []field, error) {
	if _, err := exec.LookPath(c.smi); err != nil {
		return nil, nil, fmt.Errorf("no nvidia-smi here (%w): this check needs a machine with an NVIDIA GPU and its driver", err)
	}
	devs, err := smi{c.smi}.query(ctx, []string{"index", "name", "driver_version", "compute_cap", "mig.mode.current"})
	if err != nil {
		return nil, nil, fmt.Errorf("no GPU to check: %w", err)
	}
	path, err := exec.LookPath(c.exporter)
	if err != nil {
		return nil, nil, fmt.Errorf("no exporter to check: %w; `make build` makes it", err)
	}
	fields, err := queryFields()
	if err != nil {
		return nil, nil, err
	}
	r := &report{began: time.Now(), devs: devs, model: devs[0]["name"], driver: devs[0]["driver_version"]}
	if r.checked, err = choose(devs, c.dev); err != nil {
		return nil, nil, err
	}
	r.model = r.checked["name"]
	r.facts = [][2]string{{"kernel", kernel()}, {"gpus", inventory(devs)}, {"gpu-exporter", version(ctx, path)}}
	return r, fields, nil
}

// choose returns the GPU that is loaded and shown in full.
func choose(devs []dev, wanted string) (dev, error) {
	for _, c := range devs {
		if wanted != "" && (c["index"] == wanted || c["uuid"] == wanted) || wanted == "" && c["mig.mode.current"] != "Enabled" {
			return c, nil
		}
	}
	if wanted != "" {
		return nil, fmt.Errorf("--gpu=%s: nvidia-smi lists no such card", wanted)
	}
	return devs[0], nil // all are in MIG mode; the checks say what that leaves out
}

func inventory(devs []dev) string {
	counts := map[string]int{}
	var names []string
	for _, c := range devs {
		if counts[c["name"]]++; counts[c["name"]] == 1 {
			names = append(names, c["name"])
		}
	}
	for i, n := range names {
		names[i] = fmt.Sprintf("%d x %s", counts[n], n)
	}
	return strings.Join(names, ", ")
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS + "/" + runtime.GOARCH
	}
	return "Linux " + strings.TrimSpace(string(release)) + ", " + runtime.GOARCH
}

func version(ctx context.Context, exporter string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, exporter, "--version").CombinedOutput()
	if err != nil {
		return "unknown"
	}
	return strings.TrimPrefix(firstLine(string(out)), "gpu-exporter, ")
}

// examine makes all checks. What goes wrong on the way is a line of the report too.
func examine(ctx context.Context, c config, r *report, fields []field, progress func(string, ...any)) {
	s := smi{c.smi}
	e, err := startExporter(ctx, c.exporter)
	if err != nil {
		r.add(check{name: "start"}.with(found, "%v", err))
		return
	}
	started := false
	defer func() {
		// One that did not start well has its finding already.
		if err := e.stop(); started {
			r.add(check{name: "stop"}.judge(err == nil, "%v", cmp.Or(err, errors.New("ended well on SIGTERM"))))
		}
	}()
	progress("waiting until every GPU has been read")
	began := time.Now()
	var uuids []string
	for _, c := range r.devs {
		uuids = append(uuids, c["uuid"])
	}
	ready, err := e.until(ctx, time.Minute+time.Duration(len(uuids))*10*time.Second, func(got exposition) error { return read(got, uuids, time.Time{}) })
	if err != nil {
		r.add(check{name: "start"}.with(found, "not every GPU of nvidia-smi was read: %v", err))
		return
	}
	started = true
	r.add(check{name: "start"}.judge(len(ready.find("gpu_device_up")) == len(uuids), "%s read within %v of the start",
		plural(len(ready.find("gpu_device_up")), "card"), time.Since(began).Round(100*time.Millisecond)))

	progress("comparing %d fields", len(fields))
	if r.fields, err = compareLive(ctx, e, s, fields, uuids); err != nil {
		r.add(check{name: "fields"}.incomplete("%v", err))
	} else {
		r.add(fieldChecks("fields", r)...)
	}

	if c.load == loadHand {
		r.add(check{name: "idle"}.skipped("a load runs already (--load=hand)"))
	} else {
		progress("measuring without load for %v", c.window)
		if w, err := watch(ctx, e, s, r.checked, c.window); err != nil {
			r.add(check{name: "idle"}.incomplete("%v", err))
		} else {
			r.idle = w.calls
			r.idleBusy, _ = w.busy()
			r.add(checkObserved(w, "idle"), checkUtilisation(w, "idle"), checkEnergy(w, "idle"), checkProfile(w, nil, "idle"))
		}
	}
	examineLoaded(ctx, c, r, e, s, fields, uuids, progress)

	if last, err := e.scrape(ctx); err != nil {
		r.add(check{name: "driver calls that failed"}.incomplete("%v", err))
	} else {
		r.add(checkCalls(last)...)
		r.add(cost(last, time.Since(began)))
	}
	if c.record {
		progress("recording")
		r.add(record(ctx, c.exporter, strings.TrimSuffix(c.report(r), ".md")+".scenario"))
	}
}

// examineLoaded makes the checks that need a load on the GPU.
func examineLoaded(ctx context.Context, c config, r *report, e *exporter, s smi, fields []field, uuids []string, progress func(string, ...any)) {
	busy := check{name: "busy seconds against a known load"}
	if c.load == loadNone {
		r.add(busy.incomplete("--load=none: %s", byHand))
		return
	}
	dir, err := os.MkdirTemp("", "hwcheck-")
	if err != nil {
		r.add(busy.incomplete("%v", err))
		return
	}
	defer os.RemoveAll(dir)
	progress("starting a load on GPU %s", r.checked["index"])
	// The load outlives the window, however long the comparison after it takes; it is stopped then.
	l, err := startLoad(ctx, c.load, r.checked, c.duty, c.window+10*time.Minute, dir)
	if err != nil {
		r.add(busy.incomplete("no load could be started (%v): %s", err, byHand))
		return
	}
	defer func() {
		if err := l.stop(); err != nil {
			r.add(check{name: "load"}.incomplete("it could not be stopped: %v", err))
		}
	}()
	r.facts = append(r.facts, [2]string{"load", l.how})
	progress("measuring under %s for %v", l.how, c.window)
	if c.load != loadHand {
		if err := settle(ctx, 3*time.Second); err != nil {
			r.add(busy.incomplete("%v", err))
			return
		}
	}
	w, err := watch(ctx, e, s, r.checked, c.window)
	if err = errors.Join(err, l.alive()); err != nil {
		r.add(busy.incomplete("%v", err))
		return
	}
	r.loaded = w.calls
	switch {
	case r.idleBusy > busyTolerance && l.cmd != nil:
		r.add(busy.incomplete("somebody else kept the GPU busy %.4f of the time before the load; choose another with --GPU", r.idleBusy))
	case l.known:
		r.add(checkBusy(w, l))
	default:
		r.add(busy.incomplete("%s works for an unknown part of the time; nvcc or PyTorch is needed, or %s", l.how, byHand), checkEncoder(w))
	}
	r.add(checkObserved(w, "loaded"), checkUtilisation(w, "loaded"), checkEnergy(w, "loaded"), checkProfile(w, l, "loaded"))
	// What moves was compared at rest; under load memory and processes are what matters.
	rows, err := compareLive(ctx, e, s, steady(fields), uuids)
	if err != nil {
		r.add(check{name: "fields under load"}.incomplete("%v", err))
		return
	}
	loaded := &report{devs: r.devs, fields: rows}
	r.add(fieldChecks("fields under load", loaded)...)
}

// settle waits.
func settle(ctx context.Context, length time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(length):
		return nil
	}
}

// rounds is how often a field may miss before it is a finding.
const rounds = 3

// compareLive compares in rounds, until there is no finding left or for the last time.
func compareLive(ctx context.Context, e *exporter, s smi, fields []field, uuids []string) (map[string][]row, error) {
	offered := s.offered(ctx)
	var names []string
	for _, f := range fields {
		for _, n := range f.names {
			if n != "uuid" && (offered == nil || offered[n]) {
				names = append(names, n)
				break
			}
		}
	}
	var out map[string][]row
	for range rounds {
		before, err := e.scrape(ctx)
		if err != nil {
			return nil, err
		}
		devs, err := s.query(ctx, names)
		if err != nil {
			return nil, err
		}
		// The scrape after the question must hold readings that are younger than it.
		asked := time.Now()
		after, err := e.until(ctx, 30*time.Second, func(got exposition) error { return read(got, uuids, asked) })
		if err != nil {
			return nil, err
		}
		out = merge(out, compare(fields, devs, before, after))
		left := 0
		for _, rows := range out {
			left += len(findings(rows))
		}
		if left == 0 {
			break
		}
	}
	return out, nil
}

// fieldChecks sums the comparison up, one line per GPU.
func fieldChecks(name string, r *report) []check {
	var out []check
	for _, c := range r.devs {
		rows := r.fields[c["uuid"]]
		var wrong []string
		for _, f := range findings(rows) {
			theirs, ours := f.shown()
			wrong = append(wrong, fmt.Sprintf("%s %s (nvidia-smi %q, here %q)", f.field, f.verdict, theirs, ours))
		}
		detail := tally(rows)
		if len(wrong) > 0 {
			detail += " " + strings.Join(wrong, "; ")
		}
		out = append(out, check{name: name + " of GPU " + c["index"]}.judge(len(rows) > 0 && len(wrong) == 0, "%s", detail))
	}
	return out
}

// cost tells what the exporter itself used; no judgement.
func cost(e exposition, since time.Duration) check {
	cpu, _ := e.sum("process_cpu_seconds_total")
	memory, _ := e.sum("process_resident_memory_bytes")
	return check{name: "cost of the exporter"}.with(good, "%.2f %% of a processor with a fast poll group of %v, %.0f MiB resident", 100*cpu/since.Seconds(), fastPoll, memory/(1<<20))
}

// record lets the exporter make a recording of this machine, beside the report. The exporter writes over no
// file; an older recording is replaced when the new one is whole.
func record(ctx context.Context, exporter, path string) check {
	out := check{name: "recording"}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	help, err := exec.CommandContext(ctx, exporter, "record", "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(help), "--output") {
		return out.skipped("this gpu-exporter has no command record")
	}
	part := path + ".new"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out.incomplete("%v", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return out.incomplete("%v", err)
	}
	cmd := exec.CommandContext(ctx, exporter, "record", "--output="+part)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return out.incomplete("gpu-exporter record: %v: %s", err, said.last())
	}
	if err := os.Rename(part, path); err != nil {
		return out.incomplete("%v", err)
	}
	return out.with(good, "%s", filepath.Base(path))
}
