package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// figures are what was measured of one node.
type figures struct {
	series            int
	page              int
	first, next, file latencies
	resident, peak    float64 // MiB
	cpu               time.Duration
	calls             float64
	lanes             string
	start             time.Duration
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

// program is a running exporter behind the stand-in.
type program struct {
	stop func()
	base string
	pid  int
}

// launch starts the exporter on a node.
func launch(ctx context.Context, root string, n node, flags ...string) (*program, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &program{base: fmt.Sprintf("http://127.0.0.1:%d", port)}
	args := []string{"--quiet", "--scenario=testdata/scenarios/" + n.scenario + ".scenario"}
	if n.pods != "" {
		args = append(args, "--pods=testdata/kubelet/"+n.pods+".pods")
	}
	args = append(args, "--", filepath.Join(root, "bin", "gpu-exporter"), "--log.level=warn", "--node-name=bench", fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port))
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "standin"), append(args, flags...)...)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.stop = func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if p.pid == 0 {
			p.pid = child(cmd.Process.Pid)
			continue
		}
		if _, err := fetch(http.DefaultClient, p.base+"/metrics"); err == nil {
			return p, nil
		}
	}
	p.stop()
	return nil, fmt.Errorf("the exporter does not answer")
}

// child returns the first child of a process, 0 while there is none.
func child(pid int) int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		text, err := os.ReadFile(t)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(f); err == nil {
				if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", n)); err == nil && filepath.Base(exe) == "gpu-exporter" {
					return n
				}
			}
		}
	}
	return 0
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func fetch(c *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity")
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", res.Status)
	}
	return body, err
}

func measure(ctx context.Context, root string, n node, watch time.Duration, scrapes int) (figures, error) {
	var m figures
	p, err := launch(ctx, root, n)
	if err != nil {
		return m, err
	}
	defer p.stop()
	time.Sleep(5 * time.Second) // until all lanes have come round and all pods are known

	before, err := sample(p)
	if err != nil {
		return m, err
	}
	time.Sleep(watch)
	after, err := sample(p)
	if err != nil {
		return m, err
	}
	perMinute := float64(time.Minute) / float64(watch)
	m.cpu = time.Duration(float64(after.cpu-before.cpu) * perMinute)
	m.series, m.page, m.resident = after.series, after.page, after.resident
	type callRate struct {
		name string
		rate float64
	}
	var rates []callRate
	for name, count := range after.calls {
		r := (count - before.calls[name]) * perMinute
		m.calls += r
		rates = append(rates, callRate{strings.TrimPrefix(name, "nvmlDevice"), r})
	}
	slices.SortFunc(rates, func(a, b callRate) int { return int(b.rate*1000) - int(a.rate*1000) })
	var top []string
	for _, r := range rates[:min(6, len(rates))] {
		top = append(top, fmt.Sprintf("%s %.0f", r.name, r.rate))
	}
	m.lanes = strings.Join(top, ", ")

	if err := scrapesOf(p, scrapes, &m); err != nil {
		return m, err
	}
	last, err := sample(p)
	if err != nil {
		return m, err
	}
	m.peak = last.peak
	m.start, err = startup(ctx, root, n)
	return m, err
}

// callsByLane counts the driver calls per minute of each lane: those of the fast lane with the others almost
// asleep, those of the medium lane by what waking it adds, those of the slow lane by what waking that adds.
func callsByLane(ctx context.Context, root string, n node, watch time.Duration) (fast, medium, slow float64, err error) {
	count := func(flags ...string) (float64, error) {
		p, err := launch(ctx, root, n, flags...)
		if err != nil {
			return 0, err
		}
		defer p.stop()
		time.Sleep(5 * time.Second)
		before, err := sample(p)
		if err != nil {
			return 0, err
		}
		time.Sleep(watch)
		after, err := sample(p)
		if err != nil {
			return 0, err
		}
		var sum float64
		for name, c := range after.calls {
			sum += c - before.calls[name]
		}
		return sum * float64(time.Minute) / float64(watch), nil
	}
	if fast, err = count("--lane.medium=1h", "--lane.slow=1h"); err != nil {
		return
	}
	withMedium, err := count("--lane.slow=1h")
	if err != nil {
		return
	}
	all, err := count()
	return fast, withMedium - fast, all - withMedium, err
}

// scrapesOf times scrapes, told apart by whether the view is a new one, beside the same bytes from memory.
func scrapesOf(p *program, scrapes int, m *figures) error {
	page, err := fetch(http.DefaultClient, p.base+"/metrics")
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	static := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(page)
	})}
	go func() { _ = static.Serve(l) }()
	defer static.Close()
	client := &http.Client{}
	var first, next, file []time.Duration
	stamp := ""
	for len(next) < scrapes || len(first) < scrapes/20 {
		begin := time.Now()
		body, err := fetch(client, p.base+"/metrics")
		took := time.Since(begin)
		if err != nil {
			return err
		}
		// A view is new when the fast lane read anew.
		now := lineOf(string(body), "gpu_exporter_source_last_success_timestamp_seconds")
		if now != stamp && stamp != "" {
			first = append(first, took)
		} else if stamp != "" {
			next = append(next, took)
		}
		stamp = now
		begin = time.Now()
		if _, err := fetch(client, "http://"+l.Addr().String()+"/"); err != nil {
			return err
		}
		file = append(file, time.Since(begin))
		time.Sleep(20 * time.Millisecond)
	}
	m.first, m.next, m.file = percentiles(first), percentiles(next), percentiles(file)
	return nil
}

func lineOf(page, family string) string {
	for l := range strings.Lines(page) {
		if strings.HasPrefix(l, family) && strings.Contains(l, `source="nvml"`) {
			return l
		}
	}
	return ""
}

// state is the exporter at one moment.
type state struct {
	series, page   int
	resident, peak float64
	cpu            time.Duration
	calls          map[string]float64
}

func sample(p *program) (state, error) {
	s := state{calls: map[string]float64{}}
	body, err := fetch(http.DefaultClient, p.base+"/metrics")
	if err != nil {
		return s, err
	}
	s.page = len(body)
	scan := bufio.NewScanner(strings.NewReader(string(body)))
	for scan.Scan() {
		line := scan.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		s.series++
		if rest, ok := strings.CutPrefix(line, `gpu_exporter_call_duration_seconds_count{call="`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			if v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64); err == nil {
				s.calls[name] = v
			}
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return s, err
	}
	for l := range strings.Lines(string(status)) {
		f := strings.Fields(l)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmRSS:":
			s.resident = kib / 1024
		case "VmHWM:":
			s.peak = kib / 1024
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return s, err
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	const ticks = 100 // USER_HZ, the same on every Linux that runs Go
	s.cpu = time.Duration(user+system) * time.Second / ticks
	return s, nil
}

// startup is the time from the start of the exporter's process until a scrape shows all cards: the median of five.
func startup(ctx context.Context, root string, n node) (time.Duration, error) {
	var took []time.Duration
	for range 5 {
		p, err := launch(ctx, root, n)
		if err != nil {
			return 0, err
		}
		d, err := again(ctx, p.pid)
		p.stop()
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// again starts a second exporter as the running one was started, on a port of its own, and times it from the
// start of its process until a scrape shows the cards.
func again(ctx context.Context, pid int) (time.Duration, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return 0, err
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return 0, err
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	args = slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "--web.listen-address=") })
	return timeStart(ctx, args, strings.Split(strings.TrimSuffix(string(environ), "\x00"), "\x00"), "\ngpu_device_up{")
}

// timeStart times a program from its start until its metrics hold a text.
func timeStart(ctx context.Context, args, environ []string, until string) (time.Duration, error) {
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, args[0], append(args[1:], fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port))...)
	cmd.Env = environ
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }()
	for time.Since(begin) < 10*time.Second {
		if body, err := fetch(http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/metrics", port)); err == nil && strings.Contains(string(body), until) {
			return time.Since(begin), nil
		}
		time.Sleep(time.Millisecond)
	}
	return 0, fmt.Errorf("no answer")
}

// measureStart is the start without any driver: the median of five.
func measureStart(ctx context.Context, root string) (time.Duration, error) {
	var took []time.Duration
	for range 5 {
		d, err := timeStart(ctx, []string{filepath.Join(root, "bin", "gpu-exporter"), "--log.level=error", "--nvml.library=/nonexistent/libnvidia-ml.so.1",
			"--kubelet.socket=/nonexistent/kubelet.sock", "--path.kmsg="}, os.Environ(), "\ngpu_exporter_build_info{")
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
