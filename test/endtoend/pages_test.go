package endtoend_test

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// pageValues are for dashboards that open with the first value of a variable, which has no data for some panels.
var pageValues = map[string]dashboard.Values{
	"gpu-node":      {"node": {"main-h100-0001"}},
	"gpu-namespace": {"namespace": {"research"}},
	"gpu-workload":  {"namespace": {"research"}},
}

// checkPages loads every dashboard in Chromium as test/preview draws it, with Grafana's own components. JavaScript
// errors, failed queries, empty panels that are not listed as empty, and charts without a line are errors.
func checkPages(t *testing.T, c dashboard.Client, w dashboard.Window, empty absent) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	all, err := dashboard.LoadAll(filepath.Join(root, "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
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
		Empty                   []string
	}
	// A panel has data when one of the views of its dashboard shows some.
	best := map[string]panel{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p panel
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if key := p.Dashboard + "/" + p.Panel; best[key].State != "data" {
			best[key] = p
		}
	}
	if len(best) < 200 {
		t.Errorf("only %d panels were drawn", len(best))
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
	t.Logf("%d panels drawn in %d views", len(best), strings.Count(strings.Join(args, " "), "--view="))
}
