package catalog

// Dimension is a label of Kubernetes objects by which dashboards and the report divide the fleet.
type Dimension struct {
	// Name is the label in recording rules: pool.
	Name string
	// Object has the labels: node or namespace.
	Object string
	// Labels are those that name it, as Kubernetes spells them; the first one that an object has counts.
	Labels []string
}

// Dimensions returns the node pool, zone and rack of nodes, and the team of namespaces.
func Dimensions() []Dimension {
	return []Dimension{
		{"pool", "node", []string{"cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup",
			"alpha.eksctl.io/nodegroup-name", "kubernetes.azure.com/agentpool", "agentpool", "karpenter.sh/nodepool",
			"oci.oraclecloud.com/node-pool", "doks.digitalocean.com/node-pool", "node-pool", "nodepool", "pool"}},
		{"zone", "node", []string{"topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"}},
		{"rack", "node", []string{"topology.kubernetes.io/rack", "cloud.google.com/gce-topology-subblock",
			"topology.k8s.aws/network-node-layer-3", "oci.oraclecloud.com/host.rack_id", "rack"}},
		{"team", "namespace", []string{"team", "owner"}},
	}
}

// KubeStateLabel is the label of kube-state-metrics for a label of an object: app.kubernetes.io/name becomes
// label_app_kubernetes_io_name.
func KubeStateLabel(label string) string { return "label_" + ResourceLabel(label) }
