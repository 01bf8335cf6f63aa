package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The three forms of the exposition, and compression.
func TestFormats(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, twoPods)
	p := m.start()
	p.until(t, "gpus", bothUp)
	for accept, want := range map[string]struct {
		contentType string
		contains    []string
	}{
		"": {"text/plain", []string{"# TYPE gpu_energy_joules_total counter", "gpu_power_watts{"}},
		"application/openmetrics-text;version=1.0.0": {"application/openmetrics-text",
			[]string{"# TYPE gpu_energy_joules counter", "# UNIT gpu_energy_joules joules", "\n# EOF\n"}},
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": {"application/vnd.google.protobuf",
			[]string{"gpu_exporter_call_duration_seconds"}},
	} {
		req, err := http.NewRequest(http.MethodGet, p.Base()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		res, err := http.DefaultClient.Do(req) // asks for gzip by itself, and undoes it
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil && !res.Uncompressed {
			err = errors.New("it is not compressed")
		}
		if err == nil && !strings.HasPrefix(res.Header.Get("Content-Type"), want.contentType) {
			err = fmt.Errorf("it is %s", res.Header.Get("Content-Type"))
		}
		for _, c := range want.contains {
			if err == nil && !strings.Contains(string(body), c) {
				err = fmt.Errorf("it lacks %q", c)
			}
		}
		if err != nil {
			t.Errorf("Accept %q: %v", accept, err)
		}
	}
}
