package expose_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

var someDay = time.Date(2026, 11, 18, 14, 3, 7, 0, time.UTC)

func newServer(t testing.TB, c fleet.Config, at *time.Time) (*fleet.Fleet, *expose.Server) {
	t.Helper()
	f, err := fleet.New(c)
	must.OK(t, err)
	s, err := expose.NewServer(f, func() time.Time { return *at }, catalog.All())
	must.OK(t, err)
	return f, s
}

func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func parse(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := testkit.Families(text)
	must.OK(t, err)
	return families
}

// Every page of every node parses, passes promlint, and has no family that the catalog does not have; all nodes together
// show whatever recording rules read. Panels on other families have data in the end-to-end test.
func TestNodePages(t *testing.T) {
	rules := must.Read(t, filepath.Join("..", "..", "..", "alerts", "recording.rules.yaml"))
	reads, at := rules, someDay
	f, s := newServer(t, fleet.Demo(1), &at)
	known, shown := map[string]bool{}, map[string]bool{}
	for _, row := range catalog.All() {
		known[row.Name] = true
	}
	for i := range f.Len() {
		code, text := get(s, "/nodes/"+f.Node(i).Name+"/metrics")
		if f.View(i, at) == nil {
			if code != http.StatusServiceUnavailable {
				t.Errorf("%s answers %d while its exporter is away", f.Node(i).Name, code)
			}
			continue
		}
		var list []*dto.MetricFamily
		for name, family := range parse(t, text) {
			if !known[name] {
				t.Errorf("%s is not in the catalog", name)
			}
			shown[name] = true
			list = append(list, family)
		}
		problems, err := promlint.NewWithMetricFamilies(list).Lint()
		must.OK(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s: %s", f.Node(i).Name, p.Metric, p.Text)
		}
	}
	for name := range known {
		if !shown[name] && regexp.MustCompile(`\b`+name+`\b`).MatchString(reads) {
			t.Errorf("no node of the demo shows %s, which a recording rule reads: simulate it in internal/standin/fleet", name)
		}
	}
}

func TestKubeStatePage(t *testing.T) {
	at := someDay
	_, s := newServer(t, fleet.Demo(1), &at)
	_, text := get(s, "/kube-state-metrics/metrics")
	families := parse(t, text)
	for _, f := range fleet.KubeFamilies() {
		if family := families[f.Name]; family == nil && f.Name != "kube_job_owner" {
			t.Errorf("%s is not shown", f.Name)
		} else if family != nil {
			seen := map[string]bool{}
			for _, m := range family.Metric {
				key := fmt.Sprint(m.Label)
				if seen[key] {
					t.Errorf("%s stands twice: %s", f.Name, key)
				}
				seen[key] = true
			}
		}
	}
	for _, want := range []string{
		`resource="nvidia_com_gpu",unit="integer"`, `resource="nvidia_com_mig_1g_5gb",unit="integer"`, `phase="Pending"} 1`,
		`kube_pod_status_unschedulable{`,
		`resource="requests.nvidia.com/gpu",type="hard"`, `owner_kind="ReplicaSet"`, `kube_replicaset_owner{`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("kube-state-metrics does not show %s", want)
		}
	}
	if _, one := get(s, "/clusters/main/kube-state-metrics/metrics"); one != text {
		t.Error("the only cluster is not the whole")
	}
}

func TestDiscovery(t *testing.T) {
	at := someDay
	f, s := newServer(t, fleet.Big(1, 20, 2, "east", "west"), &at)
	_, text := get(s, "/sd")
	var groups []struct {
		Targets []string
		Labels  map[string]string
	}
	must.OK(t, json.Unmarshal([]byte(text), &groups))
	if len(groups) != f.Len()+2 || f.Len() != 20 {
		t.Errorf("%d groups for %d nodes and two clusters", len(groups), f.Len())
	}
	for _, g := range groups {
		if code, _ := get(s, g.Labels["__metrics_path__"]); code != http.StatusOK && code != http.StatusServiceUnavailable {
			t.Errorf("%s answers %d", g.Labels["__metrics_path__"], code)
		}
		if g.Labels["cluster"] == "" || g.Labels["instance"] == "" || g.Labels["job"] == "" {
			t.Errorf("a target lacks a label: %v", g.Labels)
		}
	}
	if code, page := get(s, "/"); code != http.StatusOK || !strings.Contains(page, "20 nodes, 40 GPUs") {
		t.Errorf("index: %d %.200s", code, page)
	}
	if code, _ := get(s, "/nodes/none/metrics"); code != http.StatusNotFound {
		t.Errorf("an unknown node answers %d", code)
	}
}

// BenchmarkScrape is one scrape of each node of a big fleet in turn, a minute later each round.
func BenchmarkScrape(b *testing.B) {
	at := someDay
	f, s := newServer(b, fleet.Big(1, 200, 8), &at)
	for i := range f.Len() { // the first scrape counts up to now
		get(s, "/nodes/"+f.Node(i).Name+"/metrics")
	}
	b.ReportAllocs()
	n, bytes := 0, 0
	for b.Loop() {
		if n%f.Len() == 0 {
			at = at.Add(time.Minute)
		}
		_, text := get(s, "/nodes/"+f.Node(n%f.Len()).Name+"/metrics")
		bytes += len(text)
		n++
	}
	b.ReportMetric(float64(bytes)/float64(n), "bytes/page")
}
