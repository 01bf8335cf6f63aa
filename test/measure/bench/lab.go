package bench

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/process"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

const (
	// scrapeInterval is that of a Prometheus while a node is observed.
	scrapeInterval = 15 * time.Second
	// quickPoll is the fast poll interval while scrapes are timed: every pair of scrapes meets a new view.
	quickPoll = 200 * time.Millisecond
	// starts is how often a start is timed.
	starts = 5
)

// lab starts exporters on simulated nodes.
type lab struct {
	config
	ctx context.Context
	dir string // of generated nodes
}

// exporter is a running exporter behind the simulated node.
type exporter struct {
	*testkit.Child
	url string
	pid int // of the exporter itself
}

// launch starts an exporter on a node and waits for its first scrape.
func (l lab) launch(t *tree, n node, flags ...string) (*exporter, error) {
	address, err := standin.FreeAddress()
	if err != nil {
		return nil, err
	}
	path, pods, err := n.files(l.root, l.dir)
	if err != nil {
		return nil, err
	}
	args := []string{"--quiet", "--scenario=" + path}
	if pods != "" {
		args = append(args, "--pods="+pods)
	}
	path = programs.Exporter.Path(t.root)
	args = append(args, "--", path, "--log.level=warn", "--node-name=bench", "--web.listen-address="+address)
	for _, f := range flags {
		args = append(args, strings.Replace(f, "--poll.", t.pollFlags, 1))
	}
	cmd := exec.Command(programs.Standin.Path(l.root), args...)
	cmd.Dir = l.root
	child, err := testkit.Start(cmd)
	if err != nil {
		return nil, err
	}
	e := &exporter{Child: child, url: "http://" + address + "/metrics"}
	if err := child.Within(l.ctx, time.Minute, func() error {
		if e.pid = process.ChildOf(child.PID(), filepath.Base(path)); e.pid == 0 {
			return errors.New("the exporter has not been started")
		}
		_, err := plain.fetch(e.url)
		return err
	}); err != nil {
		return nil, errors.Join(err, child.Stop())
	}
	return e, nil
}

// launchAll starts an exporter of each tree.
func (l lab) launchAll(trees []*tree, n node, flags ...string) (all []*exporter, stop func(), err error) {
	stop = func() {
		for _, e := range all {
			_ = e.Stop()
		}
	}
	for _, t := range trees {
		e, err := l.launch(t, n, flags...)
		if err != nil {
			stop()
			return nil, nil, err
		}
		all = append(all, e)
	}
	return all, stop, nil
}

// node measures the exporters of all trees on a node.
func (l lab) node(trees []*tree, n node, period time.Duration, scrapes int) error {
	progress("node %s", n.name)
	if err := l.observe(trees, n, period); err != nil {
		return err
	}
	if err := l.timeScrapes(trees, n, scrapes); err != nil {
		return err
	}
	for _, t := range trees {
		if err := l.timeStarts(t, n); err != nil {
			return err
		}
	}
	return nil
}

// observe measures the resources of the exporters while they are scraped as usual.
func (l lab) observe(trees []*tree, n node, period time.Duration) error {
	all, stop, err := l.launchAll(trees, n)
	if err != nil {
		return err
	}
	defer stop()
	time.Sleep(12 * time.Second) // until every poll group has run and all pods are known
	before := make([]state, len(all))
	for i, e := range all {
		if before[i], err = e.state(); err != nil {
			return err
		}
	}
	for end := time.Now().Add(period); time.Now().Before(end); {
		time.Sleep(min(scrapeInterval, time.Until(end)))
		for _, e := range all {
			if _, err := prom.fetch(e.url); err != nil {
				return err
			}
		}
	}
	for i, e := range all {
		after, err := e.state()
		if err != nil {
			return err
		}
		cpu := 100 * per((after.cpu-before[i].cpu).Minutes(), before[i].usage, after.usage)
		fake := 100 * per((after.fake-before[i].fake).Minutes(), before[i].usage, after.usage)
		calls := after.callsSince(before[i])
		total := 0.0
		for call, perMinute := range calls {
			total += perMinute
			if n.name == busiest {
				trees[i].add("DriverCall/"+call, perMinute, "calls/min")
			}
		}
		packed, err := prom.fetch(e.url)
		if err != nil {
			return err
		}
		u := after.usage
		trees[i].add("Node/"+n.name, after.series, "series", after.page, "page-B", len(packed), "gzip-B", u.Resident,
			"resident-MiB", u.Anonymous, "anonymous-MiB", u.Peak, "peak-MiB", cpu, "cpu-%", cpu-fake, "own-cpu-%", total, "calls/min")
	}
	return nil
}

// timeScrapes times pairs of scrapes, the first of a view and the next, beside those of peers.
func (l lab) timeScrapes(trees []*tree, n node, scrapes int) error {
	all, stop, err := l.launchAll(trees, n, "--poll.fast="+quickPoll.String())
	if err != nil {
		return err
	}
	defer stop()
	time.Sleep(3 * time.Second)
	last := len(all) - 1
	peers, stopPeers, err := l.peers(all[last])
	if err != nil {
		return err
	}
	defer stopPeers()
	for _, format := range formats {
		views := make([]string, len(all))
		for range scrapes {
			time.Sleep(quickPoll + 10*time.Millisecond)
			if l.ctx.Err() != nil {
				return l.ctx.Err()
			}
			for i, e := range all {
				for range 2 {
					page, took, cpu, err := e.timed(format)
					if err != nil {
						return err
					}
					view, err := format.view(page)
					if err != nil {
						return err
					}
					kind := "next"
					if view != views[i] {
						kind = "first"
					}
					views[i] = view
					trees[i].add("HTTP/"+n.name+"/"+format.name+"/"+kind, took.Nanoseconds(), "ns/op", cpu.Nanoseconds(), "cpu-ns/op")
				}
			}
			for name, p := range peers {
				page, took, cpu, err := p.timed(format)
				if err != nil {
					return err
				}
				trees[last].add("HTTP/"+n.name+"/"+format.name+"/"+name, took.Nanoseconds(), "ns/op", cpu.Nanoseconds(),
					"cpu-ns/op", len(page), "page-B")
			}
		}
	}
	for name, p := range peers {
		u, err := process.Of(p.pid)
		if err != nil {
			return err
		}
		page, err := plain.fetch(p.url)
		if err != nil {
			return err
		}
		trees[last].add("Peer/"+n.name+"/"+name, u.Resident, "resident-MiB", u.Anonymous, "anonymous-MiB", series(page), "series")
	}
	return nil
}

// series counts the series of a page in the text format.
func series(page string) (n int) {
	for line := range strings.Lines(page) {
		if line[0] != '#' && line[0] != '\n' {
			n++
		}
	}
	return n
}

// callsByPollGroup counts driver calls by poll group: those of the fast group with the others nearly off, those of the
// medium and slow groups by what each adds.
func (l lab) callsByPollGroup(t *tree, n node) error {
	progress("driver calls by poll group")
	last := 0.0
	for i, flags := range [][]string{{"--poll.medium=1h", "--poll.slow=1h"}, {"--poll.slow=1h"}, nil} {
		e, err := l.launch(t, n, flags...)
		if err != nil {
			return err
		}
		defer func() { _ = e.Stop() }()
		time.Sleep(5 * time.Second)
		before, err := e.state()
		if err != nil {
			return err
		}
		time.Sleep(l.period)
		after, err := e.state()
		if err != nil {
			return err
		}
		total := 0.0
		for _, perMinute := range after.callsSince(before) {
			total += perMinute
		}
		t.add("Poll/"+[]string{"fast", "medium", "slow"}[i], total-last, "calls/min")
		last = total
	}
	return nil
}

// timeStarts times starts of the exporter until a scrape shows the GPUs.
func (l lab) timeStarts(t *tree, n node) error {
	e, err := l.launch(t, n)
	if err != nil {
		return err
	}
	defer func() { _ = e.Stop() }()
	// The timed exporters run as this one does, on other ports.
	args, environ, err := process.Command(e.pid)
	if err != nil {
		return err
	}
	args = slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "--web.listen-address=") })
	return l.timeStart(t, n.name, args, environ, "\ngpu_device_up{")
}

// startWithoutDriver times starts on a node without driver and kubelet.
func (l lab) startWithoutDriver(t *tree) error {
	return l.timeStart(t, "no-driver", []string{
		programs.Exporter.Path(t.root), "--log.level=error", "--path.kmsg=",
		"--nvml.library=/nonexistent/libnvidia-ml.so.1", "--kubelet.socket=/nonexistent/kubelet.sock"}, os.Environ(),
		"\ngpu_exporter_build_info{")
}

func (l lab) timeStart(t *tree, name string, args, environ []string, until string) error {
	for range starts {
		address, err := standin.FreeAddress()
		if err != nil {
			return err
		}
		cmd := exec.Command(args[0], append(slices.Clone(args[1:]), "--web.listen-address="+address)...)
		cmd.Env = environ
		start := time.Now()
		child, err := testkit.Start(cmd)
		if err != nil {
			return err
		}
		for took := time.Duration(0); took == 0; time.Sleep(time.Millisecond) { // a pause that grows would add to the figure
			body, err := plain.fetch("http://" + address + "/metrics")
			if err == nil && strings.Contains(body, until) {
				took = time.Since(start)
				t.add("Start/"+name, took.Nanoseconds(), "ns/op")
			} else if time.Since(start) > 10*time.Second {
				return errors.Join(fmt.Errorf("no scrape within 10 s of the start"), err, child.Stop())
			}
		}
		if err := child.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// format is a way to request a page.
type format struct{ name, accept, encoding string }

var (
	plain = format{"plain", "text/plain;version=0.0.4", "identity"}
	// prom is what Prometheus 3 requests.
	prom = format{"prometheus", "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6," +
		"application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4," +
		"text/plain;version=0.0.4;q=0.3,*/*;q=0.2", "gzip"}
	formats = []format{plain, prom}
)

// fetch returns the bytes of the response, compressed ones as they are.
func (f format) fetch(url string) (string, error) {
	return testkit.Client{}.Fetch(context.Background(), url, "Accept-Encoding", f.encoding, "Accept", f.accept)
}

// view identifies the view that a page was rendered from: the time of the driver's last success.
func (f format) view(page string) (string, error) {
	if f.encoding == "gzip" {
		z, err := gzip.NewReader(strings.NewReader(page))
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(z)
		if err != nil {
			return "", err
		}
		page = string(text)
	}
	for l := range strings.Lines(page) {
		if strings.HasPrefix(l, "gpu_exporter_source_last_success_timestamp_seconds") && strings.Contains(l, `source="nvml"`) {
			return l, nil
		}
	}
	return "", nil
}

// state is an exporter at one time.
type state struct {
	series, page int
	usage        process.Usage
	cpu          time.Duration
	fake         time.Duration // part of cpu: that of the fake driver's functions
	calls        map[string]float64
}

func (e *exporter) state() (s state, err error) {
	if s.usage, err = process.Of(e.pid); err != nil { // before a plain page, which Prometheus does not request
		return s, err
	}
	if s.cpu, err = process.Precise(e.pid); err != nil {
		return s, err
	}
	if s.fake, err = driverTime(e.pid); err != nil {
		return s, err
	}
	body, err := plain.fetch(e.url)
	if err != nil {
		return s, err
	}
	s.page, s.calls = len(body), map[string]float64{}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		s.series++
		// By poll group; by call in releases before --metrics.
		rest, ok := strings.CutPrefix(line, "gpu_exporter_poll_call_duration_seconds_count{")
		if !ok {
			rest, ok = strings.CutPrefix(line, "gpu_exporter_call_duration_seconds_count{")
		}
		if ok {
			name, _, _ := strings.Cut(rest, "}")
			if s.calls[name], err = strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// driverTime is the processor time that an exporter has spent in functions of the fake driver, which counts it itself.
func driverTime(pid int) (time.Duration, error) {
	_, environ, err := process.Command(pid)
	if err != nil {
		return 0, err
	}
	for _, variable := range environ {
		if path, ok := strings.CutPrefix(variable, "FAKENVML_CONTROL="); ok {
			control, err := scenario.OpenControl(path)
			if err != nil {
				return 0, err
			}
			return control.Processor(), control.Close()
		}
	}
	return 0, errors.New("the exporter has no fake driver")
}

// callsSince returns the driver calls per minute, by function.
func (s state) callsSince(before state) map[string]float64 {
	out := map[string]float64{}
	for name, n := range s.calls {
		out[name] = per(n-before.calls[name], before.usage, s.usage)
	}
	return out
}

// tree is a revision that is measured; its results go to a file in bin/.
type tree struct {
	root, revision string
	pollFlags      string // what the flags of the poll groups begin with
	results        bytes.Buffer
}

// build builds the exporter and finds out how it spells its flags: before 1.0 those of the poll groups began with --lane.
func (t *tree) build(ctx context.Context) error {
	if err := programs.Build(ctx, t.root, programs.Exporter); err != nil {
		return err
	}
	help, err := exec.CommandContext(ctx, programs.Exporter.Path(t.root), "--help").Output()
	if t.pollFlags = "--poll."; !bytes.Contains(help, []byte(t.pollFlags)) {
		t.pollFlags = "--lane."
	}
	return err
}

// add writes one measurement.
func (t *tree) add(name string, values ...any) {
	fmt.Fprintf(&t.results, "Benchmark%s 1", name)
	for i := 0; i+1 < len(values); i += 2 {
		fmt.Fprintf(&t.results, " %v %s", values[i], values[i+1])
	}
	t.results.WriteByte('\n')
}

func (t *tree) file(root string) string {
	return filepath.Join(root, "bin", "bench-"+t.revision+".txt")
}

type config struct {
	root, against string
	beside        string // nvidia_gpu_exporter's program, if it is measured
	period        time.Duration
	scrapes       int
	curves        bool
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

// per scales a difference between two times to a minute.
func per(difference float64, from, to process.Usage) float64 {
	return difference * float64(time.Minute) / float64(to.At.Sub(from.At))
}
