package dashboards

// Annotation marks events that explain a change in the graphs. Each can be switched off at the top.
type Annotation struct {
	Name, Expr, Title, Text string
	// Tags are the labels that are shown with it.
	Tags  string
	Color string
	On    bool
}

func xidAnnotation(selector string) Annotation {
	return Annotation{Name: "XID events", Expr: total("node, gpu, xid", xids("<"+selector+">", "$__rate_interval")),
		Title: "XID {{xid}}", Text: "{{node}} GPU {{gpu}}: the driver reported XID {{xid}}", Tags: "node,gpu,xid",
		Color: Red, On: true}
}

func xidRecordAnnotation() Annotation {
	return Annotation{Name: "XID events", Expr: `sum by (node, xid) (node:gpu_xid_events:increase5m{<cluster>}) > 0`,
		Title: "XID {{xid}}", Text: "{{node}}: the driver reported XID {{xid}}", Tags: "node,xid", Color: Red}
}

// off offers the mark and leaves it out at first: of a whole fleet it would be a fence of lines.
func (m Annotation) off() Annotation {
	m.On = false
	return m
}

func restartAnnotation(selector string) Annotation {
	return Annotation{Name: "Exporter restarts",
		Expr: `(changes(process_start_time_seconds{<job>}[$__rate_interval]) > 0) * on (cluster, job, instance) ` +
			`group_left (node) max by (cluster, job, instance, node) (gpu_exporter_build_info{<` + selector + `>})`,
		Title: "Exporter restarted", Text: "{{node}}: counters restarted", Tags: "node", Color: Purple}
}

func driverAnnotation(selector string) Annotation {
	return Annotation{Name: "Driver changes",
		Expr: `count by (cluster, node) (count by (cluster, node, driver_version) (last_over_time(gpu_driver_info{<` +
			selector + `>}[10m]))) > 1`,
		Title: "Driver changed", Text: "{{node}}: driver version changed", Tags: "node", Color: Blue}
}

// podMark is off at first: on a busy node it is many lines.
func podAnnotation(selector string) Annotation {
	allocated := "gpu_container_allocation_ratio{<" + selector + ">}"
	return Annotation{Name: "GPU allocations", Expr: `count by (node, namespace, pod) (` + allocated + ` unless ` +
		allocated + ` offset $__interval)`,
		Title: "{{namespace}}/{{pod}}", Text: "GPU of {{node}} allocated to {{namespace}}/{{pod}}",
		Tags: "node,namespace,pod", Color: Teal}
}

func cordonAnnotation(selector string) Annotation {
	return Annotation{Name: "Node cordoned", Expr: `max by (cluster, node) (kube_node_spec_unschedulable{<` + selector +
		`>}) == 1`,
		Title: "Cordoned", Text: "{{node}} was cordoned", Tags: "node", Color: Amber}
}
