package endtoend_test

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// pageValues are for dashboards that open with the first value of a variable, which has no data for some panels.
var pageValues = map[string]dashboard.Values{
	"gpu-node":      {"node": {"main-h100-0001"}},
	"gpu-namespace": {"namespace": {"research"}},
	"gpu-workload":  {"namespace": {"research", "speech"}}, // alerts fire for workloads of speech
}

// checkPages loads every dashboard in Chromium as test/preview draws it, with Grafana's own components, all rows open,
// 1600 px wide and then 1280. JavaScript errors, failed queries, empty panels that are not listed as empty, charts without
// a line, cut titles and cells, tables wider than their panels, rows left out, and unknown values drawn as 0 % are errors; at 1280 px
// tables may be scrolled sideways if their identity columns are first.
//
// The time until a page is drawn depends on what else the machine does, and so does its processor time where others share
// the processors: both are logged. The queries and their answers do not: at most 150 and 4 MB.
func checkPages(t *testing.T, c dashboard.Client, w dashboard.Window, empty absent) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must.OK(t, err)
	all, err := dashboard.LoadAll(filepath.Join(root, "dashboards"))
	must.OK(t, err)
	args := []string{"run", "./preview", "--check", "--url=" + c.URL}
	for _, d := range all {
		for _, values := range views(t, c, d, w) {
			if chosen, ok := pageValues[d.UID]; ok {
				values = chosen
			}
			query := url.Values{}
			for name, v := range values {
				query["var-"+name] = v
			}
			args = append(args, "--view="+d.UID+"?"+query.Encode())
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(root, "test")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("the pages of the dashboards: %v\n%s", err, stderr.String())
	}
	type panel struct {
		Dashboard, Panel, State string
		Empty, Faults           []string
		Width                   int
		// Of a line with the cost of a page:
		CPU, Start, Wall float64
		Queries, Bytes   int
	}
	// A panel has data when one of the views of its dashboard shows some; a page costs what its cheapest view does.
	best, costs, widths := map[string]panel{}, map[string]panel{}, map[int]int{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p panel
		must.OK(t, decoder.Decode(&p))
		if p.CPU > 0 {
			if before, ok := costs[p.Dashboard]; !ok || p.CPU < before.CPU {
				costs[p.Dashboard] = p
			}
			continue
		}
		widths[p.Width]++
		for _, f := range p.Faults {
			t.Errorf("%s/%s at %d px: %s", p.Dashboard, p.Panel, p.Width, f)
		}
		if key := p.Dashboard + "/" + p.Panel; best[key].State != "data" {
			best[key] = p
		}
	}
	if len(best) < 200 || widths[1600] < 200 || widths[1280] != widths[1600] || len(costs) != len(all) {
		t.Errorf("only %d panels of %d dashboards were drawn, by width: %v", len(best), len(costs), widths)
	}
	for uid, p := range costs {
		t.Logf("%s: %.2f s after %.2f s of start, %.2f s of processor time, %d queries, %d bytes", uid, p.Wall, p.Start,
			p.CPU, p.Queries, p.Bytes)
		if p.Queries > 150 || p.Bytes > 4e6 {
			t.Errorf("%s asks for too much: %+v", uid, p)
		}
	}
	for key, p := range best {
		explained := empty[key] != ""
		for _, refID := range p.Empty {
			explained = explained || empty[key+"/"+refID] != ""
		}
		if p.State == "empty" && !explained {
			t.Errorf("%s: the page shows no data", key)
		}
		if p.State == "blank" {
			t.Errorf("%s: the chart has data and no visible line", key)
		}
	}
	if dir := filepath.Join(root, "bin", "endtoend"); os.MkdirAll(dir, 0o755) == nil {
		_ = os.WriteFile(filepath.Join(dir, "pages.jsonl"), out, 0o644)
	}
}
