package deploy_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// What kubectl apply writes beside an object, and what Helm keeps of a release, have limits.
func TestSizes(t *testing.T) {
	in := install(t, append([]string{"-f", cases(t)["everything"]}, operator...)...)
	for _, o := range in.all {
		text, err := yaml.YAMLToJSON(o.text)
		if err != nil {
			t.Fatal(err)
		}
		quoted, _ := json.Marshal(string(text)) // as the annotation of client-side apply
		if len(quoted) > 262144 {
			t.Errorf("%s %s comes to %d bytes in kubectl's annotation; 262144 are allowed", o.Kind, o.Metadata.Name, len(quoted))
		}
	}
	// A release holds the chart's files and what was rendered, and lies in one Secret.
	release := map[string]any{"manifest": render(t, append([]string{"-f", cases(t)["everything"]}, operator...)...)}
	var files []map[string]any
	err := filepath.WalkDir(chart(t), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, map[string]any{"name": path, "data": []byte(fileText(t, path))})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	release["files"] = files
	text, err := json.Marshal(release)
	if err != nil {
		t.Fatal(err)
	}
	var small bytes.Buffer
	z, _ := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	z.Close()
	if size := base64.StdEncoding.EncodedLen(small.Len()); size > 1<<20 {
		t.Errorf("a release comes to %d KiB in its Secret; 1024 are allowed", size>>10)
	} else {
		t.Logf("a release comes to %d KiB in its Secret", size>>10)
	}
}

// The schema and the values speak of the same keys.
func TestSchemaKnowsTheValues(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(fileText(t, filepath.Join(chart(t), "values.yaml"))), &values); err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal([]byte(fileText(t, filepath.Join(chart(t), "values.schema.json"))), &schema); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, values, schema map[string]any)
	walk = func(path string, values, schema map[string]any) {
		if schema["additionalProperties"] != false {
			return // a map of the user's own
		}
		properties, _ := schema["properties"].(map[string]any)
		for _, k := range slices.Sorted(maps.Keys(properties)) {
			if path == "" && k == "global" || optional(path+k) {
				continue
			}
			if _, ok := values[k]; !ok {
				t.Errorf("the schema knows %s%s, which values.yaml does not have", path, k)
			}
		}
		for k, v := range values {
			p, ok := properties[k].(map[string]any)
			if !ok {
				t.Errorf("values.yaml has %s%s, which the schema does not know", path, k)
				continue
			}
			if v, ok := v.(map[string]any); ok {
				walk(path+k+".", v, p)
			}
		}
	}
	walk("", values, schema)
}

// optional are keys that have no default, and old names, which the template refuses.
func optional(key string) bool {
	for _, p := range []string{"resources.requests.", "resources.limits.", "seLinuxOptions.", "updateStrategy.rollingUpdate.",
		"rules.alerts.", "exporter.lanes", "report.window"} {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}
