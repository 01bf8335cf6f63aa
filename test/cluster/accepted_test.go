package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const operatorKinds = "monitoring.coreos.com/v1/PodMonitor,monitoring.coreos.com/v1/ServiceMonitor,monitoring.coreos.com/v1/PrometheusRule"

func chart() string { return filepath.Join("deploy", "helm", "gpu-exporter") }

// cases are the chart's values files by name.
func cases(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(repository(), chart(), "ci", "*-values.yaml"))
	if err != nil || len(paths) < 6 {
		t.Fatalf("the chart has %d values files for tests: %v", len(paths), err)
	}
	out := map[string]string{}
	for _, p := range paths {
		out[strings.TrimSuffix(filepath.Base(p), "-values.yaml")] = p
	}
	return out
}

// source is something that a user applies.
type source struct {
	name, text string
	// namespace is the target namespace; bare: the manifests do not create it.
	namespace string
	bare      bool
	values    string // of a render of the chart
}

// sources are all manifests that we ship.
func (p *plane) sources(t *testing.T) []source {
	t.Helper()
	var out []source
	for name, values := range cases(t) {
		namespace := "case-" + name
		text := p.helm(t, "template", "gpu-exporter", chart(), "-n", namespace, "-f", values, "--kube-version", p.version(t), "-a",
			operatorKinds)
		out = append(out, source{name: name, text: text, namespace: namespace, bare: true, values: values})
	}
	slices.SortFunc(out, func(a, b source) int { return strings.Compare(a.name, b.name) })
	base := filepath.Join(repository(), "deploy", "kustomize")
	overlays, err := filepath.Glob(filepath.Join(base, "overlays", "*"))
	if err != nil || len(overlays) < 5 {
		t.Fatalf("overlays: %q, %v", overlays, err)
	}
	for _, dir := range append(overlays, filepath.Join(base, "base")) {
		s := source{name: filepath.Base(dir), text: p.kubectl(t, "kustomize", dir), namespace: "gpu-exporter"}
		if !strings.Contains(s.text, "kind: Namespace\n") { // it goes into the operator's
			s.namespace, s.bare = "gpu-operator", true
		}
		out = append(out, s)
	}
	out = append(out, source{name: "with components", text: p.kubectl(t, "kustomize", p.withComponents(t)), namespace: "gpu-exporter"})
	rule, err := os.ReadFile(filepath.Join(repository(), "alerts", "prometheusrule.yaml"))
	noErr(t, err)
	return append(out, source{name: "alerts", text: strings.Replace(string(rule), "metadata:\n", "metadata:\n  namespace: rules\n", 1),
		namespace: "rules", bare: true})
}

// withComponents is a kustomization as users write it: the base, the monitor, the rules and the dashboards.
func (p *plane) withComponents(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	relative := func(to string) string {
		path, err := filepath.Rel(dir, filepath.Join(repository(), "deploy", "kustomize", filepath.FromSlash(to)))
		noErr(t, err)
		return path
	}
	write(t, dir, "kustomization.yaml", "namespace: gpu-exporter\nresources: ["+relative("base")+"]\ncomponents: ["+
		relative("components/prometheus")+", "+relative("components/dashboards")+"]\n")
	return dir
}

func (p *plane) version(t *testing.T) string {
	t.Helper()
	v, err := p.client.Discovery().ServerVersion()
	noErr(t, err)
	return v.GitVersion
}

// The server accepts every shipped object, keeps all of it, and admits the pods of its templates.
func TestAccepted(t *testing.T) {
	p := startPlane(t, admission("restricted"))
	p.prepare(t, true)
	p.namespace(t, "without-label", "")
	p.account(t, "without-label", "gpu-exporter")
	objects, pods := 0, 0
	for _, s := range p.sources(t) {
		t.Run(s.name, func(t *testing.T) {
			if s.bare {
				p.namespace(t, s.namespace, "privileged")
			}
			parsed := parse(t, s.text)
			if len(parsed) == 0 {
				t.Fatal("there is nothing in it")
			}
			notes := ""
			if s.values != "" {
				notes = p.notes(t, s.values)
			}
			for _, o := range parsed {
				if o.GetKind() == "ResourceClaimTemplate" {
					const label = "resource.kubernetes.io/admin-access"
					if err := p.try(t, o); err == nil || !strings.Contains(err.Error(), label) ||
						s.values != "" && !strings.Contains(notes, label+"=true") {
						t.Errorf("%s: without its namespace's label: %v; notes:\n%s", name(o), err, notes)
					}
					p.allowAdminAccess(t, s.namespace)
				}
				if err := p.try(t, o); err != nil {
					t.Errorf("%s is refused: %v", name(o), err)
					continue
				}
				got, err := p.apply(t, o)
				if err != nil {
					t.Errorf("%s is refused: %v", name(o), err)
					continue
				}
				objects++
				if gone := dropped("", stored(o), got.Object); len(gone) > 0 {
					t.Errorf("%s is not kept as it was sent:\n\t%s", name(o), strings.Join(gone, "\n\t"))
				}
			}
			privileged := s.values == "" || strings.Contains(notes, "pod-security.kubernetes.io/enforce=privileged")
			for _, o := range parsed {
				pod := podOf(o)
				if pod == nil {
					continue
				}
				pods++
				p.admits(t, pod, strings.Contains(s.text, "kind: ClusterRole\n") && o.GetKind() == "DaemonSet")
				if s.values == "" {
					continue
				}
				// The same pod in a namespace without labels: the notes name the label exactly if the pod is refused
				// there.
				pod.SetNamespace("without-label")
				err := p.try(t, pod)
				refused := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity")
				if err != nil && !refused {
					t.Errorf("%s: %v", name(pod), err)
				}
				if want := privileged && o.GetKind() == "DaemonSet"; refused != want {
					t.Errorf("%s: without the label on its namespace: %v; the notes name the label: %v", name(pod), err, privileged)
				}
			}
		})
	}
	t.Logf("%d objects and the pods of %d templates", objects, pods)
	if objects < 80 || pods < 14 {
		t.Errorf("only %d objects and %d templates: most is missing", objects, pods)
	}
}

// notes are what Helm prints after it has installed.
func (p *plane) notes(t *testing.T, values string) string {
	t.Helper()
	_, text, ok := strings.Cut(p.helm(t, "install", "gpu-exporter", chart(), "-n", "monitoring", "--dry-run=client", "-f", values),
		"\nNOTES:\n")
	if !ok {
		t.Fatal("there are no notes")
	}
	return text
}

// account waits until a service account is there: the controller makes that of the namespace, we the other.
func (p *plane) account(t *testing.T, namespace, name string) {
	t.Helper()
	if name != "default" {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
			"metadata": map[string]any{"name": name, "namespace": namespace}}}
		if _, err := p.apply(t, o); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the service account default is made", func() error {
		_, err := p.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
}

// podOf is a pod as the controller of an object would make it; nil: it makes none.
func podOf(o *unstructured.Unstructured) *unstructured.Unstructured {
	path := map[string][]string{"DaemonSet": {"spec", "template"}, "CronJob": {"spec", "jobTemplate", "spec", "template"}}[o.GetKind()]
	if path == nil {
		return nil
	}
	template, _, _ := unstructured.NestedMap(o.Object, path...)
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName(o.GetName() + "-of-a-test")
	pod.SetNamespace(o.GetNamespace())
	if restart, _, _ := unstructured.NestedString(template, "spec", "restartPolicy"); restart == "" {
		_ = unstructured.SetNestedField(pod.Object, "Always", "spec", "restartPolicy")
	}
	return pod
}

// admits creates a pod for a trial and looks at what admission made of it.
func (p *plane) admits(t *testing.T, pod *unstructured.Unstructured, token bool) {
	t.Helper()
	p.account(t, pod.GetNamespace(), "default")
	got, err := p.resource(t, pod).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll},
		FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Errorf("%s is refused: %v", name(pod), err)
		return
	}
	// Admission adds a token exactly if one is requested.
	mounted := strings.Contains(fmt.Sprint(got.Object["spec"]), "/var/run/secrets/kubernetes.io/serviceaccount")
	if mounted != token {
		t.Errorf("%s: a token is mounted: %v; a role is bound: %v", name(pod), mounted, token)
	}
	shorten(got, pod)
	if gone := dropped("", pod.Object, got.Object); len(gone) > 0 {
		t.Errorf("%s is not kept as it was sent:\n\t%s", name(pod), strings.Join(gone, "\n\t"))
	}
	class, _, _ := unstructured.NestedString(pod.Object, "spec", "priorityClassName")
	priority, _, _ := unstructured.NestedInt64(got.Object, "spec", "priority")
	if want := map[string]int64{"system-node-critical": 2000001000}[class]; priority != want {
		t.Errorf("%s: priority %d by the class %q", name(pod), priority, class)
	}
}

// shorten removes what admission appended to a pod: the token, and tolerations of every pod.
func shorten(got, sent *unstructured.Unstructured) {
	cut := func(of, like map[string]any, field string) {
		list, _ := of[field].([]any)
		short, _ := like[field].([]any)
		of[field] = list[:min(len(list), len(short))]
	}
	spec, like := got.Object["spec"].(map[string]any), sent.Object["spec"].(map[string]any)
	cut(spec, like, "volumes")
	cut(spec, like, "tolerations")
	for i, c := range spec["containers"].([]any) {
		cut(c.(map[string]any), like["containers"].([]any)[i].(map[string]any), "volumeMounts")
	}
}

// The server refuses an invalid object for each check that TestAccepted relies on: unknown fields of Kubernetes' and of
// the operators' kinds, values, references between fields, and admission.
func TestRefused(t *testing.T) {
	p := startPlane(t, admission("restricted"))
	p.prepare(t, true)
	p.namespace(t, "monitoring", "privileged")
	for _, c := range []struct{ values, kind, old, new, want string }{
		{"default", "DaemonSet", "readOnlyRootFilesystem: true", "readOnlyRootFileSystem: true",
			`unknown field "spec.template.spec.containers[0].securityContext.readOnlyRootFileSystem"`},
		{"default", "DaemonSet", "privileged: false", "privileged: true",
			"cannot set `allowPrivilegeEscalation` to false and `privileged` to true"},
		{"default", "DaemonSet", "  selector:\n    matchLabels:\n      app.kubernetes.io/name: gpu-exporter",
			"  selector:\n    matchLabels:\n      app.kubernetes.io/name: another", "`selector` does not match template `labels`"},
		{"default", "PodMonitor", "honorLabels:", "honourLabels:", `unknown field "spec.podMetricsEndpoints[0].honourLabels"`},
		{"default", "PodMonitor", "action: labeldrop", "action: labelthrow", "Unsupported value"},
		{"default", "PrometheusRule", "  groups:", "  group:", `unknown field "spec.group"`},
		{"cdi", "GrafanaDashboard", "instanceSelector:", "instanceSelectors:", `unknown field "spec.instanceSelectors"`},
		{"openshift", "SecurityContextConstraints", "allowHostIPC: false\n", "", "allowHostIPC: Required value"},
		{"everything", "CronJob", `schedule: "`, `schedule: "every `, "spec.schedule: Invalid value"},
		{"everything", "ResourceQuota", "scopeName: PriorityClass", "scopeName: PriorityKlass", `unsupported scope`},
	} {
		rendered := p.helm(t, "template", "gpu-exporter", chart(), "-n", "monitoring", "-f", cases(t)[c.values], "--kube-version",
			p.version(t), "-a", operatorKinds)
		docs := strings.Split(rendered, "\n---")
		at := slices.IndexFunc(docs, func(doc string) bool {
			return strings.Contains(doc, "\nkind: "+c.kind+"\n") && strings.Contains(doc, c.old)
		})
		if at < 0 {
			t.Errorf("%s of %s has no %q to break", c.kind, c.values, c.old)
			continue
		}
		for _, o := range parse(t, strings.Replace(docs[at], c.old, c.new, 1)) {
			if err := p.try(t, o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s with %q: %v", c.kind, c.new, err)
			}
		}
	}
}

// patch changes an object by a merge.
func (p *plane) patch(t *testing.T, o *unstructured.Unstructured, text string) {
	t.Helper()
	if _, err := p.resource(t, o).Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
