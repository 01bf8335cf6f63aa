package scenario

import (
	"path/filepath"
	"testing"
)

// Every scenario of the repository parses, and so do its boards on their own.
func TestFiles(t *testing.T) {
	for _, pattern := range []string{"../../../testdata/scenarios/*.scenario", "../../../testdata/scenarios/boards/*.scenario"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) < 4 {
			t.Fatalf("found %d files of %s, %v", len(files), pattern, err)
		}
		for _, file := range files {
			if _, err := Load(file); err != nil {
				t.Error(err)
			}
		}
	}
}
