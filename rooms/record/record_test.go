package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// TestRecordFile: the file is whole or not there, and never in place of another.
func TestRecordFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	must.OK(t, writeRecording(file, []byte("one"), nil))
	if err := writeRecording(file, []byte("two"), nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("over another file: %v", err)
	}
	must.OK(t, os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "link")))
	if err := writeRecording(filepath.Join(dir, "link"), []byte("two"), nil); err == nil {
		t.Error("over a link")
	}
	if err := writeRecording(filepath.Join(dir, "none", "b"), []byte("two"), nil); err == nil {
		t.Error("into no directory")
	}
	entries, err := os.ReadDir(dir)
	text, _ := os.ReadFile(file)
	if err != nil || len(entries) != 2 || string(text) != "one" {
		t.Errorf("%v, %v are left, and the file has %q", entries, err, text)
	}
}
