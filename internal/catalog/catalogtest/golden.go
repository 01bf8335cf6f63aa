package catalogtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Golden compares a text with a file of testdata, line by line; with update it writes the file.
func Golden(t *testing.T, name, got string, update bool) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	was, now := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range max(len(was), len(now)) {
		if i >= len(was) || i >= len(now) || was[i] != now[i] {
			t.Errorf("line %d of %s is not as it was; if that is right, run the test with -update and read the diff", i+1, file)
			return
		}
	}
}
