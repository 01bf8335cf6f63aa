package alerts

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the generated files")

func TestFilesAreGenerated(t *testing.T) {
	files, err := Generated()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join("..", filepath.FromSlash(f.Path))
		if *update {
			if err := os.WriteFile(path, []byte(f.Text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != f.Text {
			t.Errorf("%s is not what the tables say: run make generate", f.Path)
		}
	}
}
