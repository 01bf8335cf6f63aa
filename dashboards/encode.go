package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// File is one generated dashboard. Pretty is for people and diffs; Compact is the same for ConfigMaps, which
// client-side apply limits to 262,144 bytes. Resource is the same dashboard in schema v2, as a resource of Grafana's API, without blanks.
type File struct {
	Name                      string
	Pretty, Compact, Resource []byte
}

// Files checks the dashboards and writes their JSON, the same bytes each time. The rules are the names of the
// recording rules that the dashboards may read. An error is one line that names the dashboard and the panel.
func Files(dashboards []Dashboard, rules []string) ([]File, error) {
	if err := Check(dashboards, rules); err != nil {
		return nil, err
	}
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
func plainText(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			continue
		}
		if text[i+1] == 'u' && i+6 <= len(text) {
			switch string(text[i+2 : i+6]) {
			case "003c":
				out = append(out, '<')
				i += 5
				continue
			case "003e":
				out = append(out, '>')
				i += 5
				continue
			case "0026":
				out = append(out, '&')
				i += 5
				continue
			}
		}
		// Any other escape is two bytes; a backslash that is itself escaped must not begin the next.
		out = append(out, text[i], text[i+1])
		i++
	}
	return out
}
