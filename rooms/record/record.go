// Package record is the part of the exporter that writes a journal of driver calls for a bug report.
package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"

	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// recordCommand is the first argument that selects recording instead of exporting.
const recordCommand = "record"

// New is this package as a part of the exporter: a command.
func New(*kingpin.Application) rooms.Part {
	return rooms.Part{Commands: []rooms.Command{{Name: recordCommand, Help: "a journal of the driver's responses, for a bug report",
		Run: func(ctx context.Context, _ rooms.Assemble, args []string, stdout, stderr io.Writer) int {
			return recordMain(ctx, args, stdout, stderr)
		}}}}
}

// recordConfig are the flags of a recording.
type recordConfig struct {
	output   string // -: standard output
	duration time.Duration
	library  string
	sysfs    string
}

// The bounds of how long a recording may take.
const (
	shortestRecording = 2 * time.Second
	longestRecording  = 10 * time.Minute
)

// parseRecord reads the flags of a recording. Its error is one line for the person who typed them.
func parseRecord(args []string, stdout, stderr io.Writer) (*recordConfig, error) {
	var c recordConfig
	app := cmdline.New(&cmdline.About{Name: "gpu-exporter " + recordCommand,
		Text: "Writes a journal of the calls to this node's NVIDIA driver, for a bug report: " +
			"arguments, return codes, values and durations as JSON lines. UUIDs, serial numbers and process IDs are " +
			"masked; the first line " +
			"describes the content. Nothing is changed, and nothing is sent anywhere.",
		ExitCodes: [][2]string{{"0", "the journal was written"}, {"1", "it could not be written, or the driver not be called"},
			{"2", "invalid flag: nothing was started"}}}, stdout, stderr)
	app.Flag("output", "File to write, which must not exist; - for standard output.").Required().StringVar(&c.output)
	app.Flag("duration", "How long to observe the GPUs.").Default("10s").DurationVar(&c.duration)
	// The variables of the exporter's own flags, so that both find the same driver.
	app.Flag("nvml.library", "Path of the NVML library. Default: the system's libnvidia-ml.so.1.").Envar(
		"GPU_EXPORTER_NVML_LIBRARY").StringVar(&c.library)
	app.Flag("path.sysfs", "Mount point of the host's /sys.").Envar("GPU_EXPORTER_PATH_SYSFS").Default(
		"/sys").StringVar(&c.sysfs)

	err := app.Parse(args)
	switch {
	case err != nil:
		return nil, err
	case c.output == "":
		return nil, errors.New("--output must be a file, or - for standard output")
	case c.duration < shortestRecording || c.duration > longestRecording:
		return nil, fmt.Errorf("--duration must be from %v to %v, got %v", shortestRecording, longestRecording, c.duration)
	}
	if _, err := os.Lstat(c.output); err == nil && c.output != "-" {
		return nil, fmt.Errorf("--output: %s exists; choose another file", c.output)
	}
	if _, err := os.Stat(filepath.Dir(c.output)); err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	return &c, nil
}

// recordMain makes a recording and returns the exit code. Everything but the recording itself goes to stderr.
func recordMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fail := func(err error) { fmt.Fprintf(stderr, "gpu-exporter %s: %v\n", recordCommand, err) }
	c, err := parseRecord(args, stdout, stderr)
	switch {
	case errors.Is(err, cmdline.ErrPrinted):
		return rooms.ExitOK
	case err != nil:
		fail(err)
		return rooms.ExitUsage
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	text, err := recordUntil(ctx, c, stderr)
	if err == nil {
		err = writeRecording(c.output, text, stdout)
	}
	if err != nil {
		fail(err)
		return rooms.ExitBroken
	}
	if c.output != "-" {
		fmt.Fprintf(stderr, "gpu-exporter %s: wrote %s, %d bytes; its first line describes the content\n",
			recordCommand, c.output, len(text))
	}
	return rooms.ExitOK
}

// hungAfter is how long an interrupted recording waits for a driver call that does not return.
const hungAfter = time.Second

// recordUntil records, and returns soon after ctx ends even if a driver call hangs.
func recordUntil(ctx context.Context, c *recordConfig, stderr io.Writer) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := recordNode(ctx, c, stderr)
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(hungAfter)
	defer timer.Stop()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, errors.New("interrupted, nothing was written")
		}
		return r.text, nil
	case <-timer.C:
		return nil, errors.New("interrupted while a driver call hangs, nothing was written")
	}
}

// recordNode opens the driver, records, and closes it.
func recordNode(ctx context.Context, c *recordConfig, stderr io.Writer) ([]byte, error) {
	library := nvml.New(nvml.Options{Path: c.library, SysfsRoot: c.sysfs, Journal: journal.NewWriter(time.Now, nil)})
	session, err := library.Open()
	if err != nil {
		return nil, err
	}
	text, err := session.Record(ctx, nvml.RecordOptions{Duration: c.duration,
		Date:    time.Now().UTC().Format(time.RFC3339),
		Program: fmt.Sprintf("gpu-exporter %s (%s)", cmp.Or(version.Version, "unknown"), version.GetRevision()),
		Observing: func() {
			fmt.Fprintf(stderr, "gpu-exporter %s: observing the GPUs for %v\n", recordCommand, c.duration)
		}})
	if closeErr := session.Close(); err == nil && closeErr != nil {
		err = closeErr
	}
	return text, err
}

// writeRecording writes a file as a whole or not at all, and never over another.
func writeRecording(output string, text []byte, stdout io.Writer) (err error) {
	if output == "-" {
		_, err = stdout.Write(text)
	} else if f, openErr := os.CreateTemp(filepath.Dir(output), "."+filepath.Base(output)+".*"); openErr != nil {
		err = openErr
	} else {
		_, err = f.Write(text)
		if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
			// A link fails where the name is taken. Where the file system has none, that was checked at the start.
			if err = os.Link(f.Name(), output); err != nil && !errors.Is(err, fs.ErrExist) {
				err = os.Rename(f.Name(), output)
			}
		}
		_ = os.Remove(f.Name()) // not there after a rename
	}
	if err != nil {
		return fmt.Errorf("write the recording: %w", err)
	}
	return nil
}
