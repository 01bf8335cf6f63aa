package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var placeholder = regexp.MustCompile(`<([a-z]+)>`)

// expand replaces the placeholders of a query by the matchers of the dashboard's variables.
func (b Dashboard) expand(expr string) (string, error) {
	var broken error
	out := placeholder.ReplaceAllStringFunc(expr, func(m string) string {
		name := m[1 : len(m)-1]
		vars, ok := selectors()[name]
		if !ok {
			broken = fmt.Errorf("query %q: there is no selector %s", expr, m)
			return m
		}
		var matchers []string
		for _, v := range vars {
			if !slices.ContainsFunc(b.Vars, func(have Variable) bool { return have.Name == v }) {
				broken = fmt.Errorf("query %q: %s needs the variable %s", expr, m, v)
			}
			matchers = append(matchers, v+`=~"$`+v+`"`)
		}
		return strings.Join(matchers, ", ")
	})
	return out, broken
}

var grouping = regexp.MustCompile(`\bby\s*\(([^()]+)\)`)
