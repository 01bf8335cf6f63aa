package dashboards

// Mark is an annotation: moments that explain a change in the graphs. Each can be switched off at the top.
type Mark struct {
	Name, Expr, Title, Text string
	// Tags are the labels that are shown with it.
	Tags   string
	Colour string
	On     bool
}

func xidMark(selector string) Mark {
	return Mark{Name: "XID events", Expr: total("node, gpu, xid", xids("<"+selector+">", "$__interval")),
		Title: "XID {{xid}}", Text: "{{node}} GPU {{gpu}}: the driver reported XID {{xid}}", Tags: "node,gpu,xid", Colour: Red, On: true}
}

func xidRecordMark() Mark {
	return Mark{Name: "XID events", Expr: `sum by (node, xid) (node:gpu_xid_events:increase5m{<cluster>}) > 0`,
		Title: "XID {{xid}}", Text: "{{node}}: the driver reported XID {{xid}}", Tags: "node,xid", Colour: Red}
}

// off offers the mark and leaves it out at first: of a whole fleet it would be a fence of lines.
func (m Mark) off() Mark {
	m.On = false
	return m
}

func restartMark(selector string) Mark {
	return Mark{Name: "Exporter restarts", Expr: `(changes(process_start_time_seconds{<job>}[$__interval]) > 0) * on (cluster, job, instance) group_left (node) max by (cluster, job, instance, node) (gpu_exporter_build_info{<` + selector + `>})`,
		Title: "Exporter restarted", Text: "{{node}}: counters began anew", Tags: "node", Colour: Purple}
}

func driverMark(selector string) Mark {
	return Mark{Name: "Driver changes", Expr: `count by (cluster, node) (count by (cluster, node, driver_version) (last_over_time(gpu_driver_info{<` + selector + `>}[10m]))) > 1`,
		Title: "Driver changed", Text: "{{node}}: another driver version", Tags: "node", Colour: Blue}
}

// podMark is off at first: on a busy node it is many lines.
func podMark(selector string) Mark {
	held := "gpu_container_allocation_ratio{<" + selector + ">}"
	return Mark{Name: "Pods that take GPUs", Expr: `count by (node, namespace, pod) (` + held + ` unless ` + held + ` offset $__interval)`,
		Title: "{{namespace}}/{{pod}}", Text: "{{namespace}}/{{pod}} took a GPU of {{node}}", Tags: "node,namespace,pod", Colour: Teal}
}

func cordonMark(selector string) Mark {
	return Mark{Name: "Node cordoned", Expr: `max by (cluster, node) (kube_node_spec_unschedulable{<` + selector + `>}) == 1`,
		Title: "Cordoned", Text: "{{node}} takes no new pods", Tags: "node", Colour: Amber}
}
