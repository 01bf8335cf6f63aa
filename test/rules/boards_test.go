package rules_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

var exposed = regexp.MustCompile(`(?m)^([a-z_]+(?:\{.*\})?) (\S+)$`)

// raised are the alerts that a recorded board raises while nothing about it changes for an hour and a half, with the reason.
var raised = map[string]map[string]string{
	"demo": {"GPUContainerUsesMoreThanRequested": "a notebook uses 22 GiB, its quarter of the GPU is 20"},
}

// The boards whose expositions are kept, real GPUs most of them, raise no alert while they are in good health.
func TestHealthyBoardsAreQuiet(t *testing.T) {
	t.Parallel()
	records, err := everything().RecordingRules()
	must.OK(t, err)
	rules, err := everything().AlertRules()
	must.OK(t, err)
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "golden", "*.prom"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d boards, %v", len(files), err)
	}
	dir := t.TempDir()
	var paths []string
	for _, file := range files {
		text := must.Read(t, file)
		var b strings.Builder
		fmt.Fprintf(&b, "- interval: 5m\n  input_series:\n  - series: 'up{job=\"gpu-exporter\",instance=\"node-1\"}'\n    values: "+
			"'1x20'\n  - series: 'kube_node_status_condition{node=\"node-1\",condition=\"Ready\",status=\"true\"}'\n"+
			"    values: '1x20'\n")
		for _, m := range exposed.FindAllStringSubmatch(text, -1) {
			fmt.Fprintf(&b, "  - series: '%s'\n    values: '%sx20'\n", strings.ReplaceAll(m[1], "'", "''"), m[2])
		}
		b.WriteString("  promql_expr_test:\n  - eval_time: 90m\n    expr: 'ALERTS{alertstate=\"firing\"}'\n    exp_samples: []\n")
		paths = append(paths, write(t, dir, filepath.Base(file), append(slices.Clone(records), rules...), 5*time.Minute, b.String()))
	}
	got := regexp.MustCompile(`alertname="([A-Za-z]+)"`)
	for i, said := range run(t, paths) {
		board := strings.TrimSuffix(filepath.Base(files[i]), ".prom")
		seen := map[string]bool{}
		for _, m := range got.FindAllStringSubmatch(said, -1) {
			seen[m[1]] = true
			// The load of these boards belongs to no pod.
			if raised[board][m[1]] == "" && m[1] != "GPUMemoryUsedUnallocated" {
				t.Errorf("%s raises %s", board, m[1])
			}
		}
		for name := range raised[board] {
			if !seen[name] {
				t.Errorf("%s is excused for %s, and does not raise it", board, name)
			}
		}
		if said != "" && len(seen) == 0 {
			t.Errorf("%s: %s", board, said)
		}
	}
}
