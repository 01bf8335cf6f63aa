package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// exporter is the gpu-exporter under test, running.
type exporter struct {
	cmd    *exec.Cmd
	base   string
	client *http.Client
	log    tail
	done   chan struct{}
	err    error // how it ended; read after done
}

// poll groups are faster than the defaults, so that a minute holds enough calls of each kind.
const (
	fastPoll   = 500 * time.Millisecond
	mediumPoll = time.Second
	slowPoll   = 2 * time.Second
)

// startExporter runs the program on a free port of the loopback interface until stop, or until ctx ends.
func startExporter(ctx context.Context, path string) (*exporter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	e := &exporter{base: "http://" + address, client: &http.Client{Timeout: 10 * time.Second}, done: make(chan struct{})}
	e.cmd = exec.CommandContext(ctx, path, "--web.listen-address="+address, "--no-kubelet", "--poll.fast="+fastPoll.String(),
		"--poll.medium="+mediumPoll.String(), "--poll.slow="+slowPoll.String())
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GPU_EXPORTER_") { // they would be flags of it
			e.cmd.Env = append(e.cmd.Env, v)
		}
	}
	e.cmd.Stdout, e.cmd.Stderr = &e.log, &e.log
	e.cmd.Cancel = func() error { return e.cmd.Process.Signal(syscall.SIGTERM) }
	e.cmd.WaitDelay = 10 * time.Second
	if err := e.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", path, err)
	}
	go func() { e.err = e.cmd.Wait(); close(e.done) }()
	return e, nil
}

// stop ends the exporter as its users do, and returns an error unless it ends well and soon.
func (e *exporter) stop() error {
	select {
	case <-e.done:
		return fmt.Errorf("it had ended already: %w", errors.Join(e.err, errors.New(e.log.last())))
	default:
	}
	began := time.Now()
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-e.done:
	case <-time.After(15 * time.Second):
		err := e.cmd.Process.Kill()
		<-e.done
		return errors.Join(errors.New("it did not end within 15 s of SIGTERM and was killed"), err)
	}
	if e.err != nil {
		return fmt.Errorf("%w after %v: %s", e.err, time.Since(began).Round(time.Millisecond), e.log.last())
	}
	return nil
}

func (e *exporter) get(ctx context.Context, accept string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	res, err := e.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("/metrics answers %s: %s", res.Status, firstLine(string(body)))
	}
	return body, err
}

// scrape reads the metrics as text.
func (e *exporter) scrape(ctx context.Context) (exposition, error) {
	body, err := e.get(ctx, "text/plain; version=0.0.4")
	if err != nil {
		return nil, err
	}
	return parseExposition(string(body))
}

// durations reads the histograms of the driver's calls, by call.
func (e *exporter) durations(ctx context.Context) (map[string]histogram, error) {
	body, err := e.get(ctx, "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited")
	if err != nil {
		return nil, err
	}
	return decodeDurations(body)
}

// until scrapes again and again until check is satisfied. It gives up when limit has passed, and at once when
// the exporter has ended.
func (e *exporter) until(ctx context.Context, limit time.Duration, check func(exposition) error) (exposition, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		got, err := e.scrape(ctx)
		if err == nil {
			if err = check(got); err == nil {
				return got, nil
			}
		}
		select {
		case <-e.done:
			return nil, fmt.Errorf("the exporter ended: %w: %s", errors.Join(e.err, err), e.log.last())
		case <-ctx.Done():
			return nil, fmt.Errorf("after %v: %w", limit, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// deviceLanes are the poll groups that read GPUs.
func devicePollGroups() []string { return []string{"fast", "medium", "slow"} }

// read reports an error unless every poll group has read each of the GPUs since the moment given.
func read(e exposition, uuids []string, since time.Time) error {
	for _, uuid := range uuids {
		if up, known := e.sum("gpu_device_up", is("uuid", uuid)); !known || up != 1 {
			return fmt.Errorf("GPU %s is not up", uuid)
		}
		for _, pollGroup := range devicePollGroups() {
			at, known := e.sum("gpu_last_read_timestamp_seconds", is("uuid", uuid), is("poll", pollGroup))
			if !known || at < seconds(since) {
				return fmt.Errorf("poll group %s has not read GPU %s", pollGroup, uuid)
			}
		}
	}
	return nil
}

// seconds is a moment as the exposition has it.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// tail keeps the end of what a program says. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 16 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if len(t.text) > most {
		t.text = append(t.text[:0], t.text[len(t.text)-most:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// last returns the last line.
func (t *tail) last() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	return lines[len(lines)-1]
}
