package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"

	"sigs.k8s.io/yaml"
)

// Every file that a compose file refers to exists, and every file in the directory is valid YAML.
func TestCompose(t *testing.T) {
	dir := filepath.Join(root(t), "deploy", "compose")
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no compose file: %v", err)
	}
	for _, path := range paths {
		var c struct {
			Name     string
			Services map[string]struct {
				Image   string
				Build   struct{ Context, Dockerfile string }
				Volumes []string
				Ports   []string
			}
			Volumes map[string]any
		}
		if err := yaml.Unmarshal([]byte(must.Read(t, path)), &c); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(c.Services) == 0 {
			t.Errorf("%s has no services", path)
		}
		for name, s := range c.Services {
			if s.Build.Context != "" {
				if _, err := os.Stat(filepath.Join(dir, s.Build.Context, s.Build.Dockerfile)); err != nil {
					t.Errorf("%s: service %s: %v", path, name, err)
				}
			}
			if tag := s.Image[strings.LastIndex(s.Image, ":")+1:]; tag == "latest" || tag == s.Image {
				t.Errorf("%s: service %s has no exact version: %s", path, name, s.Image)
			}
			for _, v := range s.Volumes {
				from, _, _ := strings.Cut(v, ":")
				if !strings.HasPrefix(from, ".") {
					if _, ok := c.Volumes[from]; !ok && !strings.HasPrefix(from, "/") {
						t.Errorf("%s: service %s mounts %s, which is no volume", path, name, from)
					}
					continue
				}
				if _, err := os.Stat(filepath.Join(dir, from)); err != nil {
					t.Errorf("%s: service %s: %v", path, name, err)
				}
			}
		}
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return yaml.Unmarshal([]byte(must.Read(t, path)), new(any))
	})
	if err != nil {
		t.Error(err)
	}
}
