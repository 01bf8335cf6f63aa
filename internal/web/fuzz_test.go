package web

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// FuzzPage: no name adds a tag to the page, or an attribute.
func FuzzPage(f *testing.F) {
	f.Add("x")
	f.Add(`<script>alert(1)</script>"'&`)
	f.Add("\" onload=x \u202e\x00\xff")
	tags := func(t testing.TB, name string) (tags, quotes int) {
		v := catalogtest.FullView()
		v.Node, v.Notes, v.GPUs[0].Model, v.GPUs[2].Message = name, []string{name}, name, name
		v.Allocations[0].Container.Pod, v.Unresolved[0].Container.Pod, v.Unresolved[0].Resource = name, name, name
		w := httptest.NewRecorder()
		page(func() *gpu.View { return v }, nodeLink{}, slog.New(slog.NewTextHandler(io.Discard, nil))).ServeHTTP(w,
			httptest.NewRequest("GET", "/", nil))
		if w.Code != 200 {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		return strings.Count(w.Body.String(), "<"), strings.Count(w.Body.String(), `"`)
	}
	plainTags, plainQuotes := tags(f, "x")
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" {
			return // what has no name may be left out
		}
		if n, q := tags(t, name); n != plainTags || q != plainQuotes {
			t.Errorf("%q makes %d tags and %d quotes of %d and %d", name, n, q, plainTags, plainQuotes)
		}
	})
}
