package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// database answers every query with one series that names the query.
func database(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/values") {
			_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": []string{"n1", "n2"}})
			return
		}
		query, result := r.FormValue("query"), []any{}
		if query != "nothing" {
			result = append(result, map[string]any{"metric": map[string]string{"asked": query}, "value": []any{1.8e9, "7"}, "values": []any{[]any{1.8e9, "7"}}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"result": result}})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const text = `{"uid":"gpu-test","title":"Test","templating":{"list":[{"name":"node","type":"query","query":"label_values(x, node)"}]},"panels":[
	  {"id":1,"type":"stat","title":"Full","gridPos":{"w":6,"h":4},"targets":[{"refId":"A","expr":"x{node=\"$node\"}","legendFormat":"{{asked}}"}],"fieldConfig":{"defaults":{"unit":"short"}},"options":{"textMode":"value_and_name","sparkle":1}},
	  {"id":2,"type":"stat","title":"Empty","gridPos":{"x":6,"w":6,"h":4},"targets":[{"refId":"A","expr":"nothing"}],"fieldConfig":{"defaults":{"unit":"short"}}}]}`
	if err := os.WriteFile(filepath.Join(dir, "gpu-test.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRun(t *testing.T) {
	c := config{url: database(t), dir: folder(t), from: "-1h", to: "now", out: t.TempDir(), values: board.Values{}}
	var stdout, stderr strings.Builder
	if err := run(t.Context(), c, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 series   Full", "no data    Empty", "2 panels, 1 without data, 0 not drawn"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &stdout)
		}
	}
	if want := `not drawn as asked: options.sparkle = 1 (gpu-test: "Full")`; !strings.Contains(stderr.String(), want) {
		t.Errorf("it does not say %q:\n%s", want, &stderr)
	}
	for _, name := range []string{"gpu-test.html", "index.html"} {
		text, err := os.ReadFile(filepath.Join(c.out, name))
		if err != nil || !strings.Contains(string(text), "Preview, not Grafana.") || strings.Contains(string(text), "<script") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, wrong := range []config{{dir: c.dir}, {dir: t.TempDir(), out: c.out}, {url: c.url, dir: c.dir, out: c.out, only: "nobody"}, {url: "http://127.0.0.1:1", dir: c.dir, out: c.out}, {dir: c.dir, pictures: "x", serve: "y"}} {
		if err := run(t.Context(), wrong, io.Discard, io.Discard); err == nil {
			t.Errorf("%+v is no error", wrong)
		}
	}
}

func TestServe(t *testing.T) {
	c := config{url: database(t), dir: folder(t), from: "-1h", to: "now", values: board.Values{"node": {"n1"}, "gpu-test/node": {"n3"}, "other/node": {"n4"}}}
	boards, err := board.LoadAll(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler(c, boards, io.Discard))
	defer server.Close()
	for path, want := range map[string]string{
		"/": "x{node=&#34;n3&#34;}", "/d/gpu-test?var-node=other": "x{node=&#34;other&#34;}",
		"/d/gpu-test?var-node=%22%3E%3Cscript%3E": "&lt;script&gt;", "/d/nobody": "404", "/d/gpu-test?from=now&to=now": "empty",
	} {
		res, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "<script") {
			t.Errorf("%s: %v, it does not say %s:\n%s", path, err, want, text)
		}
	}
}
