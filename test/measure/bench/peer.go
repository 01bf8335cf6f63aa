package bench

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/process"
)

// What serves pages beside the exporter, each in a process of its own, whose processor time is measured.
const (
	fileServer   = "file" // the same bytes from memory
	otherProgram = "nvidia_gpu_exporter"
)

// Serve is the command that runs the first: DIRECTORY ADDRESS, where the directory has a page of the exporter for each format.
func Serve(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: measure serve DIRECTORY ADDRESS")
	}
	pages := map[string][]byte{}
	for _, f := range formats {
		page, err := os.ReadFile(filepath.Join(args[0], f.name))
		if err != nil {
			return err
		}
		pages[f.encoding] = page
	}
	server := http.Server{Addr: args[1], ReadHeaderTimeout: time.Minute}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encoding := r.Header.Get("Accept-Encoding")
		if encoding == prom.encoding {
			w.Header().Set("Content-Encoding", encoding)
		}
		_, _ = w.Write(pages[encoding])
	})
	return server.ListenAndServe()
}

// peers starts what is measured beside an exporter, which serves the pages to repeat.
func (l lab) peers(e *exporter) (all map[string]*exporter, stop func(), err error) {
	all = map[string]*exporter{}
	stop = func() {
		for _, p := range all {
			_ = p.Stop()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	for _, f := range formats {
		page, err := f.fetch(e.url)
		if err == nil {
			err = os.WriteFile(filepath.Join(l.dir, f.name), []byte(page), 0o644)
		}
		if err != nil {
			return nil, stop, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, stop, err
	}
	commands := map[string][]string{fileServer: {self, "serve", l.dir}}
	if l.beside != "" {
		commands[otherProgram] = []string{l.beside, "--collect.backend=demo", "--log.level=error", "--web.listen-address"}
	}
	for name, command := range commands {
		address, err := standin.FreeAddress()
		if err != nil {
			return nil, stop, err
		}
		child, err := testkit.Start(exec.Command(command[0], append(command[1:], address)...))
		if err != nil {
			return nil, stop, err
		}
		p := &exporter{Child: child, url: "http://" + address + "/metrics", pid: child.PID()}
		all[name] = p
		if err := child.Within(l.ctx, 20*time.Second, func() error { _, err := plain.fetch(p.url); return err }); err != nil {
			return nil, stop, fmt.Errorf("%s serves no page: %w", name, err)
		}
	}
	return all, stop, nil
}

// timed is one scrape: the page, how long it took, and the processor time of the server until it was read.
func (e *exporter) timed(f format) (page string, took, cpu time.Duration, err error) {
	before, err := process.Precise(e.pid)
	if err != nil {
		return "", 0, 0, err
	}
	start := time.Now()
	page, err = f.fetch(e.url)
	took = time.Since(start)
	if err != nil {
		return "", 0, 0, err
	}
	after, err := process.Precise(e.pid)
	return page, took, after - before, err
}
