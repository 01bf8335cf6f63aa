package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/process"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// build makes the programs that a run starts, from this repository and from tools/.
func build(ctx context.Context, root string, database bool) error {
	all := []programs.Program{programs.Standin, programs.Prometheus}
	if database {
		all = append(all, programs.VictoriaMetrics, programs.Report)
	}
	for _, p := range all {
		if err := programs.Build(ctx, root, p); err != nil {
			return err
		}
	}
	return nil
}

// program is a server that runs until stop is called; what it says goes to a file.
type program struct {
	name, url string
	// path is where it answers when it is ready.
	path string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// launch starts a program and waits until it answers at path.
func launch(ctx context.Context, dir, name, address, path string, args ...string) (*program, error) {
	p := &program{name: name, url: "http://" + address, path: path, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	file, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, file, file
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if get(ctx, p.url+path) == nil {
			return p, nil
		}
		select {
		case <-p.done:
			return nil, p.died()
		case <-ctx.Done():
			p.stop()
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	p.stop()
	return nil, fmt.Errorf("%s does not answer at %s%s", name, p.url, path)
}

// again stops a program and starts it anew, at the same address and with the same data.
func (p *program) again(ctx context.Context) (*program, error) {
	p.stop()
	return launch(ctx, p.cmd.Dir, p.name, strings.TrimPrefix(p.url, "http://"), p.path, p.cmd.Args...)
}

// died says how a program ended, and what it said last.
func (p *program) died() error {
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s ended (%v) and said: %s", p.name, p.cmd.ProcessState, strings.Join(strings.Fields(string(text[max(0, len(text)-1000):])), " "))
}

func (p *program) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *program) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func get(ctx context.Context, url string) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

// use is what a process has taken of the machine.
type use = process.Usage

func (p *program) use() (use, error) { return process.Of(p.cmd.Process.Pid) }

// diskBytes is the size of a folder.
func diskBytes(dir string) int64 {
	var total int64
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil // files come and go while a server runs
	})
	return total
}
