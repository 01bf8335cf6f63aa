// Package replay fills a VictoriaMetrics with a history and evaluates the shipped rules over it with vmalert.
package replay

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
)

// Rules evaluates the recording and alerting rules from one time to another on the database at url, once a minute, with
// the program vmalert; rule files are written to dir. What was just written cannot be read for some seconds, so rules
// that build on each other are evaluated level by level, with a flush after each if that is not nil.
func Rules(ctx context.Context, vmalert, url, dir string, from, to time.Time, flush func() error) error {
	config := alerts.Default()
	records, err := config.RecordingRules()
	if err != nil {
		return err
	}
	rules, err := config.AlertRules()
	if err != nil {
		return err
	}
	for i, level := range append(alerts.Levels(records), rules) {
		file := filepath.Join(dir, fmt.Sprintf("replay-%d.yaml", i))
		if err := os.WriteFile(file, []byte(alerts.RulesFile(level)), 0o600); err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, vmalert, "-rule="+file, "-datasource.url="+url, "-remoteWrite.url="+url,
			"-remoteRead.url="+url, "-replay.timeFrom="+from.UTC().Format(time.RFC3339),
			"-replay.timeTo="+to.UTC().Format(time.RFC3339), "-evaluationInterval=1m", "-replay.rulesDelay=10ms",
			"-replay.disableProgressBar", "-httpListenAddr=127.0.0.1:0", "-loggerLevel=ERROR").CombinedOutput()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return fmt.Errorf("replay %s: %w: %s", file, err, lines[len(lines)-1])
		}
		if flush == nil {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

// Import sends what write writes, the text format with timestamps, to the VictoriaMetrics at url, and makes it readable.
func Import(ctx context.Context, url string, write func(io.Writer) error) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(write(w)) }()
	defer r.Close()
	for _, request := range []struct {
		path string
		body io.Reader
	}{{"/api/v1/import/prometheus", r}, {"/internal/force_flush", nil}} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+request.path, request.body)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		body, _ := io.ReadAll(io.LimitReader(res.Body, 200))
		res.Body.Close()
		if res.StatusCode/100 != 2 {
			return fmt.Errorf("%s: %s: %s", request.path, res.Status, body)
		}
	}
	return nil
}
