package web

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func TestPasswordsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yml")
	write := func(text string) {
		t.Helper()
		// As an editor does that writes in place, and as one that renames.
		must.OK(t, os.WriteFile(path+".new", []byte(text), 0o600))
		must.OK(t, os.Rename(path+".new", path))
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("metrics")) })
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	ask := func(h http.Handler) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code
	}
	const users = "basic_auth_users:\n  a: $2y$10$x\n"

	// Whoever never asked for passwords is not bound to them.
	if ask(requireUsers("", next, logger)) != http.StatusOK {
		t.Error("closed without a configuration")
	}
	write("tls_server_config: {}\n")
	without := requireUsers(path, next, logger)
	write("")
	if ask(without) != http.StatusOK {
		t.Error("closed though there were no passwords")
	}

	write(users)
	h := requireUsers(path, next, logger)
	for _, step := range []struct {
		text string
		want int
	}{
		{users, 200}, {"", 503}, {"", 503}, {users, 200}, {"basic_auth_users: {}\n", 503}, {"basic_auth_users: [", 503},
		{users + "  b: $2y$10$y\n", 200},
		{"basic_auth_users:\n", 503}, {"# " + strings.ReplaceAll(users, "\n", "\n#"), 503}, {users, 200},
	} {
		write(step.text)
		for range 2 {
			if got := ask(h); got != step.want {
				t.Errorf("%q: status %d, want %d", step.text, got, step.want)
			}
		}
	}
	must.OK(t, os.Remove(path))
	if ask(h) != http.StatusServiceUnavailable {
		t.Error("open without the file")
	}
	if n := strings.Count(log.String(), "no users any more"); n != 3 {
		t.Errorf("said %d times that the users are lost, want once for each loss:\n%s", n, log.String())
	}
}
