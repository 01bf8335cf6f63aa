package health

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// TestHealthCommand: the line and the exit code are those of custom plugins of node-problem-detector (0: OK, 1: problem,
// 2 and more: unknown; docs/custom_plugin_monitor.md there).
func TestHealthCommand(t *testing.T) {
	of := func(states ...string) string {
		page := "# TYPE gpu_health gauge\n"
		for i, s := range states {
			state, reason, _ := strings.Cut(s, " ")
			for _, all := range gpu.HealthStates {
				page += fmt.Sprintf("gpu_health{gpu=\"%d\",uuid=\"GPU-%d\",state=\"%s\"} %d\n", i, i, all,
					map[bool]int{true: 1}[string(all) == state])
			}
			if reason != "" {
				page += fmt.Sprintf("gpu_health_reason_info{gpu=\"%d\",uuid=\"GPU-%d\",reason=\"%s\",state=\"%s\"} 1\n", i, i, reason,
					state)
			}
		}
		return page
	}
	for name, tt := range map[string]struct {
		page, want string
		status     int
		code       int
	}{
		"all healthy":     {of("healthy", "healthy"), "2 GPUs ok\n", 200, 0},
		"degraded":        {of("healthy", "degraded nvlink_down"), "2 GPUs ok\n", 200, 0},
		"needs a reset":   {of("healthy", "needs_reset row_remap_pending"), "GPU 1 needs_reset (row_remap_pending)\n", 200, 1},
		"lost beside one": {of("unknown driver_hung", "lost lost"), "GPU 0 unknown (driver_hung); GPU 1 lost (lost)\n", 200, 1},
		"unknown":         {of("unknown driver_hung", "healthy"), "GPU 0 unknown (driver_hung)\n", 200, 2},
		"another program": {"up 1\n", "unknown: URL has no gpu_health: no GPU, or no gpu-exporter\n", 200, 2},
		"refused":         {"", "unknown: URL: 503 Service Unavailable\n", 503, 2},
		"garbage":         {"{{{", "unknown: ", 200, 2},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			fmt.Fprint(w, tt.page)
		}))
		var out, errs bytes.Buffer
		code := healthMain(t.Context(), []string{"--url=" + server.URL}, &out, &errs)
		server.Close()
		got := strings.ReplaceAll(out.String(), server.URL, "URL")
		if code != tt.code || got != tt.want && !(name == "garbage" && strings.HasPrefix(got, tt.want)) || errs.Len() > 0 ||
			strings.Count(got, "\n") != 1 {
			t.Errorf("%s: %d %q %q, want %d %q", name, code, got, errs.String(), tt.code, tt.want)
		}
	}
	var out, errs bytes.Buffer
	if code := healthMain(t.Context(), []string{"--url=http://127.0.0.1:1/metrics"}, &out, &errs); code != 2 ||
		!strings.HasPrefix(out.String(), "unknown: ") {
		t.Errorf("no exporter: %d %q", code, out.String())
	}
}
