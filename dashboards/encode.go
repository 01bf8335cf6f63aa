package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// File is one generated dashboard. Pretty is for people and diffs; Compact is the same for ConfigMaps, which
// client-side apply limits to 262,144 bytes. Resource is the same dashboard in schema v2, as a resource of Grafana's API, without blanks.
type File struct {
	Name                      string
	Pretty, Compact, Resource []byte
}

// Files writes the JSON of the dashboards, the same bytes each time. An error is one line that names the dashboard and the
// panel. What a dashboard must be is checked in the files: lint_test.go, and test/queries for what it asks.
func Files(dashboards []Dashboard) ([]File, error) {
	var out []File
	for _, b := range dashboards {
		d, err := b.render(dashboards)
		if err != nil {
			return nil, err
		}
		f := File{Name: b.UID + ".json"}
		f.Pretty, f.Compact, err = encode(d)
		if err == nil {
			var manifest any
			if manifest, err = resourceOf(d); err == nil {
				_, f.Resource, err = encode(manifest)
				f.Resource = append(f.Resource, '\n')
			}
		}
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", b.UID, err)
		}
		out = append(out, f)
	}
	return out, nil
}

// encode returns the JSON of v with and without blanks.
func encode(v any) (pretty, compact []byte, err error) {
	if compact, err = json.Marshal(v); err != nil {
		return nil, nil, err
	}
	compact = plainText(compact)
	var b bytes.Buffer
	err = json.Indent(&b, compact, "", "  ")
	return append(b.Bytes(), '\n'), compact, err
}

// plainText undoes the HTML escapes of encoding/json: the SDK's own marshallers call json.Marshal, so an
// encoder's setting does not reach them, and PromQL full of > and & should be read by people.
func plainText(text []byte) []byte { return []byte(escapes.Replace(string(text))) }

var escapes = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")
