package web

import (
	"log/slog"
	"net/http"
	"os"
	"sync"

	"go.yaml.in/yaml/v2"
)

// passwords keeps a server closed whose web configuration demanded passwords at the start and does so no more. The
// exporter-toolkit reads the file anew for each request, and one without users is a valid one without passwords: a file
// that an editor or a full disk has emptied would open every path. Who means to drop the passwords restarts.
type passwords struct {
	path   string
	next   http.Handler
	logger *slog.Logger

	mu   sync.Mutex
	seen os.FileInfo // of the file that was judged last
	kept bool
}

// keepPasswords returns a handler that answers with next as long as the configuration has the users that it has now: at
// least one. Without a file, or without users in it, it returns next itself.
func keepPasswords(path string, next http.Handler, logger *slog.Logger) http.Handler {
	if path == "" || !hasUsers(path) {
		return next
	}
	return &passwords{path: path, next: next, logger: logger, kept: true}
}

func (p *passwords) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.hold() {
		http.Error(w, "the web configuration has lost its users; restart the exporter if it shall be open", http.StatusServiceUnavailable)
		return
	}
	p.next.ServeHTTP(w, r)
}

// hold reports whether the configuration still demands passwords. It reads the file only where it has changed.
func (p *passwords) hold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := os.Stat(p.path)
	if err != nil {
		return false // the toolkit has said why
	}
	if p.seen == nil || !os.SameFile(now, p.seen) || now.ModTime() != p.seen.ModTime() || now.Size() != p.seen.Size() {
		before := p.kept
		p.seen, p.kept = now, hasUsers(p.path)
		if before && !p.kept {
			p.logger.Error("the web configuration has lost its users: every path is closed until they are back, or until a restart", "file", p.path)
		}
	}
	return p.kept
}

// hasUsers reports whether a web configuration demands passwords.
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
