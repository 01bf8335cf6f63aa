package hwcheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/hardware"
	"github.com/gpu-exporter/gpu-exporter/test/measure/page"
)

// The part of docs/evidence/hardware.md that is written from the reports.
const (
	reportsBegin = "<!-- reports: begin; written by `measure reports` -->\n"
	reportsEnd   = "<!-- reports: end -->\n"
)

// Reports returns what the reports in docs/evidence/hardware have: a table for internal/hardware, and the part of docs/evidence/hardware.md
// with a line for each report and one for each contradicted claim.
func Reports(dir string) (table, section string, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return "", "", err
	}
	var lines, rows, open []string
	for _, path := range paths {
		if strings.HasSuffix(path, ".probe.json") {
			continue
		}
		var r Report
		data, err := os.ReadFile(path)
		if err = errors.Join(err, json.Unmarshal(data, &r)); err != nil {
			return "", "", fmt.Errorf("%s: %w", path, err)
		}
		verdicts := map[int]string{}
		for _, c := range r.Checks {
			switch {
			case c.Number == 0:
			case c.Outcome == finding:
				verdicts[c.Number] = hardware.Contradicted
				open = append(open, fmt.Sprintf("| %d | %s | %s, %s | %s | %s |\n", c.Number, c.Name, r.Model, r.Driver, c.Expected,
					c.Measured))
			case c.Outcome == passed && verdicts[c.Number] == "":
				verdicts[c.Number] = hardware.Confirmed
			}
		}
		counts := map[string]int{}
		for n := 1; n <= len(hardware.Names()); n++ {
			if v := verdicts[n]; v != "" {
				lines = append(lines, fmt.Sprintf("%s|%s|%d|%s\n", r.Model, r.Driver, n, v))
				counts[v]++
			}
		}
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		rows = append(rows, fmt.Sprintf("| [%s](hardware/%s.md) | %s | %s | %d | %d |\n", r.Model, name, r.Driver, r.Date,
			counts[hardware.Confirmed], counts[hardware.Contradicted]))
	}
	if len(rows) == 0 {
		return "", "**None yet.** Everything in this documentation rests on public recordings of NVML and nvidia-smi output, NVIDIA's\n" +
			"headers, and a fake driver.\n", nil
	}
	section = "| GPU | driver | date | claims confirmed | contradicted |\n|---|---|---|---|---|\n" + strings.Join(rows, "")
	if len(open) > 0 {
		slices.Sort(open)
		section += "\n## Contradicted claims\n\n| number | claim | on | expected | measured |\n|---|---|---|---|---|\n" +
			strings.Join(open, "")
	}
	return strings.Join(lines, ""), section, nil
}

// SaveReports writes both, below the root of the repository.
func SaveReports(root string) error {
	table, section, err := Reports(filepath.Join(root, page.Dir, "hardware"))
	if err != nil {
		return err
	}
	path := filepath.Join(root, page.Dir, "hardware.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, _, ok := strings.Cut(string(text), reportsBegin)
	_, after, ok2 := strings.Cut(string(text), reportsEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no %q", path, reportsBegin)
	}
	return errors.Join(page.Write(path, []byte(before+reportsBegin+section+reportsEnd+after)),
		page.Write(filepath.Join(root, "internal", "hardware", "reports.txt"), []byte(table)))
}
