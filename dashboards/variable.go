package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Variable is one of Grafana's template variables.
type Variable struct {
	Name, Label, Help string
	// Query is label_values or query_result; empty for the data source and a text box.
	Query string
	// Text is the default of a text box.
	Text string
	// Regex names the captures text and value of a query_result.
	Regex string
	// Hidden variables are worked out from the others; All stands for the values that were found.
	Hidden bool
	// Multi allows several values, and All, which is .*: it also matches what lacks the label.
	Multi bool
	// Some leaves All out of several: where all at once are too many to draw.
	Some bool
}

// The variables. Their names are frozen: bookmarks and links carry them.
const (
	varDatasource = "datasource"
	varCluster    = "cluster"
	varModel      = "model"
	varNode       = "node"
	varUUID       = "uuid"
	varNamespace  = "namespace"
	varWorkload   = "workload"
	varPod        = "pod"
	varPodNodes   = "podnodes"
	varJob        = "job"
)

func datasourceVariable() Variable {
	return Variable{Name: varDatasource, Label: "Data source",
		Help: "Prometheus, Thanos, Mimir or VictoriaMetrics with the metrics."}
}

// clusterVariable lists clusters. Where series have no such label there is nothing to choose, and All matches them.
func clusterVariable(of string) Variable {
	return Variable{Name: varCluster, Label: "Cluster", Help: "Clusters, if the metrics have that label.",
		Query: "label_values(" + of + ", cluster)", Multi: true}
}

func modelVariable() Variable {
	return Variable{Name: varModel, Label: "Model", Help: "Models of GPUs.", Multi: true,
		Query: `label_values(node:gpu_device_up:count{<cluster>}, model)`}
}

func nodeVariable(multi bool) Variable {
	return Variable{Name: varNode, Label: "Node", Help: "Nodes that have an exporter.", Multi: multi,
		Query: `label_values(gpu_exporter_build_info{<cluster>}, node)`}
}

// gpuVariable shows the node and the index, and gives the UUID.
func gpuVariable() Variable {
	return Variable{Name: varUUID, Label: "GPU", Help: "GPUs, by node and NVML index.",
		// A GPU that was never readable has no gpu_info.
		Query: `query_result(label_join(gpu_device_up{<node>}, "display", " GPU ", "node", "gpu"))`,
		Regex: `/display="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/`}
}

func namespaceVariable(of string, some bool) Variable {
	return Variable{Name: varNamespace, Label: "Namespace", Help: "Namespaces with allocated GPUs.", Multi: true,
		Some:  some,
		Query: "label_values(" + of + "{<cluster>}, namespace)"}
}

func workloadVariable() Variable {
	return Variable{Name: varWorkload, Label: "Workload",
		Help: "Workload of the pods, such as a Deployment or a Job; the pod itself if unknown.", Multi: true,
		Query: `label_values(pod:gpu_workload:info{<namespace>}, workload)`}
}

func podVariable() Variable {
	return Variable{Name: varPod, Label: "Pod", Help: "Pods with allocated or used GPUs.", Multi: true,
		Query: `label_values(pod:gpu_workload:info{<namespace>, workload=~"$workload"}, pod)`}
}

// jobVariable keeps the queries for processes and scrapes to the exporters: every target has such series.
func jobVariable() Variable {
	return Variable{Name: varJob, Label: "Job", Help: "Derived from the exporters.", Multi: true, Hidden: true,
		Query: "label_values(gpu_exporter_build_info{<cluster>}, job)"}
}

// podNodesVariable keeps the queries for GPUs to the nodes of the chosen pods: in a large fleet it is the
// difference between a few series and all of them.
func podNodesVariable() Variable {
	return Variable{Name: varPodNodes, Label: "Nodes of the pods", Help: "Derived from the pods.", Multi: true,
		Hidden: true,
		Query:  `label_values(pod:gpu_workload:info{<workload>, pod=~"$pod"}, node)`}
}

// selectors are the matchers that a query's placeholders stand for, and the variables that each needs. All of
// them match what lacks the label cluster while All is chosen.
func selectors() map[string][]string {
	return map[string][]string{
		"cluster":   {varCluster},
		"model":     {varCluster, varModel},
		"node":      {varCluster, varNode},
		"gpu":       {varCluster, varNode, varUUID},
		"job":       {varCluster, varJob},
		"namespace": {varCluster, varNamespace},
		"workload":  {varCluster, varNamespace, varWorkload},
		"pod":       {varCluster, varNamespace, varPod},
	}
}

var placeholder = regexp.MustCompile(`<([a-z]+)>`)

// expand replaces the placeholders of a query by the matchers of the dashboard's variables.
func (b Dashboard) expand(expr string) (string, error) {
	var broken error
	out := placeholder.ReplaceAllStringFunc(expr, func(m string) string {
		name := m[1 : len(m)-1]
		vars, ok := selectors()[name]
		if !ok {
			broken = fmt.Errorf("query %q: there is no selector %s", expr, m)
			return m
		}
		var matchers []string
		for _, v := range vars {
			if !slices.ContainsFunc(b.Vars, func(have Variable) bool { return have.Name == v }) {
				broken = fmt.Errorf("query %q: %s needs the variable %s", expr, m, v)
			}
			matchers = append(matchers, v+`=~"$`+v+`"`)
		}
		return strings.Join(matchers, ", ")
	})
	return out, broken
}
