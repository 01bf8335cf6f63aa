package hwcheck

import (
	"bufio"
	"bytes"
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

	"github.com/gpu-exporter/gpu-exporter/test/process"
)

//go:embed load.cu
var cudaSource []byte

//go:embed load.py
var torchSource string

// loadPeriod is the time from one burst of the load to the next.
const loadPeriod = time.Second

// The values of --load: the best that this machine can run, one of the programs, a load that runs already, or none.
const (
	loadAuto   = "auto"
	loadNvcc   = "nvcc"
	loadTorch  = "torch"
	loadFfmpeg = "ffmpeg"
	loadManual = "manual"
	loadNone   = "none"
)

func loadKinds() []string {
	return []string{loadAuto, loadNvcc, loadTorch, loadFfmpeg, loadManual, loadNone}
}

// manualHint is what to do where no load can be started.
const manualHint = "start a load that keeps the GPU busy for a known share of each second, then run with " +
	"--load=manual --duty=SHARE"

// program is what keeps a GPU busy.
type program struct {
	name string
	// known: the share of time for which the GPU is busy is known.
	known bool
	// full: during a burst every multiprocessor is busy.
	full bool
}

// load keeps one GPU busy.
type load struct {
	program
	duty float64
	// disturbed: another process kept the GPU busy before, so that its own share is unknown.
	disturbed bool

	child   *process.Child // nil: --load=manual
	working chan struct{}  // closed at the first burst

	mu     sync.Mutex
	bursts []burst // guarded by mu
}

// burst is a continuous period of work as the load logs it, in Unix time and seconds.
type burst struct{ at, length float64 }

// startLoad starts the first load of the kind that runs on the GPU; the error names what each lacks.
func startLoad(ctx context.Context, kind string, d device, duty float64, length time.Duration,
	dir string) (*load, error) {
	if kind == loadManual {
		return &load{
			program: program{fmt.Sprintf("a manual load with a duty of %g", duty), true, false},
			duty:    duty,
		}, nil
	}
	arguments := []string{format(duty), format(loadPeriod.Seconds()), format(length.Seconds())}
	var errs []error
	for _, try := range []struct {
		kind    string
		program program
		prepare func() (args []string, err error)
	}{
		{loadNvcc, program{"a CUDA kernel built with nvcc", true, true}, func() ([]string, error) {
			program, err := buildCUDA(ctx, d, dir)
			return append([]string{program}, arguments...), err
		}},
		{loadTorch, program{"matrix products of PyTorch", true, false}, func() ([]string, error) {
			const probe = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 'PyTorch finds no GPU')"
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			if out, err := exec.CommandContext(ctx, "python3", "-c", probe).CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%w: %s", err, firstLine(string(out)))
			}
			return append([]string{"python3", "-c", torchSource}, arguments...), nil
		}},
		{loadFfmpeg, program{"ffmpeg encoding with NVENC", false, false}, func() ([]string, error) {
			_, err := exec.LookPath("ffmpeg")
			return append(strings.Fields("ffmpeg -hide_banner -nostdin -loglevel error -f lavfi -i "+
				"testsrc2=size=1920x1080:rate=60 -t"),
				format(length.Seconds()), "-c:v", "h264_nvenc", "-f", "null", "-"), err
		}},
	} {
		if kind != loadAuto && kind != try.kind {
			continue
		}
		args, err := try.prepare()
		if err == nil {
			l := &load{program: try.program, duty: duty}
			if err = l.start(exec.Command(args[0], args[1:]...), d["uuid"]); err == nil {
				return l, nil
			}
		}
		errs = append(errs, fmt.Errorf("%s: %w", try.kind, err))
	}
	return nil, errors.Join(errs...)
}

// start starts the program on the GPU and waits for its first burst.
func (l *load) start(cmd *exec.Cmd, uuid string) error {
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+uuid)
	l.working = make(chan struct{})
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = w
	l.child, err = process.Start(cmd)
	if err = errors.Join(err, w.Close()); err != nil {
		return errors.Join(err, r.Close())
	}
	go func() {
		defer r.Close()
		l.log(bufio.NewScanner(r))
	}()
	timeout := time.Minute // a first context takes seconds, longer on a GPU without persistence mode
	if !l.known {
		timeout = 3 * time.Second // it logs nothing: what runs for this long works
	}
	select {
	case <-l.working:
		return nil
	case <-l.child.Done():
		return l.child.Exited()
	case <-time.After(timeout):
		if !l.known {
			return nil
		}
		return errors.Join(fmt.Errorf("no work within %v", timeout), l.child.Stop())
	}
}

// log collects the bursts that the load prints.
func (l *load) log(lines *bufio.Scanner) {
	for lines.Scan() {
		var b burst
		if _, err := fmt.Sscan(lines.Text(), &b.at, &b.length); err != nil {
			continue
		}
		l.mu.Lock()
		l.bursts = append(l.bursts, b)
		first := len(l.bursts) == 1
		l.mu.Unlock()
		if first {
			close(l.working)
		}
	}
}

// busy is the share of the time between two Unix times for which the load worked, by its log.
func (l *load) busy(from, to float64) float64 {
	if l.child == nil {
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

// exited is an error if the load ended by itself.
func (l *load) exited() error {
	if l.child == nil {
		return nil
	}
	return l.child.Exited()
}

// stop ends the load. One that exited before, or by the signal, is fine.
func (l *load) stop() {
	if l.child != nil {
		_ = l.child.Stop()
	}
}

// buildCUDA compiles the load: for the GPU's own architecture, else for nvcc's default.
func buildCUDA(ctx context.Context, d device, dir string) (string, error) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		nvcc = "/usr/local/cuda/bin/nvcc"
		if _, err := os.Stat(nvcc); err != nil {
			return "", errors.New("nvcc is not installed")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	source, program := filepath.Join(dir, "load.cu"), filepath.Join(dir, "load")
	if err := os.WriteFile(source, cudaSource, 0o644); err != nil {
		return "", err
	}
	arch := "-arch=sm_" + strings.ReplaceAll(d["compute_cap"], ".", "")
	var out []byte
	for _, flags := range [][]string{{arch}, nil} {
		if out, err = exec.CommandContext(ctx, nvcc,
			append(flags, "-O2", "-o", program, source)...).CombinedOutput(); err == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("%w: %s", err, firstLine(string(bytes.TrimSpace(out))))
}
