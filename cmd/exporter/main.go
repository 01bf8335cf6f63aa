// Command gpu-exporter is the node agent: it polls the NVIDIA driver, queries the kubelet for allocations, and serves
// the result to Prometheus.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/common/version"

	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/internal/dropin"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// restartedEnv is set, to the time, in a process that re-executed itself after a driver upgrade.
const restartedEnv = "GPU_EXPORTER_RESTARTED"

// gcPercent is the GC target. The live heap is a few megabytes and garbage accumulates slowly: half of Go's default
// costs no measurable CPU and saves memory.
const gcPercent = 50

// startGCPercent is the GC target until the first collection, which it delays to a heap of 8 MB: a start needs 6 MB up to the
// first page, and took ten collections to collect little of it.
const startGCPercent = 200

func main() {
	if os.Getenv("GOMAXPROCS") == "" {
		// Driver calls take threads, not these. With an idle one the runtime looks after each long call for 10 ms, first every
		// 20 µs (runtime.retake), and every processor of a large node takes part in garbage collection.
		runtime.GOMAXPROCS(1)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(startGCPercent)
		runtime.AddCleanup(new([64]byte), func(percent int) { debug.SetGCPercent(percent) }, gcPercent)
	}
	args, err := dropin.Args(os.Args, os.Environ())
	if err != nil {
		fmt.Fprintf(os.Stderr, "gpu-exporter: %v\n", err)
		os.Exit(exitUsage)
	}
	code, again := exporterMain(context.Background(), args, os.Stdout, os.Stderr)
	if again {
		code = replace(os.Stderr)
	}
	os.Exit(code)
}

// replace re-executes this program: only a new process maps the driver's new library. It returns only if that fails.
func replace(stderr io.Writer) int {
	self, err := os.Executable()
	if err == nil {
		env := append(os.Environ(), restartedEnv+"="+time.Now().UTC().Format(time.RFC3339))
		err = syscall.Exec(self, os.Args, env)
	}
	fmt.Fprintf(stderr, "gpu-exporter: cannot re-execute for the new driver: %v\n", err)
	return exitMismatch
}

// assemble is the exporter for a command that looks at it.
func assemble(args []string, stdout, stderr io.Writer) (*rooms.Program, int, error) {
	c, err := parse(append([]string{"--log.level=error"}, args...), stdout, stderr)
	if err != nil {
		return nil, exitUsage, err
	}
	e, err := newExporter(c, time.Now, func(error) {}, hooks{})
	if err != nil {
		return nil, exitBroken, err
	}
	return e.program(c), exitOK, nil
}

// exporterMain runs the exporter until ctx ends or a signal arrives. It returns the exit code, and whether the process
// should re-execute itself.
func exporterMain(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, again bool) {
	for _, c := range commands() {
		if len(args) > 0 && args[0] == c.Name {
			return c.Run(ctx, assemble, args[1:], stdout, stderr), false
		}
	}
	fail := func(err error) { fmt.Fprintf(stderr, "gpu-exporter: %v\n", err) }
	// Without a reader of its log it goes on: systemd does not restart what SIGPIPE ended.
	signal.Ignore(syscall.SIGPIPE)
	c, err := parse(args, stdout, stderr)
	switch {
	case errors.Is(err, cmdline.ErrPrinted):
		return exitOK, false
	case err != nil:
		fail(err)
		return exitUsage, false
	}
	listeners, err := web.Listen(c.Web)
	if err != nil {
		fail(err)
		return exitUsage, false
	}
	restart := make(chan error, 1)
	e, err := newExporter(c, time.Now, func(reason error) {
		select {
		case restart <- reason:
		default:
		}
	}, hooks{})
	if err != nil {
		fail(err)
		return exitBroken, false
	}
	var sources []string
	for _, s := range e.sources() {
		sources = append(sources, s.Name)
	}
	c.Logger.Info("starting gpu-exporter", "version", cmp.Or(version.Version, "unknown"), "revision", version.GetRevision(),
		"go", version.GoVersion, "node", c.node, "metrics", c.metrics.Size, "sources", strings.Join(sources, ","))

	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	running, end := context.WithCancel(ctx)
	defer end()
	var group run.Group
	group.Add(func() error {
		select {
		case <-running.Done():
			return nil
		case reason := <-restart:
			return reason
		}
	}, func(error) { end() })
	for _, loop := range e.loops() {
		group.Add(func() error { prompt(running, loop); return nil }, func(error) { end() })
	}
	server := e.server(c)
	group.Add(func() error { return web.Serve(server, listeners, c.Web, c.Logger) }, func(error) { web.Shutdown(server) })

	switch err := group.Run(); {
	case errors.Is(err, gpu.ErrNoLibrary):
		fail(errors.New("the NVIDIA kernel module was loaded after the exporter started, and the NVML library is still missing: " +
			"exiting, so that the container is recreated with the driver's files"))
		return exitNoLibrary, false
	case errors.Is(err, gpu.ErrVersionMismatch):
		if since, restarted := os.LookupEnv(restartedEnv); restarted {
			fail(fmt.Errorf("NVML library and kernel module still differ after the re-execution at %s: restart the "+
				"container, or reboot to finish the driver upgrade", since))
			return exitMismatch, false
		}
		c.Logger.Warn("driver upgraded; re-executing to load the new NVML library")
		return exitMismatch, true
	case err != nil:
		fail(err)
		return exitBroken, false
	}
	return exitOK, false
}
