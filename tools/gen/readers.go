package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/dashboards"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat/guide"
)

// reader is something that is shipped and reads metrics.
type reader struct {
	kind, name string
	text       string // its queries
	size       catalog.Size
}

// always are families that identify what others are about, those that `gpu-exporter health` reads, and what a limit of the
// exporter leaves out.
var always = []string{"gpu_exporter_container_accounts", "gpu_exporter_container_accounts_limit",
	"gpu_exporter_container_accounts_aggregated", "gpu_exporter_container_aggregations_total", "gpu_info", "gpu_driver_info",
	"gpu_mig_info", "gpu_pod_info", "gpu_exporter_build_info", "gpu_health",
	"gpu_health_reason_info", "gpu_container_attribution_info"}

// closing are families without which the parts of a GPU do not add up to its total.
var closing = []string{"gpu_unattributed_energy_joules_total"}

// optional are groups that only their switch exports, whatever reads them.
var optional = []string{"calls"}

// coreDashboards work in full with the families of size core.
var coreDashboards = []string{"gpu-fleet", "gpu-capacity", "gpu-namespace", "gpu-health", "gpu-workload"}

// detailPanels are those of their panels that need the default.
var detailPanels = []string{"PCIe and NVLink traffic"}

// dashboardQuery finds the queries of panels and variables in the JSON of a dashboard.
var dashboardQuery = regexp.MustCompile(`"(?:expr|query|definition)": ".*"`)

// shippedReaders returns everything shipped that reads metrics, the report by its source below root.
func shippedReaders(root string) ([]reader, error) {
	var out []reader
	for _, r := range alerts.Records() {
		out = append(out, reader{"record", r.Name, r.Expr, catalog.SizeCore})
	}
	for _, a := range alerts.Alerts() {
		out = append(out, reader{"alert", a.Name, a.Expr, catalog.SizeCore})
		var queries []string
		for _, q := range a.Queries() {
			queries = append(queries, q.Expr)
		}
		out = append(out, reader{"runbook", a.Name, strings.Join(queries, "\n"), catalog.SizeDefault})
	}
	for _, d := range dashboards.All() {
		add := func(d dashboards.Dashboard, size catalog.Size) error {
			files, err := dashboards.Files([]dashboards.Dashboard{d})
			if err == nil {
				queries := dashboardQuery.FindAllString(string(files[0].Pretty), -1)
				out = append(out, reader{"dashboard", d.UID, strings.Join(queries, "\n"), size})
			}
			return err
		}
		err := add(d, catalog.SizeDefault)
		if slices.Contains(coreDashboards, d.UID) {
			err = errors.Join(err, add(d.Without(detailPanels...), catalog.SizeCore))
		}
		if err != nil {
			return nil, err
		}
	}
	report := reader{kind: "report", name: "gpu-report", size: catalog.SizeCore}
	err := filepath.WalkDir(filepath.Join(root, "report"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "reporttest") {
			return err
		}
		text, err := os.ReadFile(path)
		report.text += string(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	entries, err := guide.Entries(compat.DCGM48)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		out = append(out, reader{"rewrite", e.Name, e.Query + "\n" + e.Container, catalog.SizeAll})
	}
	return append(out, report), nil
}

// metricName finds names of metrics and of recording rules.
var metricName = regexp.MustCompile(`\b(?:[a-z]+:)?gpu_[a-z0-9_]+(?::[a-z0-9_]+)?`)

// reads returns the families and records that a text names.
func reads(text string, known map[string]bool) map[string]bool {
	names := map[string]bool{}
	for _, name := range metricName.FindAllString(text, -1) {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			if name, ok := strings.CutSuffix(name, suffix); ok && known[name] {
				names[name] = true
			}
		}
	}
	return names
}

// sizes writes internal/catalog/readers_gen.go, the size of each family and the alerts that need it, and
// docs/evidence/metrics-by-reader.csv, all that reads it.
func sizes(root string, files map[string][]byte) error {
	readers, err := shippedReaders(root)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, f := range catalog.All() {
		known[f.Name] = true
		for _, r := range readers {
			if value := beyond(f, r.text); value != "" && r.size < catalog.SizeAll {
				return fmt.Errorf("%s %s reads %s of %s, which only --metrics=all exports", r.kind, r.name, value, f.Name)
			}
		}
	}
	for _, r := range readers {
		if r.kind == "record" {
			known[r.name] = true
		}
	}
	size, kinds, needed := use(readers, known)
	return writeSizes(root, files, size, kinds, needed)
}

// use returns, by family, the smallest size that a reader needs, its readers by kind, and the alerts that need it.
func use(readers []reader, known map[string]bool) (size map[string]catalog.Size, kinds map[string]map[string][]string,
	needed map[string][]string) {
	// What a record reads is read by those that read the record.
	direct := map[string]map[string]bool{}
	for _, r := range readers {
		direct[r.kind+" "+r.name] = reads(r.text, known)
	}
	var through func(name string, all map[string]bool)
	through = func(name string, all map[string]bool) {
		if all[name] {
			return
		}
		all[name] = true
		for next := range direct["record "+name] {
			through(next, all)
		}
	}
	size, kinds, needed = map[string]catalog.Size{}, map[string]map[string][]string{}, map[string][]string{}
	for _, name := range always {
		size[name] = catalog.SizeCore
	}
	for _, name := range closing {
		size[name] = catalog.SizeDefault
	}
	for _, r := range readers {
		for name := range reads(r.text, known) {
			if kinds[name] == nil {
				kinds[name] = map[string][]string{}
			}
			if list := kinds[name][r.kind]; !slices.Contains(list, r.name) { // a dashboard is read twice
				kinds[name][r.kind] = append(list, r.name)
			}
			size[name] = min(orAll(size[name]), r.size)
		}
		if r.kind == "alert" {
			all := map[string]bool{}
			for name := range direct["alert "+r.name] {
				through(name, all)
			}
			for name := range all {
				needed[name] = append(needed[name], r.name)
			}
		}
	}
	return size, kinds, needed
}

func writeSizes(root string, files map[string][]byte, size map[string]catalog.Size, kinds map[string]map[string][]string,
	needed map[string][]string) error {
	var code, table bytes.Buffer
	code.WriteString("// Code generated by tools/gen. DO NOT EDIT.\n\npackage catalog\n\n// readersOf is by family what reads it.\n" +
		"var readersOf = map[string]readers{\n")
	rows := csv.NewWriter(&table)
	header := []string{"alert", "record", "dashboard", "report", "runbook", "rewrite"}
	_ = rows.Write(append([]string{"metric", "group", "size", "series per H100"}, header...))
	series, err := seriesPerGPU(root)
	if err != nil {
		return err
	}
	for _, g := range catalog.Groups() {
		for _, f := range g.Rows {
			switch {
			case slices.Contains(optional, g.Name):
				size[f.Name] = catalog.SizeAll
			case strings.Contains(f.Offered, "--"): // a flag has asked for it
				size[f.Name] = catalog.SizeCore
			}
			row := []string{f.Name, g.Name, orAll(size[f.Name]).String(), strconv.FormatFloat(series[f.Name], 'f', -1, 64)}
			for _, kind := range header {
				row = append(row, strings.Join(kinds[f.Name][kind], " "))
			}
			_ = rows.Write(row)
			if orAll(size[f.Name]) == catalog.SizeAll {
				continue
			}
			fmt.Fprintf(&code, "%q: {size: %d", f.Name, orAll(size[f.Name]))
			if list := needed[f.Name]; list != nil {
				fmt.Fprintf(&code, ", alerts: %q", strings.Join(slices.Sorted(slices.Values(list)), " "))
			}
			code.WriteString("},\n")
		}
	}
	rows.Flush()
	code.WriteString("}\n")
	text, err := format.Source(code.Bytes())
	if err != nil {
		return err
	}
	files["internal/catalog/readers_gen.go"], files["docs/evidence/metrics-by-reader.csv"] = text, table.Bytes()
	return rows.Error()
}

// beyond returns a value of the last label that a text names and the smaller sizes do not export.
func beyond(f catalog.Family, text string) string {
	if f.Values == nil {
		return ""
	}
	label := f.Labels[len(f.Labels)-1]
	matcher := regexp.MustCompile(`\b` + f.Name + `\{[^}]*\b` + label + `=~?\\*"([a-z_|]+)`)
	for _, m := range matcher.FindAllStringSubmatch(text, -1) {
		for _, value := range strings.Split(m[1], "|") {
			if !slices.Contains(f.Values, value) {
				return value
			}
		}
	}
	return ""
}

// orAll is the size of a family that nothing reads, where there is none.
func orAll(s catalog.Size) catalog.Size {
	if s == 0 {
		return catalog.SizeAll
	}
	return s
}

// seriesPerGPU counts the series of each family in the golden page of a node with eight GPUs, for each GPU.
func seriesPerGPU(root string) (map[string]float64, error) {
	text, err := os.ReadFile(filepath.Join(root, "testdata", "golden", "8xh100-loaded.prom"))
	if err != nil {
		return nil, err
	}
	n := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if name := line[:strings.IndexAny(line, "{ ")]; name != "#" {
			n[name] += 1.0 / 8
		}
	}
	return n, nil
}
