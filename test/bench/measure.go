package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"os/exec"

	"github.com/gpu-exporter/gpu-exporter/test/process"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// figures are what was measured of one exporter on one node.
type figures struct {
	series, page, packed      int // packed: the page as Prometheus takes it
	first, next, file         latencies
	promFirst, promNext       latencies
	promFile                  latencies
	resident, anonymous, peak float64       // MiB
	cpu                       time.Duration // per minute, a scrape each 15 s included
	calls                     map[string]float64
	start                     time.Duration
}

func (f figures) allCalls() (sum float64) {
	for _, n := range f.calls {
		sum += n
	}
	return sum
}

type latencies struct{ p50, p99 time.Duration }

func (l latencies) String() string {
	return fmt.Sprintf("%.2f / %.2f ms", l.p50.Seconds()*1000, l.p99.Seconds()*1000)
}

func percentiles(d []time.Duration) latencies {
	if len(d) == 0 {
		return latencies{}
	}
	slices.Sort(d)
	return latencies{d[len(d)/2], d[min(len(d)-1, len(d)*99/100)]}
}

// scrapeEvery is how often a Prometheus comes by while a node is watched.
const scrapeEvery = 15 * time.Second

// measure measures the exporters of all trees on a node, at the same time.
func (s *stand) measure(ctx context.Context, trees []tree, n node, watch, settle time.Duration, scrapes int) ([]figures, error) {
	out := make([]figures, len(trees))
	if err := s.watch(ctx, trees, n, watch, settle, out); err != nil {
		return nil, err
	}
	if err := s.scrape(ctx, trees, n, scrapes, out); err != nil {
		return nil, err
	}
	for i, t := range trees {
		var err error
		if out[i].start, err = s.startup(ctx, t, n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// launchAll starts the exporters of all trees on a node.
func (s *stand) launchAll(ctx context.Context, trees []tree, n node, flags ...string) (started []*program, stop func(), err error) {
	stop = func() {
		for _, p := range started {
			p.stop()
		}
	}
	for _, t := range trees {
		p, err := s.launch(ctx, t.exporter(), n, flags...)
		if err != nil {
			stop()
			return nil, nil, err
		}
		started = append(started, p)
	}
	return started, stop, nil
}

// watch measures what the exporters take while they are scraped as usual.
func (s *stand) watch(ctx context.Context, trees []tree, n node, watch, settle time.Duration, out []figures) error {
	started, stop, err := s.launchAll(ctx, trees, n)
	if err != nil {
		return err
	}
	defer stop()
	time.Sleep(settle) // until all poll groups have come round and all pods are known
	before := make([]state, len(started))
	cpu := make([]time.Duration, len(started))
	for i, p := range started {
		if before[i], err = p.state(); err != nil {
			return err
		}
		if cpu[i], err = process.Precise(p.pid); err != nil {
			return err
		}
	}
	began := time.Now()
	for end := began.Add(watch); time.Now().Before(end); {
		time.Sleep(min(scrapeEvery, time.Until(end)))
		for _, p := range started {
			if _, err := likePrometheus.fetch(http.DefaultClient, p.base+"/metrics"); err != nil {
				return err
			}
		}
	}
	for i, p := range started {
		now, err := process.Precise(p.pid)
		if err != nil {
			return err
		}
		out[i].cpu = time.Duration(float64(now-cpu[i]) * float64(time.Minute) / float64(time.Since(began)))
		use, err := process.Of(p.pid) // before a page in plain text is asked for, which no server does
		if err != nil {
			return err
		}
		after, err := p.state()
		if err != nil {
			return err
		}
		out[i].series, out[i].page, out[i].calls = after.series, after.page, callsPerMinute(before[i], after)
		out[i].resident, out[i].anonymous, out[i].peak = use.Resident, use.Anonymous, use.Peak
	}
	return nil
}

// newView is the fast poll group's interval while scrapes are timed: every scrape of a pair meets a new view.
const newView = 200 * time.Millisecond

// scrape times scrapes of all exporters in turn, told apart by whether the view is a new one, beside the same bytes
// from memory.
func (s *stand) scrape(ctx context.Context, trees []tree, n node, scrapes int, out []figures) error {
	started, stop, err := s.launchAll(ctx, trees, n, "--poll.fast="+newView.String())
	if err != nil {
		return err
	}
	defer stop()
	time.Sleep(3 * time.Second)
	for _, a := range []asking{plain, likePrometheus} {
		file, err := serve()
		if err != nil {
			return err
		}
		defer file.close()
		client := &http.Client{}
		first, next, static := make([][]time.Duration, len(started)), make([][]time.Duration, len(started)), make([][]time.Duration, len(started))
		stamps := make([]string, len(started))
		timed := func(url string) (body []byte, took time.Duration, err error) {
			begin := time.Now()
			body, err = a.fetch(client, url)
			return body, time.Since(begin), err
		}
		for range scrapes {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			time.Sleep(newView + 10*time.Millisecond)
			for i, p := range started {
				for again := range 2 {
					body, took, err := timed(p.base + "/metrics")
					if err != nil {
						return err
					}
					text, err := a.unpacked(body)
					if err != nil {
						return err
					}
					stamp := stampOf(text)
					switch {
					case stamp != stamps[i]:
						first[i] = append(first[i], took)
					case again == 1:
						next[i] = append(next[i], took)
					}
					stamps[i] = stamp
					if again == 0 {
						continue
					}
					file.body = body
					if _, took, err = timed(file.url); err != nil {
						return err
					}
					static[i] = append(static[i], took)
					if a == likePrometheus {
						out[i].packed = len(body)
					}
				}
			}
		}
		for i := range started {
			if a == plain {
				out[i].first, out[i].next, out[i].file = percentiles(first[i]), percentiles(next[i]), percentiles(static[i])
			} else {
				out[i].promFirst, out[i].promNext, out[i].promFile = percentiles(first[i]), percentiles(next[i]), percentiles(static[i])
			}
		}
	}
	return nil
}

// stampOf is when the driver answered last: another one is another view.
func stampOf(page []byte) string {
	for l := range bytes.Lines(page) {
		if bytes.HasPrefix(l, []byte("gpu_exporter_source_last_success_timestamp_seconds")) && bytes.Contains(l, []byte(`source="nvml"`)) {
			return string(l)
		}
	}
	return ""
}

// file serves bytes from memory.
type file struct {
	body  []byte // one request at a time
	url   string
	close func() error
}

func serve() (*file, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &file{url: "http://" + l.Addr().String() + "/"}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(f.body)
	})}
	f.close = server.Close
	go func() { _ = server.Serve(l) }()
	return f, nil
}

// callsByLane counts the driver calls per minute of each poll group: those of the fast poll group with the others almost
// asleep, those of the medium poll group by what waking it adds, those of the slow poll group by what waking that adds.
func (s *stand) callsByPoll(ctx context.Context, t tree, n node, watch time.Duration) (pollGroups [3]float64, err error) {
	settings := [3][]string{{"--poll.medium=1h", "--poll.slow=1h"}, {"--poll.slow=1h"}, nil}
	var sums [3]float64
	var before, after [3]state
	var started [3]*program
	for i, flags := range settings {
		if started[i], err = s.launch(ctx, t.exporter(), n, flags...); err != nil {
			return pollGroups, err
		}
		defer started[i].stop()
	}
	time.Sleep(5 * time.Second)
	for i, p := range started {
		if before[i], err = p.state(); err != nil {
			return pollGroups, err
		}
	}
	time.Sleep(watch)
	for i, p := range started {
		if after[i], err = p.state(); err != nil {
			return pollGroups, err
		}
		for _, n := range callsPerMinute(before[i], after[i]) {
			sums[i] += n
		}
	}
	return [3]float64{sums[0], sums[1] - sums[0], sums[2] - sums[1]}, nil
}

// starts is how often a start is timed; the middle one counts.
const starts = 5

// startup is the time from the start of the exporter's process until a scrape shows the GPUs.
func (s *stand) startup(ctx context.Context, t tree, n node) (time.Duration, error) {
	p, err := s.launch(ctx, t.exporter(), n)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	// Others are started as the running one was, on ports of their own.
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	if err != nil {
		return 0, err
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	if err != nil {
		return 0, err
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	args = slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "--web.listen-address=") })
	return middle(func() (time.Duration, error) {
		return timeStart(ctx, args, strings.Split(strings.TrimSuffix(string(environ), "\x00"), "\x00"), "\ngpu_device_up{")
	})
}

// startWithoutDriver is the time until a scrape is answered where there is no driver.
func startWithoutDriver(ctx context.Context, t tree) (time.Duration, error) {
	return middle(func() (time.Duration, error) {
		return timeStart(ctx, []string{t.exporter(), "--log.level=error", "--nvml.library=/nonexistent/libnvidia-ml.so.1",
			"--kubelet.socket=/nonexistent/kubelet.sock", "--path.kmsg="}, os.Environ(), "\ngpu_exporter_build_info{")
	})
}

func middle(measure func() (time.Duration, error)) (time.Duration, error) {
	var took []time.Duration
	for range starts {
		d, err := measure()
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// timeStart times a program from its start until its metrics hold a text.
func timeStart(ctx context.Context, args, environ []string, until string) (time.Duration, error) {
	address, err := programs.FreeAddress()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, args[0], append(slices.Clone(args[1:]), "--web.listen-address="+address)...)
	cmd.Env = environ
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }()
	for time.Since(begin) < 10*time.Second {
		if body, err := plain.fetch(http.DefaultClient, "http://"+address+"/metrics"); err == nil && bytes.Contains(body, []byte(until)) {
			return time.Since(begin), nil
		}
		time.Sleep(time.Millisecond)
	}
	return 0, fmt.Errorf("no answer")
}
