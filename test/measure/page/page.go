// Package page turns measured figures into the pages of docs/evidence: one template for each command of measure.
package page

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"text/template"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/process"
)

// Dir is the directory of the pages and of the reports of the hardware check, from the root of the repository.
const Dir = "docs/evidence"

//go:embed pages.tmpl
var text string

// Render renders the template of a command.
func Render(name string, figures any) (string, error) {
	t, err := template.New("").Funcs(template.FuncMap{
		"cell":      cell,
		"thousands": thousands,
		"ms":        func(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()*1000) },
		"seconds":   func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) },
		"cores":     func(perMinute time.Duration) string { return fmt.Sprintf("%.2f", perMinute.Minutes()) },
		"div":       func(a, b float64) float64 { return a / b },
		"mul":       func(a, b float64) float64 { return a * b },
		"sum":       func(a, b float64) float64 { return a + b },
		"float":     func(n int) float64 { return float64(n) },
		"join":      strings.Join,
		"milli":     func(ns float64) string { return fmt.Sprintf("%.2f", ns/1e6) },
		"kilo":      func(v float64) string { return fmt.Sprintf("%.0f", v/1e3) },
		"mega":      func(v float64) string { return fmt.Sprintf("%.1f", v/1e6) },
		"tenth":     func(v float64) string { return fmt.Sprintf("%.1f", v) },
		"times":     func(a, b float64) string { return fmt.Sprintf("%.1f", a/b) },
	}).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.ExecuteTemplate(&b, name, figures)
	return b.String(), err
}

// cell keeps a text inside its table cell.
func cell(s any) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(fmt.Sprint(s))
}

// thousands rounds a number and groups its digits.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", math.Round(v)+0) // -0.4 is 0, not -0
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Machine describes this machine.
func Machine() string {
	memory, _, _ := process.Memory()
	return fmt.Sprintf("%s, %d cores, %.0f GiB of memory, %s, %s/%s", process.Processor(), runtime.NumCPU(),
		memory/1024, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// innermost matches JSON objects that hold no others.
var innermost = regexp.MustCompile(`\{[^{}]*\}`)

// Figures renders figures as JSON.
func Figures(figures any) ([]byte, error) {
	data, err := json.MarshalIndent(figures, "", " ")
	data = innermost.ReplaceAllFunc(data, func(b []byte) []byte { return regexp.MustCompile(`\n *`).ReplaceAll(b, nil) })
	return append(data, '\n'), err
}

// Write replaces a file as a whole.
func Write(path string, data []byte) error {
	part := path + ".part"
	return errors.Join(os.WriteFile(part, data, 0o644), os.Rename(part, path))
}

// Save writes a page, and the figures that it was rendered from beside it.
func Save(dir, name, text string, figures any) error {
	data, err := Figures(figures)
	return errors.Join(err, os.MkdirAll(dir, 0o755), Write(filepath.Join(dir, name+".md"), []byte(text)),
		Write(filepath.Join(dir, name+".json"), data))
}
