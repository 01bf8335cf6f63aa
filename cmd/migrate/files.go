package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// query is a query, where it was found, and the name under which a rule or adapter makes its result available.
type query struct{ Where, Text, As string }

// read returns the queries of a file, or of the files in a directory.
func read(file string, stdin io.Reader) ([]query, error) {
	if file == "-" {
		text, err := readBounded("standard input", stdin)
		var out []query
		for i, line := range strings.Split(string(text), "\n") {
			if line = strings.TrimSpace(line); line != "" {
				out = append(out, query{fmt.Sprintf("line %d", i+1), line, ""})
			}
		}
		return out, err
	}
	var out []query
	var errs []error
	_ = filepath.WalkDir(file, func(path string, entry fs.DirEntry, err error) error { // of a directory the files of these kinds
		switch {
		case entry == nil:
			_, err = readFile(path) // "open", not "lstat"
			errs = append(errs, err)
		case err != nil:
			errs = append(errs, err)
		case !entry.IsDir() && (path == file || slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(path))):
			found, err := readFile(path)
			out, errs = append(out, found...), append(errs, err)
		}
		return nil
	})
	return out, errors.Join(errs...)
}

func readFile(name string) ([]query, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := readBounded(name, f)
	if err != nil {
		return nil, err
	}
	return parseFile(name, text)
}

// maxFile bounds a file, of which Grafana accepts dashboards of some megabytes.
const maxFile = 64 << 20

func readBounded(name string, r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than %d MiB", name, maxFile>>20)
	}
	return text, err
}

// parseFile parses JSON or YAML, of which JSON is a part, with any number of documents.
func parseFile(where string, text []byte) ([]query, error) {
	var out []query
	dec := yaml.NewDecoder(strings.NewReader(strings.ReplaceAll(string(text), "\t", " ")))
	for {
		var doc any
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: neither JSON nor YAML: %w", where, err)
		}
		out = append(out, walk(where, doc)...)
	}
	return out, nil
}

var (
	labelValues = regexp.MustCompile(`^\s*label_values\((.+),\s*[A-Za-z_]\w*\s*\)\s*$`)
	queryResult = regexp.MustCompile(`^\s*query_result\((.+)\)\s*$`)
	foreign     = regexp.MustCompile(`(?i)\b(DCGM_|nvidia_smi_)\w+`)
	// exporter matches names of the other exporters' jobs and objects, in a selector too.
	exporter = regexp.MustCompile(`(?i)\bdcgm\b|dcgm-exporter|nvidia[-_]gpu[-_]exporter`)
)

// walk finds queries by the keys under which dashboards, rules and autoscalers have them.
func walk(where string, node any) []query {
	var out []query
	switch n := node.(type) {
	case []any:
		for _, x := range n {
			out = append(out, walk(where, x)...)
		}
	case map[string]any:
		if name, ok := firstString(n, "title", "alert", "record", "name"); ok {
			where += ": " + name
		}
		if meta, ok := n["metadata"].(map[string]any); ok { // of an object of Kubernetes, also of a list
			if name, ok := firstString(meta, "name"); ok {
				namespace, _ := meta["namespace"].(string)
				where = strings.TrimSpace(fmt.Sprintf("%s: %v %s", where, n["kind"], path.Join(namespace, name)))
			}
		}
		as, _ := n["record"].(string)
		if series, ok := n["seriesQuery"].(string); ok { // prometheus-adapter
			if name, ok := n["name"].(map[string]any); ok {
				as, _ = name["as"].(string)
			}
			metric, _, _ := strings.Cut(series, "{")
			text, _ := n["metricsQuery"].(string)
			out = append(out, query{where, series, as}, query{where, strings.NewReplacer("<<.Series>>", metric,
				"<<.LabelMatchers>>", `namespace="ns"`, "<<.GroupBy>>", "pod").Replace(text), as})
			return out
		}
		for _, key := range slices.Sorted(maps.Keys(n)) {
			x := n[key]
			text, isText := x.(string)
			switch {
			case !isText:
				out = append(out, walk(where, x)...)
			case !foreign.MatchString(text) && !exporter.MatchString(text):
			case key == "expr" || key == "query" || key == "definition" || key == "timeSeriesQueryLanguage" ||
				key == "prometheusQuery":
				for _, form := range []*regexp.Regexp{labelValues, queryResult} {
					if m := form.FindStringSubmatch(text); m != nil {
						text = m[1]
					}
				}
				if key != "definition" { // a copy of query
					out = append(out, query{where, text, as})
				}
			case (key == "name" || key == "metricName") && foreign.FindString(text) == text: // HPA
				out = append(out, query{where, text, ""})
			case strings.Contains(text, "\n") || path.Ext(key) == ".json": // a file in a ConfigMap
				if inner, err := parseFile(where+": "+key, []byte(text)); err == nil {
					out = append(out, inner...)
				}
			}
		}
	}
	return out
}

func firstString(n map[string]any, keys ...string) (string, bool) {
	for _, key := range keys {
		if text, ok := n[key].(string); ok && text != "" && !foreign.MatchString(text) {
			return text, true
		}
	}
	return "", false
}
