package deploy_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
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

// kinds are the types of upstream that an object must decode into without an unknown field or a value of the wrong type. Grafana and
// OpenShift publish none that this module could import: GrafanaDashboard is decoded by TestDashboards, SecurityContextConstraints by
// TestOpenShift.
var kinds = map[string]func() any{
	"DaemonSet":             func() any { return new(appsv1.DaemonSet) },
	"CronJob":               func() any { return new(batchv1.CronJob) },
	"Namespace":             func() any { return new(corev1.Namespace) },
	"ServiceAccount":        func() any { return new(corev1.ServiceAccount) },
	"Service":               func() any { return new(corev1.Service) },
	"ConfigMap":             func() any { return new(corev1.ConfigMap) },
	"Secret":                func() any { return new(corev1.Secret) },
	"ResourceQuota":         func() any { return new(corev1.ResourceQuota) },
	"ClusterRole":           func() any { return new(rbacv1.ClusterRole) },
	"ClusterRoleBinding":    func() any { return new(rbacv1.ClusterRoleBinding) },
	"NetworkPolicy":         func() any { return new(networkingv1.NetworkPolicy) },
	"ResourceClaimTemplate": func() any { return new(resourcev1.ResourceClaimTemplate) },

	"PodMonitor":     func() any { return new(monitoringv1.PodMonitor) },
	"ServiceMonitor": func() any { return new(monitoringv1.ServiceMonitor) },
	"PrometheusRule": func() any { return new(monitoringv1.PrometheusRule) },

	"GrafanaDashboard": nil, "SecurityContextConstraints": nil,
}

// decode splits manifests into objects and checks each against the type of its kind.
func decode(rendered string) (out []object, err error) {
	for _, doc := range strings.Split("\n"+rendered, "\n---") {
		o := object{text: []byte(doc)}
		if err := yaml.Unmarshal(o.text, &o); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, doc)
		}
		if o.Kind == "" {
			continue
		}
		make, known := kinds[o.Kind]
		if !known {
			return nil, fmt.Errorf("kind %s is not in the table of kinds", o.Kind)
		}
		if make != nil {
			if err := yaml.UnmarshalStrict(o.text, make()); err != nil {
				return nil, fmt.Errorf("%s %s: %w", o.Kind, o.Metadata.Name, err)
			}
		}
		out = append(out, o)
	}
	return out, nil
}

func objects(t *testing.T, rendered string) []object {
	t.Helper()
	out, err := decode(rendered)
	must.OK(t, err)
	return out
}

// A misspelled field, one in the wrong place and a value of the wrong type are found, in Kubernetes' kinds and in the operator's.
func TestDecodeRefuses(t *testing.T) {
	rendered := render(t, operator...)
	for old, changed := range map[string]string{
		"      enableServiceLinks":                "      enableServiceLink",
		"      terminationGracePeriodSeconds: 10": "      terminationGracePeriodSeconds: 10\n      readOnlyRootFilesystem: true",
		"containerPort: 10835":                    "containerPort: ten",
		"  selector:\n    matchLabels:":           "  selectors:\n    matchLabels:",
		"honorLabels: true":                       "honourLabels: true",
	} {
		broken := strings.Replace(rendered, old, changed, 1)
		if _, err := decode(broken); broken == rendered || err == nil {
			t.Errorf("%s is not refused", changed)
		}
	}
}

// installed is a render of the chart, decoded.
type installed struct {
	all       []object
	daemonset appsv1.DaemonSet
	pod       corev1.PodSpec
	container corev1.Container
}

// install renders without dashboards, of which a render has hundreds of kilobytes, unless the arguments set a kind.
func install(t *testing.T, args ...string) installed {
	t.Helper()
	var in installed
	in.all = objects(t, render(t, append([]string{"--set", "dashboards.kind=none"}, args...)...))
	in.find(t, "DaemonSet").into(t, &in.daemonset)
	if labels := in.daemonset.Spec.Template.Labels; len(in.daemonset.Spec.Selector.MatchLabels) == 0 {
		t.Error("the DaemonSet selects every pod")
	} else {
		for k, v := range in.daemonset.Spec.Selector.MatchLabels {
			if labels[k] != v {
				t.Errorf("the DaemonSet selects pods by %s=%s, which its own lack", k, v)
			}
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

// unmarshal decodes parts of an object.
func unmarshal(t *testing.T, o object, out any) {
	t.Helper()
	if err := yaml.Unmarshal(o.text, out); err != nil {
		t.Fatalf("%s %s: %v", o.Kind, o.Metadata.Name, err)
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	must.OK(t, json.Unmarshal([]byte(a), &x))
	must.OK(t, json.Unmarshal([]byte(b), &y))
	return reflect.DeepEqual(x, y)
}
