package web

import (
	"log/slog"
	"net/http"
	"os"
	"sync"

	"go.yaml.in/yaml/v2"
)

// userGuard closes a server whose web configuration had users when it started and no longer has any. The
// exporter-toolkit reads the file on each request and takes one without users as one without authentication: a file
// that an editor or a full disk has emptied would open every path.
type userGuard struct {
	path   string
	next   http.Handler
	logger *slog.Logger

	mu    sync.Mutex
	read  os.FileInfo // of the file when it was last read
	users bool
}

// requireUsers returns a handler that calls next while the web configuration has users. Without a configuration, or
// without users in it, it returns next.
func requireUsers(path string, next http.Handler, logger *slog.Logger) http.Handler {
	if path == "" || !hasUsers(path) {
		return next
	}
	return &userGuard{path: path, next: next, logger: logger, users: true}
}

func (g *userGuard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.open() {
		http.Error(w, "the web configuration has no users any more; restart the exporter to serve without "+
			"authentication",
			http.StatusServiceUnavailable)
		return
	}
	g.next.ServeHTTP(w, r)
}

// open reports whether the configuration has users. It reads the file only if it has changed.
func (g *userGuard) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, err := os.Stat(g.path)
	if err != nil {
		return false // the toolkit logs it
	}
	if g.read == nil || !os.SameFile(now, g.read) || now.ModTime() != g.read.ModTime() || now.Size() != g.read.Size() {
		before := g.users
		g.read, g.users = now, hasUsers(g.path)
		if before && !g.users {
			g.logger.Error("web configuration has no users any more; all requests are refused", "file", g.path)
		}
	}
	return g.users
}

func hasUsers(path string) bool {
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	var config struct {
		Users map[string]string `yaml:"basic_auth_users"`
	}
	return yaml.Unmarshal(text, &config) == nil && len(config.Users) > 0
}
