package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/process"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// stand starts exporters on fake nodes.
type stand struct {
	root  string
	nodes string // where generated nodes are written
}

// program is a running exporter behind the stand-in.
type program struct {
	stop func()
	base string
	pid  int
}

// launch starts an exporter on a node and waits until it answers.
func (s *stand) launch(ctx context.Context, exporter string, n node, flags ...string) (*program, error) {
	address, err := programs.FreeAddress()
	if err != nil {
		return nil, err
	}
	scenario := filepath.Join(s.root, "testdata", "scenarios", n.scenario+".scenario")
	pods := filepath.Join(s.root, "testdata", "kubelet", n.pods+".pods")
	if n.made != nil {
		if scenario, pods, err = n.made.write(s.root, s.nodes); err != nil {
			return nil, err
		}
	}
	args := []string{"--quiet", "--scenario=" + scenario}
	if n.made != nil || n.pods != "" {
		args = append(args, "--pods="+pods)
	}
	args = append(args, "--", exporter, "--log.level=warn", "--node-name=bench", "--web.listen-address="+address)
	cmd := exec.CommandContext(ctx, programs.Standin.Path(s.root), append(args, flags...)...)
	cmd.Dir = s.root
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &program{base: "http://" + address}
	p.stop = func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
		if p.pid == 0 {
			p.pid = child(cmd.Process.Pid, filepath.Base(exporter))
			continue
		}
		if _, err := plain.fetch(http.DefaultClient, p.base+"/metrics"); err == nil {
			return p, nil
		}
	}
	p.stop()
	return nil, fmt.Errorf("the exporter does not answer")
}

// child returns the first child of a process that runs a program, 0 while there is none.
func child(pid int, program string) int {
	for _, id := range process.Children(pid) {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", id)); err == nil && filepath.Base(exe) == program {
			return id
		}
	}
	return 0
}

// asking is a way to ask for a page.
type asking struct{ accept, encoding string }

var (
	// plain is the text format as it is.
	plain = asking{"text/plain;version=0.0.4", "identity"}
	// likePrometheus is what a Prometheus 3 sends.
	likePrometheus = asking{"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5," +
		"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", "gzip"}
)

// fetch returns the bytes of the answer as they came.
func (a asking) fetch(c *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", a.encoding)
	req.Header.Set("Accept", a.accept)
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

// unpacked is the text of an answer.
func (a asking) unpacked(body []byte) ([]byte, error) {
	if a.encoding != "gzip" {
		return body, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// state is an exporter at one moment.
type state struct {
	series, page int
	use          process.Usage
	calls        map[string]float64
}

func (p *program) state() (state, error) {
	s := state{calls: map[string]float64{}}
	body, err := plain.fetch(http.DefaultClient, p.base+"/metrics")
	if err != nil {
		return s, err
	}
	s.page = len(body)
	scan := bufio.NewScanner(bytes.NewReader(body))
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
	s.use, err = process.Of(p.pid)
	return s, err
}

// callsPerMinute is what the driver was asked between two moments.
func callsPerMinute(from, to state) map[string]float64 {
	out := map[string]float64{}
	for name, n := range to.calls {
		out[name] = (n - from.calls[name]) * float64(time.Minute) / float64(to.use.At.Sub(from.use.At))
	}
	return out
}
