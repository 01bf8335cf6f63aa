package hwcheck

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

//go:embed kernels/load.c
var loadSource []byte

//go:embed kernels/load.ptx
var kernels string

// The values of --load beside the path of a program that takes the arguments of load.c.
const (
	loadAuto   = "auto"   // load.c, built with cc
	loadManual = "manual" // a load that runs already
	loadNone   = "none"
)

// manualHint is what to do where no load can be started.
const manualHint = "start a load that keeps the GPU busy for a known share of each second, then run with " +
	"--load=manual --duty=SHARE"

// load is a program that uses a GPU in a known way, or a load that runs already.
type load struct {
	name string
	duty float64
	// full: during a burst every multiprocessor is busy.
	full bool
	// disturbed: another process kept the GPU busy before, so that its own share is unknown.
	disturbed bool

	child   *testkit.Child // nil: --load=manual
	working chan struct{}  // closed at the first burst
	logged  chan struct{}  // closed when everything that it printed is read

	mu       sync.Mutex // guards what follows
	pid      int
	bursts   []burst
	launches []float64 // p50, p99 and p99.9 of empty kernels, in microseconds
}

// burst is a continuous period of work as the load logs it, in Unix time and seconds, and the bytes that it copied.
type burst struct{ at, length, bytes float64 }

// loadProgram returns the program of --load; auto builds it into dir.
func loadProgram(ctx context.Context, kind, dir string) (string, error) {
	if kind != loadAuto {
		return kind, nil
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		return "", fmt.Errorf("no C compiler: %w", err)
	}
	// Go's quoting of ASCII is C's.
	ptx := fmt.Sprintf("const char ptx[] = %q;\n", kernels)
	program, source := filepath.Join(dir, "load"), filepath.Join(dir, "load.c")
	data := filepath.Join(dir, "ptx.c")
	if err := errors.Join(os.WriteFile(source, loadSource, 0o644), os.WriteFile(data, []byte(ptx), 0o644)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, cc, "-std=gnu17", "-O2", "-o", program, source, data, "-ldl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cc, err, firstLine(string(out)))
	}
	return program, nil
}

// startTimeout is how long a load may take to its first burst: a first context takes seconds, longer on a GPU without
// persistence mode.
const startTimeout = time.Minute

// startLoad starts a load and waits for its first burst. cgroup is the directory of a cgroup to start it in, if any.
func startLoad(program string, uuids []string, env []string, cgroup string, args ...string) (*load, error) {
	l := &load{name: strings.Join(args, " "), full: true, working: make(chan struct{}), logged: make(chan struct{})}
	cmd := exec.Command(program, args...)
	cmd.Env = append(append(os.Environ(), "CUDA_VISIBLE_DEVICES="+strings.Join(uuids, ",")), env...)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	l.child, err = testkit.Start(cmd)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if cgroup != "" { // before it has a context, which takes long
		if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(fmt.Sprint(l.child.PID())), 0o644); err != nil {
			return nil, errors.Join(err, r.Close(), l.child.Stop())
		}
	}
	go func() {
		defer close(l.logged)
		defer r.Close()
		l.log(bufio.NewScanner(r))
	}()
	select {
	case <-l.working:
		return l, nil
	case <-l.child.Done():
		// One that works for a moment may have exited before its log was read.
		<-l.logged
		select {
		case <-l.working:
			return l, nil
		default:
			return nil, l.child.Exited()
		}
	case <-time.After(startTimeout):
		return nil, errors.Join(fmt.Errorf("load %s: no work within %v", l.name, startTimeout), l.child.Stop())
	}
}

// log collects what the load prints.
func (l *load) log(lines *bufio.Scanner) {
	for lines.Scan() {
		var b burst
		p := make([]float64, 3)
		l.mu.Lock()
		if _, err := fmt.Sscanf(lines.Text(), "burst %g %g %g", &b.at, &b.length, &b.bytes); err == nil {
			l.bursts = append(l.bursts, b)
			if len(l.bursts) == 1 {
				close(l.working)
			}
		} else if _, err := fmt.Sscanf(lines.Text(), "launch %g %g %g", &p[0], &p[1], &p[2]); err == nil {
			l.launches = p
		} else {
			_, _ = fmt.Sscanf(lines.Text(), "pid %d", &l.pid)
		}
		l.mu.Unlock()
	}
}

// did is for how long the load was busy between two Unix times, by its log, and how many bytes it copied.
func (l *load) did(from, to float64) (busy, bytes float64) {
	if l.child == nil {
		return l.duty * (to - from), 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.bursts {
		if part := max(0, min(to, b.at+b.length)-max(from, b.at)); part > 0 {
			busy, bytes = busy+part, bytes+b.bytes*part/b.length
		}
	}
	return busy, bytes
}

// exited is an error if the load ended by itself.
func (l *load) exited() error {
	if l.child == nil {
		return nil
	}
	return l.child.Exited()
}

// stop ends the load. One that exited before, or by the signal, is fine.
func (l *load) stop() {
	if l != nil && l.child != nil {
		_ = l.child.Stop()
	}
}
