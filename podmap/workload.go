package podmap

import (
	"strconv"
	"strings"
)

// operatorLabels are the labels by which operators name the object that a user made, however many objects
// stand between it and the pod.
var operatorLabels = []struct{ label, kind string }{
	{"leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"},
	{"jobset.sigs.k8s.io/jobset-name", "JobSet"},
	{"ray.io/cluster", "RayCluster"},
	{"volcano.sh/job-name", "VolcanoJob"},
	{"workflows.argoproj.io/workflow", "Workflow"},
	{"serving.knative.dev/service", "KnativeService"},
	{"serving.kserve.io/inferenceservice", "InferenceService"},
	{"notebook-name", "Notebook"},
}

// Workload returns the kind and the name of what a user made that the pod is of: the Deployment behind a
// ReplicaSet, the CronJob behind a Job, the owner itself otherwise, the pod where it has no owner. It is told
// from the pod's own metadata, without asking for other objects.
func (p Pod) Workload() (kind, name string) {
	for _, o := range operatorLabels {
		if name := p.Labels[o.label]; name != "" {
			return o.kind, name
		}
	}
	switch p.OwnerKind {
	case "":
		return "Pod", p.Name
	case "ReplicaSet":
		if name, ok := strings.CutSuffix(p.OwnerName, "-"+p.Labels["pod-template-hash"]); ok && p.Labels["pod-template-hash"] != "" {
			return "Deployment", name
		}
		if name, ok := strings.CutSuffix(p.OwnerName, "-"+p.Labels["rollouts-pod-template-hash"]); ok && p.Labels["rollouts-pod-template-hash"] != "" {
			return "Rollout", name
		}
	case "Job":
		// A CronJob calls its Jobs NAME-MINUTES, minutes since 1970. A date in the same place (20260318) is a name
		// that somebody chose.
		if at := strings.LastIndexByte(p.OwnerName, '-'); at > 0 {
			if minutes, err := strconv.Atoi(p.OwnerName[at+1:]); err == nil && minutes >= firstCronMinute && minutes < lastCronMinute {
				return "CronJob", p.OwnerName[:at]
			}
		}
	}
	return p.OwnerKind, p.OwnerName
}

// The minutes between which a CronJob of our time starts Jobs: the years 2019 to 2055.
const firstCronMinute, lastCronMinute = 25_800_000, 45_000_000
