package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed load.cu
var cudaSource []byte

//go:embed load.py
var torchSource []byte

// load is work of a known amount on one GPU.
type load struct {
	// how names the load for the report.
	how string
	// known: the part of the time for which it keeps the GPU busy is known; else it is only work.
	known bool
	// full: while it works it keeps every multiprocessor busy.
	full bool
	// duty is what was asked for.
	duty float64

	cmd   *exec.Cmd // nil: somebody else runs it
	done  chan struct{}
	ended error // how it ended; read after done
	began chan struct{}
	said  tail

	mu     sync.Mutex
	bursts []burst // guarded by mu
}

// burst is one stretch of work, as the load itself tells it.
type burst struct{ at, length float64 }

// loadPeriod is the time from one burst of a load to the next.
const loadPeriod = time.Second

// kinds of --load
const (
	loadAuto   = "auto"
	loadNvcc   = "nvcc"
	loadTorch  = "torch"
	loadFfmpeg = "ffmpeg"
	loadHand   = "hand"
	loadNone   = "none"
)

func loadKinds() []string {
	return []string{loadAuto, loadNvcc, loadTorch, loadFfmpeg, loadHand, loadNone}
}

// byHand is what to do where no load can be started.
const byHand = "start a load that keeps the GPU busy for a known part of each second, and run again with --load=hand --duty=<that part>"

// startLoad starts the best load that this machine can run on the GPU, for length; stop ends it earlier. The
// error names what each kind lacks.
func startLoad(ctx context.Context, kind string, c dev, duty float64, length time.Duration, dir string) (*load, error) {
	if kind == loadHand {
		began := make(chan struct{})
		close(began)
		return &load{how: fmt.Sprintf("a load by hand, said to be %g", duty), known: true, duty: duty, began: began}, nil
	}
	arguments := []string{format(duty), format(loadPeriod.Seconds()), format(length.Seconds())}
	var lacks []error
	for _, try := range []struct {
		kind    string
		prepare func() (*load, error)
	}{
		{loadNvcc, func() (*load, error) {
			program, err := buildCUDA(ctx, c, dir)
			if err != nil {
				return nil, err
			}
			return &load{how: "a CUDA kernel built with nvcc", known: true, full: true, cmd: exec.CommandContext(ctx, program, arguments...)}, nil
		}},
		{loadTorch, func() (*load, error) {
			python, err := findTorch(ctx)
			if err != nil {
				return nil, err
			}
			return &load{how: "matrix products of PyTorch", known: true, cmd: exec.CommandContext(ctx, python, append([]string{"-c", string(torchSource)}, arguments...)...)}, nil
		}},
		{loadFfmpeg, func() (*load, error) {
			path, err := exec.LookPath("ffmpeg")
			if err != nil {
				return nil, errors.New("there is no ffmpeg")
			}
			return &load{how: "ffmpeg encoding with NVENC", cmd: exec.CommandContext(ctx, path, "-hide_banner", "-nostdin", "-loglevel", "error", "-f", "lavfi",
				"-i", "testsrc2=size=1920x1080:rate=60", "-t", format(length.Seconds()), "-c:v", "h264_nvenc", "-f", "null", "-")}, nil
		}},
	} {
		if kind != loadAuto && kind != try.kind {
			continue
		}
		l, err := try.prepare()
		if err == nil {
			l.duty = duty
			if err = l.start(c); err == nil {
				return l, nil
			}
		}
		lacks = append(lacks, fmt.Errorf("%s: %w", try.kind, err))
	}
	lines := make([]string, len(lacks))
	for i, err := range lacks {
		lines[i] = err.Error()
	}
	return nil, errors.New(cmp.Or(strings.Join(lines, "; "), "--load="+kind))
}

// start starts the load on the GPU and waits until it works.
func (l *load) start(c dev) error {
	l.cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+c["uuid"])
	l.cmd.WaitDelay = 5 * time.Second
	l.cmd.Stderr = &l.said
	l.began, l.done = make(chan struct{}), make(chan struct{})
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := l.cmd.Start(); err != nil {
		return err
	}
	go func() {
		l.listen(bufio.NewScanner(out))
		l.ended = l.cmd.Wait()
		close(l.done)
	}()
	begin, wait := l.began, 60*time.Second // a first context takes seconds, longer where the driver was asleep
	var still <-chan time.Time
	if !l.known {
		begin, still = nil, time.After(3*time.Second) // it says nothing; what lives this long works
	}
	select {
	case <-begin:
		return nil
	case <-still:
		return nil
	case <-l.done:
		return fmt.Errorf("it ended at once: %w: %s", errors.Join(l.ended), l.said.last())
	case <-time.After(wait):
		return errors.Join(fmt.Errorf("no work within %v", wait), l.stop())
	}
}

// listen collects the bursts that the load tells of.
func (l *load) listen(scan *bufio.Scanner) {
	for scan.Scan() {
		at, length, ok := strings.Cut(scan.Text(), " ")
		a, err1 := strconv.ParseFloat(at, 64)
		n, err2 := strconv.ParseFloat(length, 64)
		if !ok || err1 != nil || err2 != nil {
			continue
		}
		l.mu.Lock()
		l.bursts = append(l.bursts, burst{a, n})
		first := len(l.bursts) == 1
		l.mu.Unlock()
		if first {
			close(l.began)
		}
	}
}

// busy is the part of the time between two moments for which the load worked, by its own account; by hand,
// what was said.
func (l *load) busy(from, to float64) float64 {
	if l.cmd == nil {
		return l.duty
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0.0
	for _, b := range l.bursts {
		total += max(0, min(to, b.at+b.length)-max(from, b.at))
	}
	return total / (to - from)
}

// alive reports an error if the load has ended.
func (l *load) alive() error {
	if l.cmd == nil {
		return nil
	}
	select {
	case <-l.done:
		return fmt.Errorf("the load ended too early: %w: %s", errors.Join(l.ended), l.said.last())
	default:
		return nil
	}
}

// stop ends the load, and waits for its end.
func (l *load) stop() error {
	if l.cmd == nil {
		return nil
	}
	select {
	case <-l.done:
		return nil // it ended by itself, which alive tells
	default:
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-l.done:
	case <-time.After(10 * time.Second):
		if err := l.cmd.Process.Kill(); err != nil {
			return err
		}
		<-l.done
	}
	return nil
}

// buildCUDA compiles the load for the GPU: first for its own architecture, else for what nvcc takes as a rule.
func buildCUDA(ctx context.Context, c dev, dir string) (string, error) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		const usual = "/usr/local/cuda/bin/nvcc"
		if _, err := os.Stat(usual); err != nil {
			return "", errors.New("there is no nvcc")
		}
		nvcc = usual
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	source, program := filepath.Join(dir, "load.cu"), filepath.Join(dir, "load")
	if err := os.WriteFile(source, cudaSource, 0o644); err != nil {
		return "", err
	}
	arch := "-arch=sm_" + strings.ReplaceAll(c["compute_cap"], ".", "")
	var said []byte
	for _, flags := range [][]string{{arch}, nil} {
		cmd := exec.CommandContext(ctx, nvcc, append(flags, "-O2", "-o", program, source)...)
		if said, err = cmd.CombinedOutput(); err == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("%w: %s", err, firstLine(string(bytes.TrimSpace(said))))
}

// findTorch returns a python3 that has PyTorch with a GPU.
func findTorch(ctx context.Context) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", errors.New("there is no python3")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 'PyTorch sees no GPU')")
	var said tail
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said.last())
	}
	return python, nil
}
