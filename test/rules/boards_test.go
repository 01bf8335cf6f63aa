package rules_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var exposed = regexp.MustCompile(`(?m)^([a-z_]+(?:\{.*\})?) (\S+)$`)

// raised are the alerts that a recorded board raises while nothing about it changes for an hour and a half, with the reason.
var raised = map[string]map[string]string{
	"demo": {"GPUContainerUsesMoreThanRequested": "a notebook uses 22 GiB, its quarter of the GPU is 20"},
}

// The boards whose expositions are kept, real GPUs most of them, raise no alert while they are in good health.
func TestHealthyBoardsAreQuiet(t *testing.T) {
	records, err := everything().RecordingRules()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := everything().AlertRules()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "golden", "*.prom"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d boards, %v", len(files), err)
	}
	tool(t)
	got := regexp.MustCompile(`alertname="([A-Za-z]+)"`)
	for _, file := range files {
		board := strings.TrimSuffix(filepath.Base(file), ".prom")
		t.Run(board, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			fmt.Fprintf(&b, "- interval: 5m\n  input_series:\n  - series: 'up{job=\"gpu-exporter\",instance=\"node-1\"}'\n    values: "+
				"'1x20'\n  - series: 'kube_node_status_condition{node=\"node-1\",condition=\"Ready\",status=\"true\"}'\n"+
				"    values: '1x20'\n")
			for _, m := range exposed.FindAllStringSubmatch(string(text), -1) {
				fmt.Fprintf(&b, "  - series: '%s'\n    values: '%sx20'\n", strings.ReplaceAll(m[1], "'", "''"), m[2])
			}
			b.WriteString("  promql_expr_test:\n  - eval_time: 90m\n    expr: 'ALERTS{alertstate=\"firing\"}'\n    exp_samples: []\n")
			out, err := exec.Command(tool(t), "test", "rules",
				write(t, t.TempDir(), "board", append(slices.Clone(records), rules...), 5*time.Minute, b.String())).CombinedOutput()
			seen := map[string]bool{}
			for _, m := range got.FindAllStringSubmatch(string(out), -1) {
				if m[1] == "GPUMemoryUsedUnallocated" { // their load belongs to no pod
					continue
				}
				seen[m[1]] = true
				if raised[board][m[1]] == "" {
					t.Errorf("raises %s", m[1])
				}
			}
			for name := range raised[board] {
				if !seen[name] {
					t.Errorf("is excused for %s, and does not raise it", name)
				}
			}
			if err != nil && !strings.Contains(string(out), "GPUMemoryUsedUnallocated") && len(seen) == 0 {
				t.Errorf("%s", out)
			}
		})
	}
}
