package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sample is one line of the exposition.
type sample struct {
	family string
	labels map[string]string
	value  float64
}

// exposition is one scrape in the text format, by family.
type exposition map[string][]sample

// parseExposition reads the text format. A line that it cannot read is an error: the exporter wrote it.
func parseExposition(text string) (exposition, error) {
	out := exposition{}
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, err := parseSample(line)
		if err != nil {
			return nil, fmt.Errorf("line %d of the exposition, %q: %w", n+1, line, err)
		}
		out[s.family] = append(out[s.family], s)
	}
	return out, nil
}

func parseSample(line string) (sample, error) {
	end := strings.IndexAny(line, "{ ")
	if end <= 0 {
		return sample{}, fmt.Errorf("no name and value")
	}
	s := sample{family: line[:end], labels: map[string]string{}}
	rest := line[end:]
	if rest[0] == '{' {
		var err error
		if rest, err = parseLabels(rest[1:], s.labels); err != nil {
			return sample{}, err
		}
	}
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a timestamp may follow
	var err error
	s.value, err = strconv.ParseFloat(value, 64)
	return s, err
}

// parseLabels reads up to the closing brace and returns what follows it.
func parseLabels(text string, to map[string]string) (rest string, err error) {
	for {
		text = strings.TrimLeft(text, ", ")
		if after, done := strings.CutPrefix(text, "}"); done {
			return after, nil
		}
		name, after, ok := strings.Cut(text, `="`)
		if !ok {
			return "", fmt.Errorf("labels that do not end")
		}
		var b strings.Builder
		i := 0
		for ; i < len(after) && after[i] != '"'; i++ {
			c := after[i]
			if c == '\\' && i+1 < len(after) {
				i++
				if c = after[i]; c == 'n' {
					c = '\n'
				}
			}
			b.WriteByte(c)
		}
		if i == len(after) {
			return "", fmt.Errorf("the value of label %s does not end", name)
		}
		to[name], text = b.String(), after[i+1:]
	}
}

// matcher is one condition on a label, as in a PromQL selector.
type matcher struct {
	label string
	value *regexp.Regexp
}

// is makes the matcher of one exact value.
func is(label, value string) matcher {
	return matcher{label, regexp.MustCompile("^(?:" + regexp.QuoteMeta(value) + ")$")}
}

// parseSelector reads {a="b", c=~"d|e"}; the empty text selects everything.
func parseSelector(text string) ([]matcher, error) {
	if text == "" {
		return nil, nil
	}
	inner, ok := strings.CutPrefix(text, "{")
	if !ok || !strings.HasSuffix(inner, "}") {
		return nil, fmt.Errorf("selector %q has no braces", text)
	}
	var out []matcher
	for _, part := range strings.Split(strings.TrimSuffix(inner, "}"), ", ") {
		label, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("selector %q: %q is no condition", text, part)
		}
		value, isRegexp := strings.CutPrefix(value, "~")
		value, err := strconv.Unquote(value)
		if err != nil {
			return nil, fmt.Errorf("selector %q: the value of %s: %w", text, label, err)
		}
		if !isRegexp {
			value = regexp.QuoteMeta(value)
		}
		re, err := regexp.Compile("^(?:" + value + ")$")
		if err != nil {
			return nil, fmt.Errorf("selector %q: %w", text, err)
		}
		out = append(out, matcher{label, re})
	}
	return out, nil
}

// find returns the samples of a family that satisfy every matcher.
func (e exposition) find(family string, matchers ...matcher) []sample {
	var out []sample
	for _, s := range e[family] {
		if !slices.ContainsFunc(matchers, func(m matcher) bool { return !m.value.MatchString(s.labels[m.label]) }) {
			out = append(out, s)
		}
	}
	return out
}

// sum adds up what find returns; false if nothing was found.
func (e exposition) sum(family string, matchers ...matcher) (float64, bool) {
	found := e.find(family, matchers...)
	total := 0.0
	for _, s := range found {
		total += s.value
	}
	return total, len(found) > 0
}
