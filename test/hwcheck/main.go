// Command hwcheck is measure hwcheck alone, for the bundle that checks a machine on which nothing but the driver is.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gpu-exporter/gpu-exporter/test/measure/hwcheck"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	code := 0
	if args := os.Args[1:]; len(args) > 0 && args[0] == "probe" {
		if err := hwcheck.RunProbe(args[1:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "hwcheck:", err)
			code = 1
		}
	} else {
		code = hwcheck.Run(ctx, args, os.Stdout, os.Stderr)
	}
	stop()
	os.Exit(code)
}
