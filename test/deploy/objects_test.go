package deploy_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// object is what is common to all kinds.
type object struct {
	APIVersion, Kind string
	Metadata         struct {
		Name, Namespace     string
		Labels, Annotations map[string]string
	}
	text []byte
}

// into decodes the object, and refuses fields that its kind does not have.
func (o object) into(t *testing.T, out any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(o.text, out); err != nil {
		t.Fatalf("%s %s: %v", o.Kind, o.Metadata.Name, err)
	}
}

// objects takes a render apart.
func objects(t *testing.T, rendered string) []object {
	t.Helper()
	var out []object
	for _, doc := range strings.Split("\n"+rendered, "\n---") {
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if o.Kind != "" {
			o.text = []byte(doc)
			out = append(out, o)
		}
	}
	return out
}

// installed is a render in the words of Kubernetes.
type installed struct {
	all       []object
	daemonset appsv1.DaemonSet
	pod       corev1.PodSpec
	container corev1.Container
}

func install(t *testing.T, args ...string) installed {
	t.Helper()
	var in installed
	in.all = objects(t, render(t, args...))
	for _, o := range in.all {
		switch o.Kind {
		case "DaemonSet":
			o.into(t, &in.daemonset)
		case "ServiceAccount":
			o.into(t, &corev1.ServiceAccount{})
		case "Service":
			o.into(t, &corev1.Service{})
		case "ConfigMap":
			o.into(t, &corev1.ConfigMap{})
		case "Secret":
			o.into(t, &corev1.Secret{})
		case "ResourceQuota":
			o.into(t, &corev1.ResourceQuota{})
		case "ClusterRole":
			o.into(t, &rbacv1.ClusterRole{})
		case "ClusterRoleBinding":
			o.into(t, &rbacv1.ClusterRoleBinding{})
		case "CronJob":
			o.into(t, &batchv1.CronJob{})
		case "NetworkPolicy":
			o.into(t, &networkingv1.NetworkPolicy{})
		case "PodMonitor", "ServiceMonitor", "PrometheusRule", "GrafanaDashboard", "SecurityContextConstraints":
		default:
			t.Errorf("the chart makes a %s, of which this test knows nothing", o.Kind)
		}
	}
	in.pod = in.daemonset.Spec.Template.Spec
	if len(in.pod.Containers) != 1 || len(in.pod.InitContainers) != 0 {
		t.Fatalf("%d containers and %d init containers; the exporter is one", len(in.pod.Containers), len(in.pod.InitContainers))
	}
	in.container = in.pod.Containers[0]
	return in
}

// kinds are the kinds of the objects, with their names.
func (in installed) kinds() []string {
	var out []string
	for _, o := range in.all {
		out = append(out, o.Kind+" "+o.Metadata.Name)
	}
	return out
}

func (in installed) find(t *testing.T, kind string) object {
	t.Helper()
	for _, o := range in.all {
		if o.Kind == kind {
			return o
		}
	}
	t.Fatalf("no %s among %v", kind, in.kinds())
	return object{}
}

func (in installed) env(name string) (corev1.EnvVar, bool) {
	for _, e := range in.container.Env {
		if e.Name == name {
			return e, true
		}
	}
	return corev1.EnvVar{}, false
}

// unmarshal decodes what a test wants to know of an object.
func unmarshal(t *testing.T, o object, out any) {
	t.Helper()
	if err := yaml.Unmarshal(o.text, out); err != nil {
		t.Fatalf("%s %s: %v", o.Kind, o.Metadata.Name, err)
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}
