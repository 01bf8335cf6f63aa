package deploy_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/pod-security-admission/api"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// byHelm are the lines that only Helm needs.
var byHelm = regexp.MustCompile(`(?m)^( +helm\.sh/chart: .*| +app\.kubernetes\.io/managed-by: Helm|# Source: .*)\n`)

// ofNamespace is the line of an object that a kustomization places.
var ofNamespace = regexp.MustCompile(`(?m)^  namespace: .*\n`)

const written = "# Rendered from the chart by make generate; do not edit.\n"

// variants are the manifests made from the chart: where they go, and with which values.
var variants = []struct {
	path, namespace, values, set string
	placed                       bool
}{
	{path: "base", namespace: "gpu-exporter", values: "default"},
	{path: "overlays/gke", namespace: "gpu-exporter", values: "gke"},
	{path: "overlays/openshift", namespace: "gpu-exporter", values: "openshift"},
	{path: "overlays/gpu-operator", namespace: "gpu-operator", values: "gpu-operator"},
	{path: "overlays/gpu-cluster", namespace: "gpu-operator", values: "gpu-cluster"},
	{path: "overlays/kind", namespace: "gpu-exporter", values: "default",
		set: "features.ownership=false,gpu.access=none,scheduling.gpuNodeLabels=null,scheduling.followPause=false," +
			"scheduling.tolerateAll=true,scheduling.priorityClassName="},
	{path: "components/prometheus", namespace: "gpu-exporter", values: "default", placed: true},
	{path: "components/dcgm-names", namespace: "gpu-exporter", values: "default", placed: true, set: "compat.release=dcgm-4.8"},
}

// The manifests are what the chart renders.
func TestKustomizeGenerated(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		set, file := "monitoring.kind=none,rules.kind=none,dashboards.kind=none", "gpu-exporter.yaml"
		if v.placed {
			set, file = "monitoring.kind=PodMonitor,rules.kind=none,dashboards.kind=none", "podmonitor.yaml"
		}
		if v.set != "" {
			set += "," + v.set
		}
		out, err := helm(t, "template", "gpu-exporter", chart(t), "-n", v.namespace, "-f", cases(t)[v.values], "--set", set)
		if err != nil {
			t.Fatalf("%s: %s", v.path, out)
		}
		var docs []string
		for _, doc := range strings.Split("\n"+byHelm.ReplaceAllString(out, ""), "\n---\n") {
			doc = strings.TrimSpace(doc)
			monitoring := strings.Contains(doc, "apiVersion: monitoring.coreos.com/")
			if doc == "" || monitoring != v.placed {
				continue
			}
			if v.placed {
				doc = ofNamespace.ReplaceAllString(doc, "")
			}
			if strings.HasPrefix(v.set, "compat.") {
				doc = ofOtherNames(t, doc)
			}
			docs = append(docs, doc+"\n")
		}
		compare(t, filepath.Join(root(t), "deploy", "kustomize", filepath.FromSlash(v.path), file), written+strings.Join(docs, "---\n"))
	}
}

// ofOtherNames keeps the endpoint of dcgm-exporter's names in a PodMonitor and renames it, so that it can be used beside
// or without the one of /metrics.
func ofOtherNames(t *testing.T, doc string) string {
	t.Helper()
	before, rest, ok := strings.Cut(doc, "  podMetricsEndpoints:\n")
	_, others, ok2 := strings.Cut(rest, "    # The metric names of another exporter.\n")
	if !ok || !ok2 || strings.Count(before, "  name: gpu-exporter\n") != 1 {
		t.Fatalf("no endpoint of other names in\n%s", doc)
	}
	return strings.Replace(before, "  name: gpu-exporter\n", "  name: gpu-exporter-dcgm-names\n", 1) + "  podMetricsEndpoints:\n" + others
}

func kustomize(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command(servers.Build(t, servers.Kustomize), "build", dir)
	out, err := cmd.Output()
	if err != nil {
		text := ""
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			text = string(exit.Stderr)
		}
		t.Fatalf("kustomize build %s: %v\n%s", dir, err, text)
	}
	return string(out)
}

// Every directory builds, and its objects are valid.
func TestKustomizeBuilds(t *testing.T) {
	t.Parallel()
	base := filepath.Join(root(t), "deploy", "kustomize")
	for _, v := range variants {
		if v.placed {
			continue
		}
		t.Run(v.path, func(t *testing.T) {
			built := kustomize(t, filepath.Join(base, filepath.FromSlash(v.path)))
			for _, o := range objects(t, built) {
				if o.Metadata.Namespace != "" && o.Metadata.Namespace != v.namespace {
					t.Errorf("%s %s is in %s", o.Kind, o.Metadata.Name, o.Metadata.Namespace)
				}
			}
		})
	}
}

// The demo's namespace is restricted, and the demo is admitted to it.
func TestKustomizeDemo(t *testing.T) {
	in := installed{all: objects(t, kustomize(t, filepath.Join(root(t), "deploy", "kustomize", "overlays", "kind")))}
	in.find(t, "DaemonSet").into(t, &in.daemonset)
	in.pod = in.daemonset.Spec.Template.Spec
	in.container = in.pod.Containers[0]
	if got := violations(t, in, api.LevelRestricted); len(got) != 0 {
		t.Errorf("the demo breaks %v, and its namespace is restricted", got)
	}
}

// A user's kustomization combines the base and the components and sets their namespace.
func TestKustomizeComponents(t *testing.T) {
	base := filepath.Join(root(t), "deploy", "kustomize")
	dir := t.TempDir()
	relative := func(to string) string {
		p, err := filepath.Rel(dir, filepath.Join(base, to))
		must.OK(t, err)
		return p
	}
	text := "namespace: gpu-exporter\nresources: [" + relative("base") + "]\ncomponents: [" + relative("components/prometheus") + ", " +
		relative("components/dashboards") + ", " + relative("components/dcgm-names") + "]\n" +
		"images: [{name: registry.example.com/gpu-exporter, newName: registry.test/gpu-exporter}]\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644))
	built := kustomize(t, dir)
	var boards, rules int
	paths := map[string]string{}
	var kinds []string
	for _, o := range objects(t, built) {
		kinds = append(kinds, o.Kind)
		if o.Kind == "PrometheusRule" && o.Metadata.Namespace == "gpu-exporter" {
			rules++
		}
		if o.Kind == "PodMonitor" {
			var m monitor
			unmarshal(t, o, &m)
			for _, e := range m.endpoints() {
				paths[o.Metadata.Name] += o.Metadata.Namespace + " " + e.Path
			}
		}
		if o.Kind == "DaemonSet" {
			var d appsv1.DaemonSet
			o.into(t, &d)
			if e, _ := (installed{container: d.Spec.Template.Spec.Containers[0]}).env("GPU_EXPORTER_COMPAT"); e.Value != "dcgm-4.8" {
				t.Errorf("GPU_EXPORTER_COMPAT is %q", e.Value)
			}
		}
		if o.Kind == "ConfigMap" {
			boards++
			if o.Metadata.Labels["grafana_dashboard"] != "1" || o.Metadata.Namespace != "gpu-exporter" {
				t.Errorf("dashboard %s: %v in %s", o.Metadata.Name, o.Metadata.Labels, o.Metadata.Namespace)
			}
		}
	}
	if want := (map[string]string{"gpu-exporter": "gpu-exporter /metrics",
		"gpu-exporter-dcgm-names": "gpu-exporter /metrics/dcgm"}); !maps.Equal(paths, want) {
		t.Errorf("scraped are %v, want %v", paths, want)
	}
	if boards < 9 || rules != 1 || !slices.Contains(kinds, "PodMonitor") ||
		!strings.Contains(built, "image: registry.test/gpu-exporter:") {
		t.Errorf("%d dashboards; kinds %v", boards, kinds)
	}
}
