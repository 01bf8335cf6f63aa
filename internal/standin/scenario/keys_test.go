package scenario

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// What the stand-in driver looks up and what a scenario may say are the same list.
func TestKeysMatchTheDriver(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/fakenvml/*.c")
	if err != nil || len(files) == 0 {
		t.Fatalf("no C sources: %v", err)
	}
	// A key is the argument of a call's frame or of a lookup, or names a getter made by a macro.
	patterns := []*regexp.Regexp{
		regexp.MustCompile(`CALL\("(\w+)"`),
		regexp.MustCompile(`answer_(?:u32|u64|number|text)\(&?\w+, "(\w+)"`),
		regexp.MustCompile(`three\(&call, "(\w+)"`),
		regexp.MustCompile(`(?:sizeof key|answer), "(\w+)\[`),
		regexp.MustCompile(`scenario_answer\(.*, "(\w+)"`),
		regexp.MustCompile(`(?m)^(?:TEXT|NUMBER|INDEXED|INDEXED_TEXT|STRUCT|PAIR|ENGINE)\((\w+)`),
		regexp.MustCompile(`(?m)^LIST\(\w+, "(\w+)"`),
		regexp.MustCompile(`return init\(__func__, "(\w+)"`),
	}
	var driver []string
	for _, name := range files {
		text := must.Read(t, name)
		joined := strings.ReplaceAll(text, "\n                                ", " ")
		for _, p := range patterns {
			for _, m := range p.FindAllStringSubmatch(joined, -1) {
				driver = append(driver, m[1])
			}
		}
	}
	slices.Sort(driver)
	driver = slices.Compact(driver)
	for _, k := range keys {
		if !slices.Contains(driver, k.name) {
			t.Errorf("a scenario may say %s, which the driver never looks up", k.name)
		}
	}
	for _, name := range driver {
		if _, known := findKey(name); !known {
			t.Errorf("the driver looks up %s, which no scenario can say", name)
		}
	}
	for i, k := range keys {
		if len(k.components) > maxComponents {
			t.Errorf("%s has too many components", k.name)
		}
		if slices.ContainsFunc(keys[:i], func(other keyRow) bool { return other.name == k.name }) {
			t.Errorf("%s is in the list twice", k.name)
		}
	}
}

// The names of return codes and variables are those of the driver's sources, in its order.
func TestVariablesMatchTheDriver(t *testing.T) {
	text := must.Read(t, "../../../testdata/fakenvml/scenario.c")
	list := regexp.MustCompile(`(?s)variable_names\[\] = \{(.*?)\}`).FindStringSubmatch(text)
	if list == nil {
		t.Fatal("the list of variables is not in scenario.c")
	}
	var names []string
	for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(list[1], -1) {
		names = append(names, m[1])
	}
	if !slices.Equal(names, variables) {
		t.Errorf("the driver knows %v, a scenario %v", names, variables)
	}
}
