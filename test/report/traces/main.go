// Command traces runs gpu-report over two published production traces, written as history under the exporter's
// families. The traces are not part of the project: the folder that holds them is an argument.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/gpu-exporter/gpu-exporter/test/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "traces: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	data := flag.String("data", "", "folder with fleet-2023 and genai-2026")
	report, server := flag.String("report", "bin/gpu-report", "gpu-report"), flag.String("prometheus", "bin/prometheus", "Prometheus")
	out := flag.String("out", "bin/report-traces", "where the reports go")
	flag.Parse()
	if *data == "" {
		return errors.New("-data=FOLDER names the folder with fleet-2023 and genai-2026 (make report-traces DATA=FOLDER)")
	}
	for _, trace := range []struct {
		name  string
		write func(dir, data string) (from, to time.Time, err error)
		args  []string
	}{
		{"genai-2026", genai, []string{"--advice.min-observation=12h", "--advice.min-idle=6h", "--advice.min-coverage=0.8"}},
		{"fleet-2023", fleet, nil},
	} {
		if _, err := os.Stat(filepath.Join(*data, trace.name)); err != nil {
			return fmt.Errorf("%s has no trace %s: %w", *data, trace.name, err)
		}
		dir, err := os.MkdirTemp("", "gpu-report-trace")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		began := time.Now()
		from, to, err := trace.write(dir, filepath.Join(*data, trace.name))
		if err != nil {
			return fmt.Errorf("%s: %w", trace.name, err)
		}
		fmt.Printf("%s: %s to %s, written in %v\n", trace.name, from.Format(time.RFC3339), to.Format(time.RFC3339), time.Since(began).Round(time.Millisecond))
		if err := ask(ctx, *server, *report, dir, filepath.Join(*out, trace.name), from, to, trace.args); err != nil {
			return fmt.Errorf("%s: %w", trace.name, err)
		}
	}
	return nil
}

// ask runs a Prometheus on the history and the report on that.
func ask(ctx context.Context, server, report, dir, out string, from, to time.Time, args []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	l.Close()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {scrape_interval: 1m}\n"), 0o600); err != nil {
		return err
	}
	var said bytes.Buffer
	p := exec.CommandContext(ctx, server, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--storage.tsdb.retention.time=100y", "--log.level=warn")
	p.Stdout, p.Stderr = &said, &said
	if err := p.Start(); err != nil {
		return err
	}
	defer func() { _ = p.Process.Signal(syscall.SIGTERM); _ = p.Wait() }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		res, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("wait for Prometheus: it is not ready: %s", said.String())
		}
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, report, append([]string{"--prometheus.url=http://" + address, "--from=" + from.Format(time.RFC3339), "--to=" + to.Format(time.RFC3339), "--now=" + to.Format(time.RFC3339),
		"--format=html,md,json,csv,table", "--out=" + out, "--top=15"}, args...)...)
	cmd.Stderr = os.Stderr
	memory, err := process.Run(cmd)
	if err != nil {
		return fmt.Errorf("gpu-report: %w", err)
	}
	fmt.Printf("reported in %v, of which %v were its own, with %.0f MiB; reports are in %s\n\n", time.Since(began).Round(time.Millisecond), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Round(time.Millisecond), memory, out)
	text, err := os.ReadFile(filepath.Join(out, "gpu-report.txt"))
	fmt.Println(string(text))
	return err
}

// history writes samples in the order of time, block after block.
type history struct {
	dir     string
	length  time.Duration
	writer  *tsdb.BlockWriter
	app     storage.Appender
	end     time.Time
	known   map[string]storage.SeriesRef
	pending int
}

func newHistory(dir string, length time.Duration) *history {
	return &history{dir: filepath.Join(dir, "data"), length: length}
}

func (h *history) put(at time.Time, v float64, pairs ...string) error {
	if !at.Before(h.end) {
		if err := h.flush(); err != nil {
			return err
		}
		w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), h.dir, 2*h.length.Milliseconds())
		if err != nil {
			return err
		}
		h.writer, h.app, h.known, h.pending = w, w.Appender(context.Background()), map[string]storage.SeriesRef{}, 0
		h.end = at.Truncate(h.length).Add(h.length)
	}
	key := strings.Join(pairs, "\x00")
	ref, ok := h.known[key]
	l := labels.EmptyLabels()
	if !ok {
		l = labels.FromStrings(append([]string{model.MetricNameLabel}, pairs...)...)
	}
	ref, err := h.app.Append(ref, l, at.UnixMilli(), v)
	if err != nil {
		return fmt.Errorf("%v at %v: %w", pairs, at, err)
	}
	h.known[key] = ref
	if h.pending++; h.pending > 100_000 {
		if err := h.app.Commit(); err != nil {
			return err
		}
		h.app, h.pending = h.writer.Appender(context.Background()), 0
	}
	return nil
}

func (h *history) flush() error {
	if h.writer == nil {
		return nil
	}
	if err := h.app.Commit(); err != nil {
		return err
	}
	_, err := h.writer.Flush(context.Background())
	err = errors.Join(err, h.writer.Close())
	h.writer = nil
	return err
}

// table reads a CSV file, compressed or not, by the names of its columns.
func table(file string, each func(get func(string) string) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	c := csv.NewReader(r)
	c.ReuseRecord = true
	head, err := c.Read()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	at := map[string]int{}
	for i, name := range head {
		at[name] = i
	}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := each(func(name string) string {
			i, ok := at[name]
			if !ok {
				return ""
			}
			return row[i]
		}); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
}

// genai writes a day of an image-generation service: one card for each pod, as its exporter would have counted.
func genai(dir, data string) (from, to time.Time, err error) {
	const cards, model, memory = 8, "48 GB class", 48 << 30
	type reading struct{ duty, memory map[int64]float64 }
	pods := map[string]*reading{}
	moments := map[int64]bool{}
	for _, f := range []struct {
		file string
		into func(*reading) map[int64]float64
	}{{"duty_cycle_percent.csv.gz", func(r *reading) map[int64]float64 { return r.duty }}, {"memory_used_bytes.csv.gz", func(r *reading) map[int64]float64 { return r.memory }}} {
		err := table(filepath.Join(data, f.file), func(get func(string) string) error {
			at, err := strconv.ParseInt(get("timestamp"), 10, 64)
			v, err2 := strconv.ParseFloat(get("value"), 64)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			r := pods[get("pod")]
			if r == nil {
				r = &reading{map[int64]float64{}, map[int64]float64{}}
				pods[strings.Clone(get("pod"))] = r
			}
			f.into(r)[at] = v
			moments[at] = true
			return nil
		})
		if err != nil {
			return from, to, err
		}
	}
	var names []string
	for n := range pods {
		names = append(names, n)
	}
	slices.Sort(names)
	var times []int64
	for t := range moments {
		times = append(times, t)
	}
	slices.Sort(times)
	type state struct {
		first, last, worked                   int64
		held, busy, observed, idle, underused float64
		free, unknown                         float64
	}
	states := make([]state, len(names))
	for i, n := range names {
		for t := range pods[n].duty {
			if s := &states[i]; s.first == 0 || t < s.first {
				s.first = t
			}
			states[i].last = max(states[i].last, t)
		}
	}
	h := newHistory(dir, 6*time.Hour)
	for j, t := range times {
		at, dt := time.Unix(t, 0), 0.0
		if j > 0 {
			dt = float64(t - times[j-1])
		}
		for i, n := range names {
			s, pod := &states[i], "generate-"+strconv.Itoa(i)
			node, uuid := fmt.Sprintf("gen-%02d", i/cards), "GPU-"+n[:12]
			card := []string{"node", node, "uuid", uuid, "gpu", strconv.Itoa(i % cards)}
			duty, seen := pods[n].duty[t]
			inside := t >= s.first && t <= s.last
			switch {
			case !inside:
				s.free += dt
			case !seen:
				s.unknown += dt
				s.held += dt
			default:
				work := min(1, duty/100) * dt
				s.held += dt
				s.observed += dt
				s.busy += work
				if work > 0 {
					s.worked = t
				}
				if t-max(s.worked, s.first) > 60 {
					s.idle += dt - work
				} else {
					s.underused += dt - work
				}
			}
			put := func(v float64, pairs ...string) {
				if err == nil {
					err = h.put(at, v, pairs...)
				}
			}
			of := func(name string, more ...string) []string { return append(append([]string{name}, card...), more...) }
			for use, v := range map[string]float64{"busy": s.busy, "underused": s.underused, "idle": s.idle, "unallocated": s.free, "unavailable": 0, "unknown": s.unknown} {
				put(v, of("gpu_card_seconds_total", "use", use)...)
			}
			put(1, of("gpu_device_up")...)
			put(1, of("gpu_info", "model", model)...)
			put(memory, of("gpu_memory_total_bytes")...)
			if inside {
				who := []string{"namespace", "genai", "pod", pod, "container", "worker"}
				put(s.held, of("gpu_container_held_seconds_total", who...)...)
				put(s.busy, of("gpu_container_busy_seconds_total", who...)...)
				put(s.observed, of("gpu_container_observed_seconds_total", who...)...)
				put(s.idle, of("gpu_container_unused_seconds_total", append(who, "use", "idle")...)...)
				put(s.underused, of("gpu_container_unused_seconds_total", append(who, "use", "underused")...)...)
				put(1, of("gpu_container_allocation_ratio", append(who, "resource", "nvidia_com_gpu")...)...)
				put(1, "gpu_pod_info", "node", node, "namespace", "genai", "pod", pod, "workload_type", "Pod", "workload", pod)
				if seen {
					put(min(1, duty/100), of("gpu_utilization_ratio")...)
				}
				if m, ok := pods[n].memory[t]; ok {
					put(m, of("gpu_container_memory_used_bytes", who...)...)
				}
			}
		}
		if err != nil {
			return from, to, err
		}
	}
	from = time.Unix(times[0], 0).UTC().Truncate(5 * time.Minute).Add(5 * time.Minute)
	return from, time.Unix(times[len(times)-1], 0).UTC().Truncate(5 * time.Minute), h.flush()
}

// task is one pod of the fleet's trace.
type task struct {
	name       string
	cards      int
	demand     float64
	begin, end int64
	node       *machine
	slots      []int
}

type machine struct {
	name, model string
	cards       int
	taken       []*task
}

// seconds reads a moment of the trace; false: it has none.
func seconds(text string) (float64, bool) {
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// fleet writes the last ten days of a fleet's pods. The trace tells what pods asked for, not what they did: every pod is given
// whole cards, and is as busy as the part of a card that it asked for. What sharing would free can be read from that.
func fleet(dir, data string) (from, to time.Time, err error) {
	var machines []*machine
	err = table(filepath.Join(data, "nodes.csv"), func(get func(string) string) error {
		n, err := strconv.Atoi(get("gpu"))
		if err == nil && n > 0 {
			machines = append(machines, &machine{name: strings.Clone(get("sn")), model: strings.Clone(get("model")), cards: n, taken: make([]*task, n)})
		}
		return err
	})
	if err != nil {
		return from, to, err
	}
	var tasks []*task
	last := int64(0)
	err = table(filepath.Join(data, "pods.csv"), func(get func(string) string) error {
		n, _ := strconv.Atoi(get("num_gpu"))
		milli, _ := strconv.Atoi(get("gpu_milli"))
		begin, started := seconds(get("scheduled_time"))
		end, ended := seconds(get("deletion_time"))
		if n == 0 || !started || !ended || end <= begin {
			return nil // without cards, or never started
		}
		last = max(last, int64(end))
		tasks = append(tasks, &task{name: strings.Clone(get("name")), cards: n, demand: float64(milli) / 1000, begin: int64(begin), end: int64(end)})
		return nil
	})
	if err != nil {
		return from, to, err
	}
	slices.SortStableFunc(tasks, func(a, b *task) int { return cmp.Compare(a.begin, b.begin) })
	const step = 150
	epoch := time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)
	first := last - 10*86400
	h := newHistory(dir, 24*time.Hour)
	counters := map[*task]float64{}
	var running []*task
	next := 0
	for t := first / 300 * 300; t <= last; t += step {
		running = slices.DeleteFunc(running, func(x *task) bool {
			if x.end > t {
				return false
			}
			for _, s := range x.slots {
				x.node.taken[s] = nil
			}
			return true
		})
		for ; next < len(tasks) && tasks[next].begin <= t; next++ {
			if x := tasks[next]; x.end > t && place(machines, x) {
				running = append(running, x)
			}
		}
		at := epoch.Add(time.Duration(t) * time.Second)
		put := func(v float64, pairs ...string) {
			if err == nil {
				err = h.put(at, v, pairs...)
			}
		}
		if t%300 == 0 {
			for _, m := range machines {
				held, busy := 0.0, 0.0
				for _, x := range m.taken {
					if x != nil {
						held++
						busy += x.demand
					}
				}
				for use, v := range map[string]float64{"busy": busy, "underused": held - busy, "unallocated": float64(m.cards) - held} {
					put(v, "node:gpu_card_seconds:rate5m", "node", m.name, "model", m.model, "use", use)
				}
				put(float64(m.cards), "node:gpu_device_up:count", "node", m.name, "model", m.model)
			}
		}
		for _, x := range running {
			counters[x] += step
			put(1, "gpu_pod_info", "node", x.node.name, "namespace", "openb", "pod", x.name, "workload_type", "Pod", "workload", x.name)
			for _, s := range x.slots {
				card := []string{"node", x.node.name, "uuid", x.node.name + "-" + strconv.Itoa(s)}
				of := func(name string, more ...string) []string { return append(append([]string{name}, card...), more...) }
				put(1, of("gpu_info", "model", x.node.model)...)
				put(32<<30, of("gpu_memory_total_bytes")...)
				who := []string{"namespace", "openb", "pod", x.name, "container", "main"}
				v := counters[x]
				put(v, of("gpu_container_held_seconds_total", who...)...)
				put(v, of("gpu_container_observed_seconds_total", who...)...)
				put(v*x.demand, of("gpu_container_busy_seconds_total", who...)...)
				put(0, of("gpu_container_unused_seconds_total", append(who, "use", "idle")...)...)
				put(v*(1-x.demand), of("gpu_container_unused_seconds_total", append(who, "use", "underused")...)...)
				put(1, of("gpu_container_allocation_ratio", append(who, "resource", "nvidia_com_gpu")...)...)
			}
		}
		if err != nil {
			return from, to, err
		}
	}
	return epoch.Add(time.Duration(first/300*300+300) * time.Second), epoch.Add(time.Duration(last/300*300) * time.Second), h.flush()
}

// place puts a pod on the first machine with enough free cards.
func place(machines []*machine, x *task) bool {
	for _, m := range machines {
		var free []int
		for i, t := range m.taken {
			if t == nil && len(free) < x.cards {
				free = append(free, i)
			}
		}
		if len(free) == x.cards {
			x.node, x.slots = m, free
			for _, i := range free {
				m.taken[i] = x
			}
			return true
		}
	}
	return false
}
