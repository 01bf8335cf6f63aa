package deploy_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/internal/must"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
)

// monitor is what a PodMonitor and a ServiceMonitor have in common.
type monitor struct {
	Spec struct {
		PodMetricsEndpoints, Endpoints []endpoint
		NamespaceSelector              struct{ MatchNames []string }
		Selector                       struct{ MatchLabels map[string]string }
		SampleLimit                    int
	}
}

type endpoint struct {
	Port, Path, Scheme, Interval, ScrapeTimeout string
	HonorLabels                                 bool
	Relabelings, MetricRelabelings              []relabeling
	BasicAuth                                   struct{ Username, Password struct{ Name, Key string } }
	TLSConfig                                   struct {
		ServerName string
		CA         struct{ Secret struct{ Name, Key string } }
	}
}

type relabeling struct {
	SourceLabels                            []string
	TargetLabel, Action, Regex, Replacement string
}

// endpoints are those of a monitor of either kind.
func (m monitor) endpoints() []endpoint {
	return append(m.Spec.PodMetricsEndpoints, m.Spec.Endpoints...)
}

// Both kinds scrape the exporter's pods and keep its labels. TestRelabelled has those of the target.
func TestMonitors(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"PodMonitor", "ServiceMonitor"} {
		in := install(t, "--set", "monitoring.kind="+kind)
		var m monitor
		unmarshal(t, in.find(t, kind), &m)
		endpoints := m.endpoints()
		if len(endpoints) != 1 {
			t.Fatalf("%s: %d endpoints", kind, len(endpoints))
		}
		e := endpoints[0]
		if !e.HonorLabels || e.Port != in.container.Ports[0].Name || e.Path != "/metrics" {
			t.Errorf("%s: %+v", kind, e)
		}
		for k, v := range m.Spec.Selector.MatchLabels {
			if in.daemonset.Spec.Template.Labels[k] != v {
				t.Errorf("%s looks for %s=%s, which the pods do not have", kind, k, v)
			}
		}
		if m.Spec.NamespaceSelector.MatchNames != nil {
			t.Errorf("%s looks in %v; it is in the pods' namespace", kind, m.Spec.NamespaceSelector.MatchNames)
		}
		unmarshal(t, install(t, "--set", "monitoring.namespace=prometheus,monitoring.kind="+kind).find(t, kind), &m)
		if !slices.Equal(m.Spec.NamespaceSelector.MatchNames, []string{"monitoring"}) {
			t.Errorf("%s looks in %v from another namespace", kind, m.Spec.NamespaceSelector.MatchNames)
		}
		isService := func(k string) bool { return strings.HasPrefix(k, "Service ") }
		if service := slices.ContainsFunc(in.kinds(), isService); service != (kind == "ServiceMonitor") {
			t.Errorf("%s: a service: %v", kind, service)
		}
	}
}

// dcgm-exporter's names have an endpoint of their own, where the exporter serves them; it is scraped as the exporter's own is, under
// another job.
func TestMonitorOfDCGMNames(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"PodMonitor", "ServiceMonitor"} {
		for _, c := range []struct {
			set   string
			honor bool
		}{
			{"compat.release=dcgm-4.9", true},
			{"compat.release=dcgm-4.8,compat.job=dcgm-exporter,compat.honorLabels=false", false},
		} {
			in := install(t, "--set", "monitoring.kind="+kind+",monitoring.interval=20s,monitoring.metricRelabelings[0].action=drop,"+c.set)
			var m monitor
			unmarshal(t, in.find(t, kind), &m)
			endpoints := m.endpoints()
			if len(endpoints) != 2 {
				t.Fatalf("%s, %s: %d endpoints", kind, c.set, len(endpoints))
			}
			own, others := endpoints[0], endpoints[1]
			if others.Path != compat.DCGM48.Path() || others.HonorLabels != c.honor || others.MetricRelabelings != nil {
				t.Errorf("%s, %s: %+v", kind, c.set, others)
			}
			if others.Port != own.Port || others.Interval != "20s" || !own.HonorLabels || own.Path != "/metrics" ||
				len(own.MetricRelabelings) != 1 {
				t.Errorf("%s, %s: the own endpoint is %+v, the other %+v", kind, c.set, own, others)
			}
			if e, _ := in.env("GPU_EXPORTER_COMPAT"); !strings.HasPrefix(c.set, "compat.release="+e.Value) || e.Value == "" {
				t.Errorf("%s: GPU_EXPORTER_COMPAT is %q", c.set, e.Value)
			}
		}
	}
	// At dcgm-exporter's port: the GPU Operator's names, which its ServiceMonitor selects.
	in := install(t, "--set", "monitoring.kind=ServiceMonitor,compat.release=dcgm-4.8,compat.port=9400")
	var m monitor
	unmarshal(t, in.find(t, "ServiceMonitor"), &m)
	if e := m.endpoints()[1]; e.Port != "gpu-metrics" || e.Path != "/metrics" ||
		slices.ContainsFunc(e.Relabelings, func(r relabeling) bool { return r.TargetLabel == "instance" }) {
		t.Errorf("at port 9400: %+v", e)
	}
	if e, _ := in.env("GPU_EXPORTER_COMPAT_LISTEN_ADDRESS"); e.Value != ":9400" {
		t.Errorf("GPU_EXPORTER_COMPAT_LISTEN_ADDRESS is %q", e.Value)
	}
	var services []string
	for _, k := range in.kinds() {
		if strings.HasPrefix(k, "Service ") {
			services = append(services, k)
		}
	}
	if !slices.Contains(services, "Service gpu-exporter-compat") {
		t.Errorf("the services are %q", services)
	}
	if _, set := install(t).env("GPU_EXPORTER_COMPAT"); set {
		t.Error("the exporter serves other names by default")
	}
	for _, release := range compat.Releases() {
		install(t, "--set", "compat.release="+release)
	}
}

// A kind that the cluster lacks is only rendered if the user requests it.
func TestMonitoringAuto(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{{nil, false}, {operator, true}, {append(slices.Clone(operator), "--set", "monitoring.kind=none"), false},
		{[]string{"--set", "monitoring.kind=PodMonitor"}, true}} {
		got := slices.Contains(install(t, c.args...).kinds(), "PodMonitor gpu-exporter")
		if got != c.want {
			t.Errorf("%v: a PodMonitor: %v", c.args, got)
		}
	}
}

// The monitor's scheme and credentials match those of the server.
func TestMonitorTLS(t *testing.T) {
	in := install(t, append([]string{"-f", cases(t)["everything"]}, operator...)...)
	var m monitor
	unmarshal(t, in.find(t, "PodMonitor"), &m)
	if n := len(m.endpoints()); n != 2 {
		t.Errorf("%d endpoints", n)
	}
	for _, e := range m.endpoints() {
		if e.Scheme != "https" || e.TLSConfig.CA.Secret.Name != "gpu-exporter-tls" ||
			e.TLSConfig.ServerName != "gpu-exporter.monitoring.svc" ||
			e.BasicAuth.Username.Name != "scrape" || e.BasicAuth.Password.Key != "password" || e.Interval != "30s" ||
			m.Spec.SampleLimit != 2000000 {
			t.Errorf("the endpoint is %+v", e)
		}
	}
	var s struct{ StringData map[string]string }
	unmarshal(t, in.find(t, "Secret"), &s)
	for _, want := range []string{"cert_file: /etc/gpu-exporter/tls/tls.crt", "key_file: /etc/gpu-exporter/tls/tls.key",
		"prometheus: $2y$10$"} {
		if !strings.Contains(s.StringData["web-config.yml"], want) {
			t.Errorf("web-config.yml has no %s:\n%s", want, s.StringData["web-config.yml"])
		}
	}
}

// The dashboards equal those of the repository.
func TestDashboards(t *testing.T) {
	t.Parallel()
	for kind, field := range map[string]string{"ConfigMap": "data", "GrafanaDashboard": "spec"} {
		in := install(t, "--set", "dashboards.kind="+kind)
		dashboards := 0
		for _, o := range in.all {
			if o.Kind != kind {
				continue
			}
			dashboards++
			var got struct {
				Data map[string]string
				Spec struct {
					JSON, Folder     string
					InstanceSelector struct{ MatchLabels map[string]string }
				}
			}
			unmarshal(t, o, &got)
			name := "gpu-" + strings.TrimPrefix(o.Metadata.Name, "gpu-exporter-dashboard-") + ".json"
			text := got.Spec.JSON
			if field == "data" {
				text = got.Data[name]
				if o.Metadata.Labels["grafana_dashboard"] != "1" || o.Metadata.Annotations["grafana_folder"] != "GPU" {
					t.Errorf("%s: labels %v, annotations %v", o.Metadata.Name, o.Metadata.Labels, o.Metadata.Annotations)
				}
			} else if got.Spec.Folder != "GPU" || len(got.Spec.InstanceSelector.MatchLabels) == 0 {
				t.Errorf("%s: %q, selector %v", o.Metadata.Name, got.Spec.Folder, got.Spec.InstanceSelector)
			}
			if !sameJSON(t, text, must.Read(t, root(t)+"/dashboards/"+name)) {
				t.Errorf("%s is not the dashboard of the repository", o.Metadata.Name)
			}
		}
		if dashboards < 9 {
			t.Errorf("%d dashboards as %s", dashboards, kind)
		}
	}
}

// Without its own DaemonSet the chart has all that is not on a node, and scrapes the exporter's own names of a DaemonSet that
// others made: those of the GPU Operator and of dcgm-exporter's chart.
func TestWithoutTheDaemonSet(t *testing.T) {
	t.Parallel()
	for file, set := range map[string]string{
		"gpu-operator":        "exporter.external.namespace=gpu-operator",
		"dcgm-exporter-chart": `exporter.external.namespace=gpu,exporter.external.labels.app\.kubernetes\.io/name=dcgm-exporter`,
	} {
		in := installed{all: objects(t, render(t, append(operator, "--set", "exporter.enabled=false,"+
			"networkPolicy.enabled=true,openshift.scc=true,service.enabled=true,features.podMetadata=true,"+
			"report.enabled=true,report.prometheusURL=http://prometheus:9090,dashboards.kind=ConfigMap,"+set)...))}
		var kinds []string
		for _, o := range in.all {
			kinds = append(kinds, o.Kind)
		}
		slices.Sort(kinds)
		if kinds = slices.Compact(kinds); !slices.Equal(kinds, []string{"ConfigMap", "CronJob", "PodMonitor", "PrometheusRule"}) {
			t.Errorf("%s: %q", file, kinds)
		}
		same(t, in.rules(t, "PrometheusRule"), tables(t, alerts.Default()))
		var m monitor
		unmarshal(t, in.find(t, "PodMonitor"), &m)
		external := installed{all: objects(t, must.Read(t, filepath.Join("..", "shipped", "testdata", "stands-in", file+".yaml")))}
		external.find(t, "DaemonSet").into(t, &external.daemonset)
		pod := external.daemonset.Spec.Template
		for k, v := range m.Spec.Selector.MatchLabels {
			if pod.Labels[k] != v || len(m.Spec.Selector.MatchLabels) != 1 {
				t.Errorf("%s: the monitor selects %v, the pods have %v", file, m.Spec.Selector.MatchLabels, pod.Labels)
			}
		}
		namespace, _, _ := strings.Cut(strings.TrimPrefix(set, "exporter.external.namespace="), ",")
		if e := m.endpoints(); len(e) != 1 || e[0].Path != "/metrics/gpu" || !e[0].HonorLabels ||
			e[0].Port != pod.Spec.Containers[0].Ports[0].Name || !slices.Equal(m.Spec.NamespaceSelector.MatchNames, []string{namespace}) {
			t.Errorf("%s: %+v in %v", file, e, m.Spec.NamespaceSelector.MatchNames)
		}
	}
}
