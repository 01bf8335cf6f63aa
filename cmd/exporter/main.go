// Command gpu-exporter is the node agent: it polls the NVIDIA driver, asks the kubelet who holds the GPUs,
// and serves the result to Prometheus.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/oklog/run"

	"github.com/gpu-exporter/gpu-exporter/internal/web"
)

// Exit codes; see docs/ARCHITECTURE.md.
const (
	exitOK       = 0
	exitBroken   = 1
	exitUsage    = 2
	exitMismatch = 3
)

// restartedEnv marks a process that replaced itself because the driver was replaced: the moment of it.
const restartedEnv = "GPU_EXPORTER_RESTARTED"

// gcPercent is how much garbage there may be in parts of what is in use before it is collected. What is in use is a
// few megabytes and garbage comes slowly: half of Go's usual allowance costs no time that could be measured, and
// a node has the memory for its pods.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	code, again := exporterMain(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	if again {
		code = replace(os.Stderr)
	}
	os.Exit(code)
}

// replace executes this program anew in place of itself: only a new process maps the driver's new library.
// It returns only if that fails.
func replace(stderr io.Writer) int {
	self, err := os.Executable()
	if err == nil {
		env := append(os.Environ(), restartedEnv+"="+time.Now().UTC().Format(time.RFC3339))
		err = syscall.Exec(self, os.Args, env)
	}
	fmt.Fprintf(stderr, "gpu-exporter: cannot start anew for the new driver: %v\n", err)
	return exitMismatch
}

// errReplaced says that library and kernel module differ.
var errReplaced = errors.New("the driver was replaced")

// exporterMain runs the exporter until ctx ends or a signal comes. It returns the exit code, and whether the
// process should execute itself anew.
func exporterMain(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, again bool) {
	if len(args) > 0 && args[0] == recordCommand {
		return recordMain(ctx, args[1:], stdout, stderr), false
	}
	if len(args) > 0 && args[0] == doctorCommand {
		return doctorMain(ctx, args[1:], stdout, stderr), false
	}
	fail := func(err error) { fmt.Fprintf(stderr, "gpu-exporter: %v\n", err) }
	c, err := parse(args, stdout, stderr)
	switch {
	case errors.As(err, new(errHelp)):
		return exitOK, false
	case err != nil:
		fail(err)
		return exitUsage, false
	}
	listeners, err := web.Listen(c.web)
	if err != nil {
		fail(err)
		return exitUsage, false
	}
	replaced := make(chan struct{}, 1)
	e, err := newExporter(c, time.Now, func() {
		select {
		case replaced <- struct{}{}:
		default:
		}
	}, seam{})
	if err != nil {
		fail(err)
		return exitBroken, false
	}

	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var group run.Group
	actor := func(do func(context.Context) error) {
		actorCtx, cancel := context.WithCancel(ctx)
		group.Add(func() error { return do(actorCtx) }, func(error) { cancel() })
	}
	actor(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-replaced:
			return errReplaced
		}
	})
	for _, do := range e.actors() {
		actor(do)
	}
	server := e.server(c)
	group.Add(func() error { return web.Serve(server, listeners, c.web, c.logger) }, func(error) { web.Shutdown(server) })

	switch err := group.Run(); {
	case errors.Is(err, errReplaced):
		if since, restarted := os.LookupEnv(restartedEnv); restarted {
			fail(fmt.Errorf("library and kernel module of the driver differ, also after starting anew at %s: restart the container, or reboot to finish the driver's upgrade", since))
			return exitMismatch, false
		}
		c.logger.Warn("the driver was replaced: starting anew to load its new library")
		return exitMismatch, true
	case err != nil && !errors.Is(err, context.Canceled):
		fail(err)
		return exitBroken, false
	}
	return exitOK, false
}
