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

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The annotation of kubectl apply and the Secret of a Helm release have size limits.
func TestSizes(t *testing.T) {
	rendered := render(t, append([]string{"-f", cases(t)["everything"]}, operator...)...)
	for _, o := range objects(t, rendered) {
		text, err := yaml.YAMLToJSON(o.text)
		must.OK(t, err)
		quoted, _ := json.Marshal(string(text)) // as the annotation of client-side apply
		if len(quoted) > 262144 {
			t.Errorf("%s %s has %d bytes in kubectl's annotation, maximum 262144", o.Kind, o.Metadata.Name, len(quoted))
		}
	}
	// A release has the chart's files and its rendering, in one Secret.
	release := map[string]any{"manifest": rendered}
	var files []map[string]any
	err := filepath.WalkDir(chart(t), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, map[string]any{"name": path, "data": []byte(must.Read(t, path))})
		}
		return err
	})
	must.OK(t, err)
	release["files"] = files
	text, err := json.Marshal(release)
	must.OK(t, err)
	var small bytes.Buffer
	z, _ := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	z.Close()
	if size := base64.StdEncoding.EncodedLen(small.Len()); size > 1<<20 {
		t.Errorf("a release has %d KiB in its Secret, maximum 1024", size>>10)
	} else {
		t.Logf("a release has %d KiB in its Secret", size>>10)
	}
}

// The schema and values.yaml have the same keys.
func TestSchemaKnowsTheValues(t *testing.T) {
	var values map[string]any
	must.OK(t, yaml.Unmarshal([]byte(must.Read(t, filepath.Join(chart(t), "values.yaml"))), &values))
	var schema map[string]any
	must.OK(t, json.Unmarshal([]byte(must.Read(t, filepath.Join(chart(t), "values.schema.json"))), &schema))
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
				t.Errorf("the schema has %s%s, which values.yaml lacks", path, k)
			}
		}
		for k, v := range values {
			p, ok := properties[k].(map[string]any)
			if !ok {
				t.Errorf("values.yaml has %s%s, which the schema lacks", path, k)
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
