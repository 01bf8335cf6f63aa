package render

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
)

// JSONSchema is the published schema of the JSON format, generated from the document's types.
func JSONSchema() ([]byte, error) {
	defs := map[string]any{}
	root := object(reflect.TypeFor[document.Document](), defs)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = "https://gpu-exporter.github.io/schema/" + document.Schema + ".json"
	root["title"] = "gpu-report"
	root["description"] = "GPU-hours of a fleet by state, its workloads, and advice. Hours are GPU-hours unless a " +
		"description has another unit; what is unknown is absent."
	root["$defs"] = defs
	root["properties"].(map[string]any)["schema"] = map[string]any{"const": document.Schema}
	if p, ok := defs["Advice"].(map[string]any); ok {
		p["properties"].(map[string]any)["code"] = words(document.AdviceCodes())
		p["properties"].(map[string]any)["reason"] = words(document.ReasonCodes())
	}
	out, err := json.MarshalIndent(root, "", " ")
	return append(out, '\n'), err
}

// words is an enumeration with a description of each member.
func words(m map[string]string) map[string]any {
	var list []any
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, map[string]any{"const": k, "description": m[k]})
	}
	return map[string]any{"oneOf": list}
}

func object(t reflect.Type, defs map[string]any) map[string]any {
	properties := map[string]any{}
	required := []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		properties[name] = schemaOf(f.Type, defs)
		if !strings.Contains(rest, "omitempty") {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

func schemaOf(t reflect.Type, defs map[string]any) map[string]any {
	if t == reflect.TypeFor[time.Time]() {
		return map[string]any{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), defs)
	case reflect.Struct:
		if _, ok := defs[t.Name()]; !ok {
			defs[t.Name()] = object(t, defs)
		}
		return map[string]any{"$ref": "#/$defs/" + t.Name()}
	case reflect.Slice:
		// An empty list is null.
		return map[string]any{"type": []string{"array", "null"}, "items": schemaOf(t.Elem(), defs)}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	}
	return map[string]any{"type": "number"}
}
