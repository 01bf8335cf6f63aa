package dashboards_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/dashboards"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// generated are the files, for all tests: they only read them.
var generated = sync.OnceValues(func() ([]dashboards.File, error) { return dashboards.Files(dashboards.All()) })

func files(t *testing.T) []dashboards.File {
	t.Helper()
	out, err := generated()
	must.OK(t, err)
	return out
}

// Client-side apply keeps the whole object in an annotation, which may hold so much.
func TestDashboardsFitAConfigMap(t *testing.T) {
	for _, f := range files(t) {
		if len(f.Compact) >= 262144-4096 {
			t.Errorf("%s is %d bytes long, too long for a ConfigMap", f.Name, len(f.Compact))
		}
		t.Logf("%s: %d bytes, pretty %d", f.Name, len(f.Compact), len(f.Pretty))
	}
}

func TestUidsAreFrozen(t *testing.T) {
	want := []string{"gpu-capacity", "gpu-device", "gpu-exporter", "gpu-fleet", "gpu-health", "gpu-namespace", "gpu-node", "gpu-sharing",
		"gpu-workload"}
	var got []string
	for _, b := range dashboards.All() {
		got = append(got, b.UID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q: bookmarks carry the uids", got, want)
	}
}
