package document

// The codes of advice: what to do.
const (
	AdviseRelease     = "release"
	AdviseFewer       = "fewer_gpus"
	AdviseLessSharing = "reduce_sharing"
	AdviseShrink      = "shrink"
	AdviseShare       = "share"
	AdviseConsolidate = "consolidate"
	AdviseGeometry    = "mig_geometry"
	AdviseFix         = "fix_fault"
	AdviseReplicas    = "fewer_replicas"
)

// AdviceCodes lists what may be recommended, with its meaning; it is published with the schema.
func AdviceCodes() map[string]string {
	return map[string]string{
		AdviseRelease:     "Release the GPUs: nothing runs on them.",
		AdviseFewer:       "Request fewer GPUs: some of a pod's GPUs are idle.",
		AdviseLessSharing: "Share the GPU among fewer containers: they need more than it has.",
		AdviseShrink:      "Use a smaller MIG profile.",
		AdviseShare:       "Share the GPU with others.",
		AdviseConsolidate: "Give nodes back.",
		AdviseReplicas:    "Run fewer replicas of a service, all of the time or by a schedule.",
		AdviseGeometry:    "Partition the GPUs into other MIG profiles.",
		AdviseFix:         "Repair the GPU: its hours are lost.",
	}
}

// ReasonCodes lists the reasons of advice, with their meaning.
func ReasonCodes() map[string]string {
	return map[string]string{
		"never_used":   "Allocated, and no process ever had memory on the GPU.",
		"loaded_idle":  "A process is loaded and was never busy.",
		"stopped":      "It was busy, stopped, and kept its GPUs.",
		"idle_pods":    "Some of its pods are busy, others are not.",
		"idle_gpus":    "Some GPUs of a pod are busy, others are not.",
		"low_activity": "Activity and memory fit into less.",
		"preallocated_memory": "Activity is low; the memory in use was allocated at the start and does not indicate " +
			"need.",
		"cached_memory":        "Activity is low; memory grew without ever falling, as a cache does.",
		"low_demand":           "The demand of all replicas together is covered by fewer.",
		"daily_demand":         "The demand is low at the same hours of each day.",
		"oversubscribed":       "The GPU is shared and busy all the time.",
		"after_advice":         "Fewer nodes are enough once the advice on workloads is carried out.",
		"half_empty_nodes":     "Fewer nodes are enough for what is allocated at the busiest time.",
		"unallocated_profiles": "MIG devices of one profile stay unallocated while pods are pending for another.",
		"gpu_unavailable":      "The GPU could not be used.",
	}
}

// The kinds of savings.
const (
	SavesHours = "freed"
	SavesNodes = "nodes"
	SavesQueue = "queue"
)

// Effort is what the change of an advice costs.
func Effort(code string) string {
	return map[string]string{
		AdviseRelease:     "The pods are stopped.",
		AdviseFewer:       "The pods restart, with a changed number of ranks.",
		AdviseLessSharing: "The pods restart; it takes GPUs instead of saving any.",
		AdviseShrink:      "The GPU is drained to be partitioned, and the pods restart.",
		AdviseShare:       "The device plugin is configured for the node, and the pods restart.",
		AdviseConsolidate: "The nodes are drained. A reservation may have to be paid until it ends.",
		AdviseGeometry:    "The GPUs are drained to be partitioned.",
		AdviseFix:         "The node is drained and repaired.",
		AdviseReplicas:    "Some pods are stopped; an autoscaler or a schedule is set up.",
	}[code]
}
