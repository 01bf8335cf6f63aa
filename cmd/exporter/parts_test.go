package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// featuresOf are the features of the optional parts on a node with a kubelet.
var featuresOf = map[string]string{"kmsg": "kernel_log", "podmeta": "pod_metadata", "visible": "container_visible"}

// nameOf returns the package of an optional part; empty for one of the program itself.
func nameOf(p part) string {
	if p.room == nil {
		return ""
	}
	path := strings.Split(runtime.FuncForPC(reflect.ValueOf(p.room).Pointer()).Name(), "/")
	return strings.TrimSuffix(path[len(path)-1], ".New")
}

// Without an optional part the exposition lacks the part's own series, and no other line differs.
func TestWithoutEachPart(t *testing.T) {
	const name = helpGolden
	list := cases{}
	for i, p := range parts {
		part := nameOf(p)
		if part == "" {
			continue
		}
		list.add(branchOf(name), part, func(t *testing.T) {
			whole := parts
			parts = slices.Delete(slices.Clone(parts), i, i+1)
			defer func() { parts = whole }()
			s, pods := load(t, name)
			st := play(t, s, pods)
			st.run(64 * time.Second)
			text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "golden", name+".prom"))
			must.OK(t, err)
			want := string(text)
			if feature, has := featuresOf[part]; has {
				line := regexp.MustCompile(`(?m)^gpu_exporter_feature\{feature="` + feature + `".*\n`)
				if !line.MatchString(want) {
					t.Errorf("%s has no feature %s", name, feature)
				}
				want = line.ReplaceAllString(want, "")
			}
			if got := st.metrics(); got != want {
				t.Errorf("without %s:\n%s", part, difference(want, got))
			}
		})
	}
	list.run(t)
}
