package cluster_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// parse splits and decodes manifests.
func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, doc := range strings.Split("\n"+text, "\n---") {
		j, err := yaml.YAMLToJSONStrict([]byte(doc))
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if string(j) == "null" {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(j); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		out = append(out, o)
	}
	return out
}

func name(o *unstructured.Unstructured) string { return o.GetKind() + " " + o.GetName() }

// resource is the client of an object's kind, in its namespace.
func (p *plane) resource(t *testing.T, o *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	gvk := o.GroupVersionKind()
	m, err := p.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		p.mapper.Reset()
		m, err = p.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		t.Fatalf("%s: %v", name(o), err)
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		if o.GetNamespace() != "" {
			t.Fatalf("%s: is in namespace %s, and its kind is in none", name(o), o.GetNamespace())
		}
		return p.objects.Resource(m.Resource)
	}
	if o.GetNamespace() == "" {
		t.Fatalf("%s: names no namespace", name(o))
	}
	return p.objects.Resource(m.Resource).Namespace(o.GetNamespace())
}

// try submits an object as a dry run, strictly: without unknown or duplicate fields.
func (p *plane) try(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	_, err := p.resource(t, o).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll},
		FieldValidation: metav1.FieldValidationStrict, FieldManager: "test"})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// apply applies an object on the server's side and returns it as stored.
func (p *plane) apply(t *testing.T, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	text, err := json.Marshal(o)
	noErr(t, err)
	force := true
	if _, err := p.resource(t, o).Patch(t.Context(), o.GetName(), types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict}); err != nil {
		return nil, err
	}
	return p.read(t, o)
}

func (p *plane) read(t *testing.T, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	return p.resource(t, o).Get(t.Context(), o.GetName(), metav1.GetOptions{})
}

// stored is an object as the server stores it: string data of a Secret is encoded.
func stored(o *unstructured.Unstructured) map[string]any {
	texts, _, _ := unstructured.NestedStringMap(o.Object, "stringData")
	if len(texts) == 0 {
		return o.Object
	}
	o = o.DeepCopy()
	delete(o.Object, "stringData")
	for k, v := range texts {
		_ = unstructured.SetNestedField(o.Object, base64.StdEncoding.EncodeToString([]byte(v)), "data", k)
	}
	return o.Object
}

// dropped lists what was sent and is missing or different in the response. The server may add fields.
func dropped(path string, sent, got any) []string {
	switch sent := sent.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok && len(sent) == 0 {
			return nil // an empty one may be left out
		}
		if !ok {
			return []string{fmt.Sprintf("%s: came back as %v", path, got)}
		}
		var out []string
		for k, v := range sent {
			out = append(out, dropped(path+"."+k, v, g[k])...)
		}
		slices.Sort(out)
		return out
	case []any:
		g, ok := got.([]any)
		if len(sent) == 0 && got == nil {
			return nil
		}
		if !ok || len(g) != len(sent) {
			return []string{fmt.Sprintf("%s: %d entries came back as %v", path, len(sent), got)}
		}
		var out []string
		for i := range sent {
			out = append(out, dropped(fmt.Sprintf("%s[%d]", path, i), sent[i], g[i])...)
		}
		return out
	case nil:
		return nil
	}
	if fmt.Sprint(sent) == fmt.Sprint(got) || got == nil && (sent == false || sent == "" || fmt.Sprint(sent) == "0") ||
		sameQuantity(path, sent, got) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v came back as %v", path, sent, got)}
}

// sameQuantity reports whether two amounts are equal: the server writes 0.5 as 500m.
func sameQuantity(path string, sent, got any) bool {
	if !slices.ContainsFunc([]string{".limits.", ".requests.", ".hard."}, func(part string) bool { return strings.Contains(path, part) }) {
		return false
	}
	a, err := resource.ParseQuantity(fmt.Sprint(sent))
	if err != nil {
		return false
	}
	b, err := resource.ParseQuantity(fmt.Sprint(got))
	return err == nil && a.Cmp(b) == 0
}

// namespace creates a namespace that enforces a level of Pod Security; empty: none.
func (p *plane) namespace(t *testing.T, name, level string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name}}}
	if level != "" {
		o.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": level})
	}
	if _, err := p.apply(t, o); err != nil {
		t.Fatal(err)
	}
}

// allowAdminAccess sets the label by which a namespace may claim devices that others have (docs/install.md).
func (p *plane) allowAdminAccess(t *testing.T, namespace string) {
	t.Helper()
	p.kubectl(t, "label", "namespace", namespace, "resource.kubernetes.io/admin-access=true", "--overwrite")
}

// prepare creates what a cluster with NVIDIA's toolkit has: the runtime class, and the operators' kinds if requested.
func (p *plane) prepare(t *testing.T, operators bool) {
	t.Helper()
	for _, o := range parse(t, "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: nvidia}\nhandler: nvidia\n") {
		if _, err := p.apply(t, o); err != nil {
			t.Fatal(err)
		}
	}
	if !operators {
		return
	}
	for _, d := range definitions {
		for _, file := range d.files {
			text, err := os.ReadFile(filepath.Join(module(t, d.module), filepath.FromSlash(file)))
			noErr(t, err)
			for _, o := range parse(t, string(text)) {
				if _, err := p.apply(t, o); err != nil {
					t.Fatalf("%s of %s: %v", name(o), d.module, err)
				}
				eventually(t, name(o)+" is served", func() error {
					got, err := p.read(t, o)
					if err != nil {
						return err
					}
					conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
					for _, c := range conditions {
						if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
							return nil
						}
					}
					return errNotYet
				})
			}
		}
	}
}

// definitions are the kinds of other projects which our objects are of, as these projects publish them.
var definitions = []struct {
	module string
	files  []string
}{
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0",
		[]string{"example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"}},
	{"github.com/grafana/grafana-operator/v5@v5.18.0", []string{"config/crd/bases/grafana.integreatly.org_grafanadashboards.yaml"}},
	{"github.com/openshift/api@v0.0.0-20251015095338-264e80a2b6e7",
		[]string{"security/v1/zz_generated.crd-manifests/0000_03_config-operator_01_securitycontextconstraints.crd.yaml"}},
}

// module is the directory of a module, downloaded if missing.
func module(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", name)
	out, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if json.Unmarshal(out, &answer) != nil || answer.Dir == "" {
		t.Fatalf("%s: %v %s", name, err, answer.Error)
	}
	return answer.Dir
}

// noErr ends the test where there is an error.
func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
