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

var (
	stringLiteral = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	braces        = regexp.MustCompile(`\{[^{}]*\}`)
	labelList     = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)`)
	grouping      = regexp.MustCompile(`\bby\s*\(([^()]+)\)`)
	window        = regexp.MustCompile(`\[[^\[\]]*\]`)
	identifier    = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
	offset        = regexp.MustCompile(`\boffset\s+-?[0-9a-z$_{}]+`)
	variableUse   = regexp.MustCompile(`\$\{?([a-zA-Z_]+)`)
)

// metricsOf returns the metrics that a query reads. It is no parser (the tests of the module test/ have
// Prometheus' own): it takes away what cannot be a metric and returns the words that are left.
func metricsOf(expr string) []string {
	expr = stringLiteral.ReplaceAllString(expr, `""`)
	expr = braces.ReplaceAllString(expr, "")
	expr = labelList.ReplaceAllString(expr, " ")
	expr = window.ReplaceAllString(expr, "")
	expr = offset.ReplaceAllString(expr, "")
	expr = variableUse.ReplaceAllString(expr, "1")
	var out []string
	for _, at := range identifier.FindAllStringIndex(expr, -1) {
		word := expr[at[0]:at[1]]
		// 1e9 and 5m: the letters of a number.
		if strings.HasSuffix(word, "(") || at[0] > 0 && (isDigit(expr[at[0]-1]) || expr[at[0]-1] == '.') {
			continue
		}
		word = strings.TrimSpace(word)
		if slices.Contains([]string{"and", "or", "unless", "bool", "inf", "Inf", "NaN", "nan", "atan2"}, word) ||
			slices.Contains(out, word) {
			continue
		}
		out = append(out, word)
	}
	return out
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// windowsOf returns the ranges of rate, increase and their like: what stands in the brackets.
func windowsOf(expr string) []string {
	var out []string
	for _, m := range window.FindAllString(stringLiteral.ReplaceAllString(expr, `""`), -1) {
		out = append(out, strings.Trim(m, "[]"))
	}
	return out
}

// variablesOf returns the variables that a text uses, Grafana's own ones apart.
func variablesOf(text string) []string {
	var out []string
	for _, m := range variableUse.FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "__") && !slices.Contains(out, m[1]) {
			out = append(out, m[1])
		}
	}
	return out
}
