// Package replay evaluates the shipped rules over a past period with vmalert.
package replay

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/alerts"
)

// Rules evaluates the recording and alerting rules from one time to another on the database at url, once a minute, with
// the
// program vmalert; rule files are written to dir. What was just written cannot be read for some seconds, so rules that
// build on each other are evaluated level by level, with a flush after each if that is not nil.
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
