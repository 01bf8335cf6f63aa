package source

import (
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Workload returns the kind and the name of the object that a user created for the pod: the Deployment of a ReplicaSet,
// the CronJob of a Job, else the owner itself, and the pod where it has no owner. It is derived from the pod's own
// metadata, without a query for other objects.
func (p *Pod) Workload(name string) (kind, workload string) {
	for _, k := range gpu.Kinds() {
		if name := p.Labels[k.Label]; name != "" && k.Label != "" {
			return k.Name, name
		}
	}
	switch p.OwnerKind {
	case "":
		return "Pod", name
	case "ReplicaSet":
		for _, by := range []struct{ label, kind string }{
			{"pod-template-hash", "Deployment"}, {"rollouts-pod-template-hash", "Rollout"}} {
			hash := p.Labels[by.label]
			if name, ok := strings.CutSuffix(p.OwnerName, "-"+hash); ok && hash != "" {
				return by.kind, name
			}
		}
	case "Job":
		// A CronJob names its Jobs NAME-MINUTES, minutes since 1970. A date in the same place (20260318) was chosen by
		// a user.
		if at := strings.LastIndexByte(p.OwnerName, '-'); at > 0 {
			minutes, err := strconv.Atoi(p.OwnerName[at+1:])
			if err == nil && minutes >= firstCronMinute && minutes < lastCronMinute {
				return "CronJob", p.OwnerName[:at]
			}
		}
	}
	return p.OwnerKind, p.OwnerName
}

// The minutes in which CronJobs start Jobs: the years 2019 to 2055.
const firstCronMinute, lastCronMinute = 25_800_000, 45_000_000
