package source

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Entries that cannot be decoded are counted and logged once per change: a file is read when it changes, a directory at
// every poll.
func TestUndecodableEntries(t *testing.T) {
	type step struct {
		undecoded int
		err       error
		errors    uint64 // so far
		logged    int    // warnings so far
		again     bool   // readable again
	}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		directory bool
		steps     []step
	}{
		"file": {false, []step{{0, nil, 0, 0, false}, {2, nil, 1, 1, false}, {2, nil, 2, 2, false}, {0, nil, 2, 2, false},
			{0, broken, 3, 3, false}, {0, broken, 4, 3, false}, {0, nil, 4, 3, true}}},
		"directory": {true, []step{{0, nil, 0, 0, false}, {2, nil, 1, 1, false}, {2, nil, 1, 1, false}, {3, nil, 2, 2, false},
			{0, nil, 2, 2, false}, {2, nil, 3, 3, false}, {0, broken, 4, 4, false}, {2, nil, 4, 4, true}}},
	} {
		var log strings.Builder
		var now step
		at := time.Unix(1000, 0)
		path := filepath.Join(t.TempDir(), "file")
		load := func() (*int, int, error) { return new(int), now.undecoded, now.err }
		f := newFile(Options{Clock: func() time.Time { return at }, Logger: slog.New(slog.NewTextHandler(&log, nil)), MaxAge: time.Hour},
			path, "x", "thing", func(io.Reader) (*int, int, error) { return load() })
		if c.directory {
			f.load = load
		}
		for i, s := range c.steps {
			now, at = s, at.Add(time.Second)
			if err := os.WriteFile(path, []byte(strings.Repeat("x", i)), 0o600); err != nil { // another size: it has changed
				t.Fatal(err)
			}
			f.Poll(t.Context())
			if s.err == nil {
				f.Poll(t.Context()) // nothing has changed
			}
			text, src := log.String(), f.Source()
			if src.Errors != s.errors || strings.Count(text, "level=WARN") != s.logged ||
				strings.Contains(text, "thing readable again") != s.again || (f.Value() == nil) != (s.err != nil) ||
				src.Up != (s.err == nil) || !src.Duration.Present() {
				t.Errorf("%s, step %d: %+v, value %v\n%s", name, i, src, f.Value(), text)
			}
		}
	}
}
