// Package render shows a report: as JSON with a published schema, as a self-contained page, as Markdown for a pull
// request, as CSV for a spreadsheet, and as text for a terminal. Names of workloads are data in every one of them.
package render

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/gpu-exporter/gpu-exporter/report/document"
)

// Formats are the available formats.
func Formats() []string { return []string{"html", "md", "csv", "json", "table", "short"} }

// File is the name of a format's file, in CSV of a level.
func File(format, level string) string {
	switch format {
	case "table":
		return "gpu-report.txt"
	case "short":
		return "gpu-report.short.txt"
	case "csv":
		return "gpu-report." + level + ".csv"
	}
	return "gpu-report." + format
}

// Write writes a report in a format.
func Write(w io.Writer, d *document.Document, format string, o Options) error {
	b := bufio.NewWriterSize(w, 1<<16)
	var err error
	switch format {
	case "json":
		e := json.NewEncoder(b)
		e.SetIndent("", " ")
		err = e.Encode(d)
	case "html":
		err = writeHTML(b, d, o)
	case "md":
		err = writeMarkdown(b, d, o)
	case "csv":
		err = writeCSV(b, d, o)
	case "table":
		err = writeTable(b, d, o)
	case "short":
		err = writeShort(b, d, o)
	default:
		err = fmt.Errorf("unknown format %q", format)
	}
	if err != nil {
		return err
	}
	return b.Flush()
}
