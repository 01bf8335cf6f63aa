package deploy_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// Where the schemas come from: the API as Kubernetes publishes it, and the operator's own definitions of its kinds.
const (
	kubernetesModule = "k8s.io/kubernetes@v1.36.3"
	operatorModule   = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
)

// unchecked are kinds of which nobody publishes a schema as a module; the tests decode them by hand.
const unchecked = "GrafanaDashboard,SecurityContextConstraints"

// module is the folder of a module, downloaded if it is not there.
func module(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", name)
	cmd.Dir = filepath.Join(root(t), "tools", "helm")
	out, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if json.Unmarshal(out, &answer) != nil || answer.Dir == "" {
		t.Fatalf("%s: %v %s", name, err, answer.Error)
	}
	return answer.Dir
}

// schemas writes one schema for each kind that we use, closed to fields that it does not have, and returns their folder.
var schemas = sync.OnceValues(func() (string, func(*testing.T) error) {
	dir, err := os.MkdirTemp("", "gpu-exporter-schemas-")
	return dir, func(t *testing.T) error {
		if err != nil {
			return err
		}
		return writeSchemas(t, dir)
	}
})

func writeSchemas(t *testing.T, dir string) error {
	var api struct{ Definitions map[string]map[string]any }
	text := fileText(t, filepath.Join(module(t, kubernetesModule), "api", "openapi-spec", "swagger.json"))
	if err := json.Unmarshal([]byte(text), &api); err != nil {
		return err
	}
	for _, d := range api.Definitions {
		closeSchema(d)
	}
	for kind, name := range map[string]string{
		"daemonset-apps-v1": "apps.v1.DaemonSet", "cronjob-batch-v1": "batch.v1.CronJob", "configmap-v1": "core.v1.ConfigMap", "secret-v1": "core.v1.Secret", "service-v1": "core.v1.Service",
		"serviceaccount-v1": "core.v1.ServiceAccount", "resourcequota-v1": "core.v1.ResourceQuota", "namespace-v1": "core.v1.Namespace", "pod-v1": "core.v1.Pod",
		"clusterrole-rbac-v1": "rbac.v1.ClusterRole", "clusterrolebinding-rbac-v1": "rbac.v1.ClusterRoleBinding", "networkpolicy-networking-v1": "networking.v1.NetworkPolicy",
	} {
		full := "io.k8s.api." + name
		needed := map[string]any{}
		reach(api.Definitions, full, needed)
		if err := writeJSON(dir, kind, map[string]any{"$ref": "#/definitions/" + full, "definitions": needed}); err != nil {
			return err
		}
	}
	crds := filepath.Join(module(t, operatorModule), "example", "prometheus-operator-crd")
	for _, kind := range []string{"podmonitor", "servicemonitor", "prometheusrule"} {
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(fileText(t, filepath.Join(crds, "monitoring.coreos.com_"+kind+"s.yaml"))), &crd); err != nil {
			return err
		}
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		closeSchema(schema)
		if err := writeJSON(dir, kind+"-monitoring-v1", schema); err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(dir, kind string, schema any) error {
	text, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, kind+".json"), text, 0o644)
}

// reach collects a definition and all that it speaks of.
func reach(from map[string]map[string]any, name string, into map[string]any) {
	if into[name] != nil {
		return
	}
	into[name] = from[name]
	text, _ := json.Marshal(from[name])
	for _, part := range strings.Split(string(text), `"#/definitions/`)[1:] {
		next, _, _ := strings.Cut(part, `"`)
		reach(from, next, into)
	}
}

// closeSchema makes an API's schema one that a file is held to: no unknown fields, and the two kinds of value that OpenAPI
// spells as a string.
func closeSchema(s map[string]any) {
	if s["format"] == "int-or-string" || s["x-kubernetes-int-or-string"] == true {
		delete(s, "format")
		delete(s, "anyOf")
		s["type"] = []any{"string", "integer"}
	}
	if d, _ := s["description"].(string); strings.HasPrefix(d, "Quantity is a fixed-point") {
		s["type"] = []any{"string", "number"}
	}
	if s["properties"] != nil && s["additionalProperties"] == nil && s["x-kubernetes-preserve-unknown-fields"] != true {
		s["additionalProperties"] = false
	}
	for _, v := range s {
		switch v := v.(type) {
		case map[string]any:
			closeSchema(v)
		case []any:
			for _, e := range v {
				if m, ok := e.(map[string]any); ok {
					closeSchema(m)
				}
			}
		}
	}
}

// conform runs kubeconform over files, and returns what it says.
func conform(t *testing.T, paths ...string) (string, error) {
	t.Helper()
	dir, write := schemas()
	if _, err := os.Stat(filepath.Join(dir, "daemonset-apps-v1.json")); err != nil {
		if err := write(t); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-strict", "-summary", "-output", "text", "-skip", unchecked, "-schema-location", dir + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"}
	out, err := exec.Command(tool(t, "kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform"), append(args, paths...)...).CombinedOutput()
	return string(out), err
}

// Every object that is rendered is one that the API takes.
func TestValid(t *testing.T) {
	dir := t.TempDir()
	for name, values := range cases(t) {
		path := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(path, []byte(render(t, append([]string{"-f", values}, operator...)...)), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := conform(t, path); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// The check itself refuses what it should.
func TestValidRefuses(t *testing.T) {
	rendered := render(t, operator...)
	for name, change := range map[string][2]string{
		"a misspelt field":         {"      hostPID", "      hostPid"},
		"a field of another place": {"      terminationGracePeriodSeconds: 10", "      terminationGracePeriodSeconds: 10\n      readOnlyRootFilesystem: true"},
		"a wrong type":             {"containerPort: 10835", "containerPort: ten"},
		"a missing field":          {"  selector:\n    matchLabels:", "  selectors:\n    matchLabels:"},
		"a monitor's field":        {"honorLabels: true", "honourLabels: true"},
	} {
		old := change[0]
		if name == "a misspelt field" {
			old = "      enableServiceLinks"
		}
		broken := strings.Replace(rendered, old, change[1], 1)
		if broken == rendered {
			t.Errorf("%s: nothing was broken", name)
			continue
		}
		path := filepath.Join(t.TempDir(), "broken.yaml")
		if err := os.WriteFile(path, []byte(broken), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := conform(t, path); err == nil {
			t.Errorf("%s is taken:\n%s", name, out)
		}
	}
}

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

// optional are keys that have no default.
func optional(key string) bool {
	for _, p := range []string{"resources.requests.", "resources.limits.", "seLinuxOptions.", "updateStrategy.rollingUpdate.", "rules.alerts."} {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}
