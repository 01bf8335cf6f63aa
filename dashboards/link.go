package dashboards

import (
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// Link is a link to another dashboard and carries the time range, the data source and the cluster along.
type Link struct {
	UID   string
	Title string
	// Vars are the variables that it sets: a name of the target, and where the value comes from.
	Vars []LinkVar
}

// LinkVar sets one variable of the target. Field is a column or label of the row that was clicked; empty:
// the variable of the same name of this dashboard is passed on.
type LinkVar struct{ Name, Field string }

// hand passes this dashboard's own variable on.
func hand(name string) LinkVar { return LinkVar{Name: name} }

// pick takes the value from the row.
func pick(name string) LinkVar { return LinkVar{Name: name, Field: name} }

func link(uid, title string, vars ...LinkVar) Link { return Link{UID: uid, Title: title, Vars: vars} }

// Targets of links that are pages of the documentation, by their path.
const (
	pages      = "docs/"
	runbooks   = pages + "alerts.md#${__value.text}"
	verdictDoc = pages + "troubleshooting.md#health-of-a-gpu"
)

// url writes the link. In a table the row's fields are known by their names, in a graph by the labels.
func (l Link) url(k kind) string {
	if strings.HasPrefix(l.UID, pages) {
		return catalog.Documentation + strings.TrimPrefix(l.UID, pages)
	}
	parts := []string{"${" + varDatasource + ":queryparam}"}
	if !slices.ContainsFunc(l.Vars, func(v LinkVar) bool { return v.Name == varCluster }) {
		parts = append(parts, "${"+varCluster+":queryparam}")
	}
	for _, v := range l.Vars {
		switch {
		case v.Field == "":
			parts = append(parts, "${"+v.Name+":queryparam}")
		case k == kindTable:
			parts = append(parts, "var-"+v.Name+"=${__data.fields."+v.Field+"}")
		default:
			parts = append(parts, "var-"+v.Name+"=${__field.labels."+v.Field+"}")
		}
	}
	return "/d/" + l.UID + "/" + l.UID + "?" + strings.Join(append(parts, "${__url_time_range}"), "&")
}

// The links that many panels have.
func toNode() Link { return link("gpu-node", "Open the node", pick(varNode)) }
func toGPU() Link  { return link("gpu-device", "Open the GPU", pick(varNode), pick(varUUID)) }

// toGPUOfNode is toGPU with the node of this dashboard.
func toGPUOfNode() Link {
	return link("gpu-device", "Open the GPU", hand(varNode), pick(varUUID))
}

func toNamespace() Link { return link("gpu-namespace", "Open the namespace", pick(varNamespace)) }
func toWorkload() Link {
	return link("gpu-workload", "Open the workload", pick(varNamespace), pick(varWorkload))
}
func toPod() Link      { return link("gpu-workload", "Open the pod", pick(varNamespace), pick(varPod)) }
func toCapacity() Link { return link("gpu-capacity", "Open capacity and waste") }
func toHealth() Link   { return link("gpu-health", "Open health and errors") }
