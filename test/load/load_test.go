// Package load_test runs the real binary under load: many scrapers, clients that do not read, clients that do not send,
// reset connections, oversized requests and TLS handshakes. It prints its figures as a table: LOAD=5m go test -v . for
// minutes per phase, by default some twenty seconds in all.
package load_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/process"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

const (
	// memoryLimit is Go's share of the smallest container that the failure table promises to live in, 64 MiB.
	memoryLimit = "51MiB"
	container   = 64 // MiB
	fast        = 200 * time.Millisecond
)

// phase is how long each load lasts: LOAD=1m, else a short form.
func phase(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(os.Getenv("LOAD"))
	if err != nil {
		return 2 * time.Second
	}
	return d
}

// figures of one phase.
type figures struct {
	name                string
	sent, ok, busy      int
	other               map[string]int // other outcomes of requests
	latency             []time.Duration
	resident, anonymous float64       // MiB
	gap                 time.Duration // the longest time in which the sampler published nothing
	probed, refused     int           // scrapes of the probe
	probeLatency        []time.Duration
}

func (f *figures) percentile(p float64, of []time.Duration) string {
	if len(of) == 0 {
		return "–"
	}
	slices.Sort(of)
	return fmt.Sprintf("%.1f", float64(of[min(len(of)-1, int(p*float64(len(of))))].Microseconds())/1000)
}

// bench is an exporter under load.
type bench struct {
	t       *testing.T
	e       *machine.Exporter
	rows    []figures
	scraper *http.Client
}

func newBench(t *testing.T, flags ...string) *bench {
	n := machine.Shipped(t, "8xh100-shared", "8xh100-shared")
	e := n.Start(t, machine.Options{Env: []string{"GOMEMLIMIT=" + memoryLimit},
		Flags: append([]string{"--poll.fast=" + fast.String(), "--poll.medium=400ms", "--poll.slow=1s", "--poll.kubelet=1s",
			"--log.level=warn"}, flags...)})
	return &bench{t: t, e: e, scraper: &http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{DisableCompression: true, DialContext: from(2).DialContext}}}
}

// from dials from a loopback address of its own: limits are per client address.
func from(host int) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(host))}}
}

// page scrapes once.
func (r *bench) page() (string, error) {
	return testkit.Client{Client: r.scraper}.Fetch(r.t.Context(), r.e.Base()+"/metrics")
}

// value is the first sample of a family.
func value(page, family string) (float64, bool) {
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, family); ok && (rest[0] == ' ' || rest[0] == '{') {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			return v, err == nil
		}
	}
	return 0, false
}

// ready waits until the GPUs and the pods are there.
func (r *bench) ready() {
	r.t.Helper()
	servers.Until(r.t, "the GPUs and the pods", func() error {
		page, err := r.page()
		if err == nil && !strings.Contains(page, "gpu_container_busy_seconds_total{") {
			err = errors.New("they are not there")
		}
		return err
	})
}

// under runs load for a phase, with one probe that scrapes regularly, and collects figures.
func (r *bench) under(name string, load func(ctx context.Context, f *counts)) *figures {
	r.t.Helper()
	length := phase(r.t)
	ctx, stop := context.WithTimeout(r.t.Context(), length)
	defer stop()
	f := figures{name: name}
	var c counts
	var at sync.WaitGroup
	at.Go(func() { load(ctx, &c) })
	var last, moved = 0.0, time.Now()
	for ctx.Err() == nil {
		if u, err := process.Of(r.e.PID); err == nil {
			f.resident, f.anonymous = max(f.resident, u.Resident), max(f.anonymous, u.Anonymous)
		}
		start := time.Now()
		page, err := r.page()
		f.probeLatency = append(f.probeLatency, time.Since(start))
		if err != nil {
			f.refused++
		} else {
			f.probed++
			// Observed seconds stand still if the sampler does.
			if v, ok := value(page, "gpu_observed_seconds_total"); ok && v != last {
				f.gap = max(f.gap, time.Since(moved))
				last, moved = v, time.Now()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	f.gap = max(f.gap, time.Since(moved))
	at.Wait()
	select {
	case <-r.e.Done:
		r.t.Fatalf("%s: the exporter ended: %v\n%s", name, r.e.Err, r.e.Said())
	default:
	}
	f.sent, f.ok, f.busy, f.latency, f.other = c.sent, c.ok, c.busy, c.latency, c.other
	r.rows = append(r.rows, f)
	return &r.rows[len(r.rows)-1]
}

// counts are what came of requests. Safe for concurrent use.
type counts struct {
	mu             sync.Mutex
	sent, ok, busy int
	other          map[string]int
	latency        []time.Duration
}

func (c *counts) add(status int, took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	switch {
	case err == nil && status == http.StatusOK:
		c.ok++
		c.latency = append(c.latency, took)
	case err == nil && status == http.StatusServiceUnavailable:
		c.busy++
	case err == nil:
		c.note(strconv.Itoa(status))
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		c.note("timeout")
	default:
		c.note("closed")
	}
}

func (c *counts) note(word string) {
	if c.other == nil {
		c.other = map[string]int{}
	}
	c.other[word]++
}

// scrape requests and reads one page.
func scrape(ctx context.Context, client *http.Client, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// each runs n copies until the end of the phase.
func each(ctx context.Context, n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				do(i)
			}
		})
	}
	all.Wait()
}

// dial opens a connection with the smallest receive buffer that the kernel allows.
func dial(ctx context.Context, address string) (*net.TCPConn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp := c.(*net.TCPConn)
	_ = tcp.SetReadBuffer(4096)
	return tcp, nil
}

func TestLoad(t *testing.T) {
	r := newBench(t)
	r.ready()
	url := r.e.Base() + "/metrics"

	r.under("one scraper", func(ctx context.Context, c *counts) { <-ctx.Done() })

	many := r.under("200 scrapers", func(ctx context.Context, c *counts) {
		var clients []*http.Client
		for host := range 4 {
			c := &http.Client{Timeout: 10 * time.Second,
				Transport: &http.Transport{MaxIdleConnsPerHost: 200, DialContext: from(3 + host).DialContext}}
			defer c.CloseIdleConnections()
			clients = append(clients, c)
		}
		each(ctx, 200, func(i int) {
			start := time.Now()
			status, err := scrape(ctx, clients[i%len(clients)], url)
			if ctx.Err() == nil {
				c.add(status, time.Since(start), err)
			}
		})
	})
	if many.ok == 0 || many.ok != many.sent {
		t.Errorf("200 scrapers: %d sent, %d served, %d refused with 503, others %v", many.sent, many.ok, many.busy, many.other)
	}

	// Clients that request the page until they get it, and then read no more than its first line.
	slow := r.under("600 slow readers", func(ctx context.Context, c *counts) {
		each(ctx, 600, func(int) {
			conn, err := dial(ctx, r.e.Address)
			if err != nil {
				return
			}
			defer conn.Close()
			start := time.Now()
			fmt.Fprint(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
			conn.SetReadDeadline(start.Add(10 * time.Second))
			line := make([]byte, len("HTTP/1.1 200"))
			_, err = io.ReadFull(conn, line)
			if ctx.Err() != nil {
				return
			}
			status, _ := strconv.Atoi(string(line[len("HTTP/1.1 "):]))
			c.add(status, time.Since(start), err)
			if status == http.StatusOK {
				<-ctx.Done()
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		})
	})
	if slow.ok == 0 {
		t.Errorf("no slow reader was answered: %v", slow.other)
	}

	// Clients that do not read keep nobody out.
	crowd := r.under("a crowd behind them", func(ctx context.Context, c *counts) {
		var open sync.WaitGroup
		defer open.Wait()
		for i := range 800 {
			conn, err := from(3+i%4).DialContext(ctx, "tcp", r.e.Address)
			if err != nil {
				return
			}
			defer conn.Close()
			_ = conn.(*net.TCPConn).SetReadBuffer(4096)
			fmt.Fprint(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		time.Sleep(phase(t) / 5)
		start := time.Now()
		late, stop := context.WithTimeout(r.t.Context(), 20*time.Second)
		defer stop()
		status, err := scrape(late, &http.Client{Transport: &http.Transport{DialContext: from(9).DialContext}}, url)
		c.add(status, time.Since(start), err)
	})
	if crowd.ok != 1 {
		t.Errorf("behind clients that do not read: %d served, %d refused with 503, %v", crowd.ok, crowd.busy, crowd.other)
	}

	// Clients that start a request and never complete it, most of them with the longest allowed header.
	r.under("600 slow writers", func(ctx context.Context, c *counts) {
		filler := "X-Filler: " + strings.Repeat("a", 15<<10)
		each(ctx, 600, func(int) {
			conn, err := dial(ctx, r.e.Address)
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n"+filler)
			for ctx.Err() == nil {
				if _, err := conn.Write([]byte("b")); err != nil {
					break
				}
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
			c.add(0, 0, errors.New("left"))
		})
	})

	r.under("aborted connections", func(ctx context.Context, c *counts) {
		each(ctx, 50, func(i int) {
			conn, err := dial(ctx, r.e.Address)
			if err != nil {
				return
			}
			defer conn.Close()
			request := "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
			fmt.Fprint(conn, request[:1+i*len(request)/50])
			if i%2 == 0 {
				conn.SetLinger(0) // a reset
			}
			c.add(0, 0, errors.New("aborted"))
		})
	})

	big := r.under("oversized requests", func(ctx context.Context, c *counts) {
		zeros := bytes.Repeat([]byte("0"), 1<<20)
		requests := []string{
			"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Big: " + string(zeros) + "\r\n\r\n",
			"GET /" + string(zeros) + " HTTP/1.1\r\nHost: x\r\n\r\n",
			"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n" + string(zeros),
			"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 100_000) + "\r\n",
			string(zeros),
		}
		each(ctx, 20, func(i int) {
			conn, err := dial(ctx, r.e.Address)
			if err != nil {
				return
			}
			defer conn.Close()
			start := time.Now()
			conn.SetDeadline(start.Add(10 * time.Second))
			go io.WriteString(conn, requests[i%len(requests)])
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			status := 0
			if err == nil {
				status = res.StatusCode
				res.Body.Close()
			}
			if ctx.Err() == nil {
				c.add(status, time.Since(start), err)
			}
		})
	})
	if big.other["431"] == 0 {
		t.Errorf("no oversized header was refused as such: %v", big.other)
	}

	r.judge()
}

// Handshakes that are never finished, and finished ones without end.
func TestLoadOfHandshakes(t *testing.T) {
	dir := t.TempDir()
	config := machine.WebConfig(t, dir, machine.Web{})
	r := newBench(t, "--web.config.file="+config)
	client := &tls.Config{InsecureSkipVerify: true}
	r.scraper.Transport = &http.Transport{DisableCompression: true, DialContext: from(2).DialContext, TLSClientConfig: client}
	r.e.TLS = true
	r.ready()
	r.under("one scraper over TLS", func(ctx context.Context, c *counts) { <-ctx.Done() })
	r.under("600 half handshakes", func(ctx context.Context, c *counts) {
		each(ctx, 600, func(int) {
			conn, err := dial(ctx, r.e.Address)
			if err != nil {
				return
			}
			defer conn.Close()
			conn.Write([]byte{0x16, 0x03, 0x01, 0x02, 0x00}) // the head of a greeting
			<-ctx.Done()
			c.add(0, 0, errors.New("left"))
		})
	})
	r.under("50 greeters", func(ctx context.Context, c *counts) {
		each(ctx, 50, func(int) {
			conn, err := dial(ctx, r.e.Address)
			if err != nil {
				return
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			start := time.Now()
			err = tls.Client(conn, client).HandshakeContext(ctx)
			if ctx.Err() == nil {
				status := 0
				if err == nil {
					status = http.StatusOK
				}
				c.add(status, time.Since(start), err)
			}
		})
	})
	r.judge()
}

// judge compares all phases with the limits and prints their table.
func (r *bench) judge() {
	r.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%d cores, GOMEMLIMIT=%s, each phase %v; latencies p50 / p99 in ms\n", runtime.GOMAXPROCS(0), memoryLimit, phase(r.t))
	b.WriteString("| load | sent | served | 503 | other | latency | probe: served, refused | its latency | resident, of " +
		"it anonymous | sampler's longest pause |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range r.rows {
		gap := f.gap.Round(10 * time.Millisecond).String()
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %v | %s / %s | %d, %d | %s / %s | %.0f, %.0f MiB | %v |\n", f.name, f.sent, f.ok, f.busy,
			f.other, f.percentile(0.5, f.latency), f.percentile(0.99, f.latency),
			f.probed, f.refused, f.percentile(0.5, f.probeLatency), f.percentile(0.99, f.probeLatency), f.resident, f.anonymous, gap)
		if f.anonymous > container {
			r.t.Errorf("%s: %.0f MiB of anonymous memory, more than the container has", f.name, f.anonymous)
		}
		if most := 10*fast + 2*time.Second; f.gap > most {
			r.t.Errorf("%s: the sampler published nothing for %v", f.name, f.gap)
		}
		if f.refused > 1+f.probed/20 || f.probed == 0 {
			r.t.Errorf("%s: the probe was served %d times and refused %d times", f.name, f.probed, f.refused)
		}
	}
	r.t.Log("\n" + b.String())
}
