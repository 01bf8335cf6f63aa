package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
)

// TestWebhook: what is posted, when it is tried again, and that no error has the URL, which is a credential.
func TestWebhook(t *testing.T) {
	for _, tt := range []struct {
		name      string
		responses []int
		requests  int
		err       string
	}{
		{"accepted", []int{200}, 1, ""},
		{"accepted at last", []int{503, 429, 204}, 3, ""},
		{"refused", []int{403}, 1, "webhook: the server responded 403 Forbidden"},
		{"redirected", []int{302}, 1, "webhook: the server responded 302 Found"},
		{"never", []int{500, 500, 500, 200}, 3, "webhook: the server responded 500"},
	} {
		n, text := 0, ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body struct{ Text string }
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/secret" {
				t.Errorf("%s: %s %v", tt.name, r.URL, err)
			}
			text = body.Text
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tt.responses[n])
			n++
		}))
		err := post(t.Context(), &document.Document{}, server.URL+"/secret", 3, 0)
		server.Close()
		if n != tt.requests || (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) ||
			!strings.Contains(text, "GPU report, ") {
			t.Errorf("%s: %d requests, %v, %q", tt.name, n, err, text)
		}
		err = post(t.Context(), &document.Document{}, server.URL+"/secret", 1, 0)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "url")
	for text, ok := range map[string]bool{"https://hooks.example.com/a/b\n": true, "": false, "ftp://x/secret": false} {
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := readWebhook(file); (err == nil) != ok || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
