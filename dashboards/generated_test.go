package dashboards_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/dashboards"
)

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

// ruleNames are the recording rules that the boards may read.
func ruleNames() []string {
	var names []string
	for _, r := range alerts.Records() {
		names = append(names, r.Name)
	}
	return names
}

func files(t *testing.T) []dashboards.File {
	t.Helper()
	out, err := dashboards.Files(dashboards.Boards(), ruleNames())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestGeneratedBoards(t *testing.T) {
	var names []string
	for _, f := range files(t) {
		names = append(names, f.Name)
		compare(t, f.Name, f.Pretty)
	}
	there, err := filepath.Glob("*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range there {
		if !slices.Contains(names, name) {
			t.Errorf("%s is no board's file: delete it", name)
		}
	}
}

func TestGeneratedDocs(t *testing.T) {
	compare(t, filepath.Join("..", "docs", "dashboards.md"), []byte(dashboards.Markdown(dashboards.Boards())))
}

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s is not what the tables say; run make generate", path)
	}
}

func TestBoardsAreWrittenAlike(t *testing.T) {
	first := files(t)
	for range 3 {
		for i, f := range files(t) {
			if !bytes.Equal(f.Compact, first[i].Compact) {
				t.Fatalf("%s comes out differently", f.Name)
			}
		}
	}
}

// Client-side apply keeps the whole object in an annotation, which may hold so much.
func TestBoardsFitAConfigMap(t *testing.T) {
	for _, f := range files(t) {
		if len(f.Compact) >= 262144-4096 {
			t.Errorf("%s is %d bytes long, too long for a ConfigMap", f.Name, len(f.Compact))
		}
		t.Logf("%s: %d bytes, pretty %d", f.Name, len(f.Compact), len(f.Pretty))
	}
}

func TestUidsAreFrozen(t *testing.T) {
	want := []string{"gpu-capacity", "gpu-device", "gpu-exporter", "gpu-fleet", "gpu-health", "gpu-namespace", "gpu-node", "gpu-sharing", "gpu-workload"}
	var got []string
	for _, b := range dashboards.Boards() {
		got = append(got, b.UID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q: bookmarks carry the uids", got, want)
	}
}
