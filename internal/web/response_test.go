package web

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAcceptsGzip(t *testing.T) {
	for _, c := range []struct {
		accepts []string
		want    bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"gzip"}, true},
		{[]string{"x-gzip"}, true},
		{[]string{"GZIP"}, true},
		{[]string{"deflate, gzip;q=0.5"}, true},
		{[]string{"deflate", "gzip"}, true},
		{[]string{"gzip;q=0"}, false},
		{[]string{"gzip; Q=0.000"}, false},
		{[]string{"gzip;q=0, *"}, false},
		{[]string{"*, gzip;q=0"}, false},
		{[]string{"*"}, true},
		{[]string{"*;q=0"}, false},
		{[]string{"identity"}, false},
		{[]string{"gzip;q=nonsense"}, false},
		{[]string{"gzip;q=NaN"}, false},
		{[]string{"zstd,br"}, false},
		{[]string{"notgzip"}, false},
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": c.accepts}); got != c.want {
			t.Errorf("%q: %v, want %v", c.accepts, got, c.want)
		}
	}
}

// Responses of all kinds are compressed if that is worth it, and complete.
func TestAnswersArePacked(t *testing.T) {
	long := strings.Repeat("gpu_power_watts{gpu=\"0\"} 300\n", 1000)
	handlers := map[string]http.HandlerFunc{
		"long": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, long)
		},
		"short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, "x 1\n")
		},
		"untyped": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, long) },
		"encoded": func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Content-Type", "text/plain")
			h.Set("Content-Encoding", "br")
			io.WriteString(w, long)
		},
		"an error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, long, http.StatusTeapot) },
		"empty":    func(http.ResponseWriter, *http.Request) {},
	}
	for range 2 {
		for name, h := range handlers {
			for _, accepts := range []string{"", "gzip"} {
				want := httptest.NewRecorder()
				h(want, httptest.NewRequest(http.MethodGet, "/", nil))
				r, got := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
				r.Header.Set("Accept-Encoding", accepts)
				buffered(h).ServeHTTP(got, r)

				body := io.Reader(got.Body)
				packed := got.Header().Get("Content-Encoding") == "gzip"
				if packed != (accepts == "gzip" && (name == "long" || name == "an error")) {
					t.Errorf("%s for %q: packed: %v", name, accepts, packed)
				}
				if packed {
					if got.Body.Len() > len(long)/10 {
						t.Errorf("%s: %d bytes of %d", name, got.Body.Len(), len(long))
					}
					var err error
					if body, err = gzip.NewReader(got.Body); err != nil {
						t.Fatal(err)
					}
				}
				text, err := io.ReadAll(body)
				if err != nil || string(text) != want.Body.String() || got.Code != want.Code {
					t.Errorf("%s for %q: %d, %d bytes, %v; want %d, %d bytes", name, accepts, got.Code, len(text), err,
						want.Code,
						want.Body.Len())
				}
				if got.Header().Get("Vary") != "Accept-Encoding" {
					t.Errorf("%s for %q: no Vary header", name, accepts)
				}
			}
		}
	}
}
