package source

import "testing"

func TestWorkload(t *testing.T) {
	for name, c := range map[string]struct {
		pod        Pod
		kind, want string
	}{
		"no owner": {Pod{}, "Pod", "alone"},
		"deployment": {Pod{OwnerKind: "ReplicaSet", OwnerName: "web-5d4f6c7b8",
			Labels: map[string]string{"pod-template-hash": "5d4f6c7b8"}}, "Deployment", "web"},
		"bare replica set": {Pod{OwnerKind: "ReplicaSet", OwnerName: "web-5d4f6c7b8"}, "ReplicaSet", "web-5d4f6c7b8"},
		"another hash": {Pod{OwnerKind: "ReplicaSet", OwnerName: "web-x", Labels: map[string]string{"pod-template-hash": "y"}},
			"ReplicaSet", "web-x"},
		"rollout": {Pod{OwnerKind: "ReplicaSet", OwnerName: "web-5d4f",
			Labels: map[string]string{"rollouts-pod-template-hash": "5d4f"}}, "Rollout", "web"},
		"stateful set":        {Pod{OwnerKind: "StatefulSet", OwnerName: "db"}, "StatefulSet", "db"},
		"job":                 {Pod{OwnerKind: "Job", OwnerName: "train"}, "Job", "train"},
		"cron job":            {Pod{OwnerKind: "Job", OwnerName: "nightly-eval-29552520"}, "CronJob", "nightly-eval"},
		"a job with a date":   {Pod{OwnerKind: "Job", OwnerName: "eval-20260318"}, "Job", "eval-20260318"},
		"a job with a number": {Pod{OwnerKind: "Job", OwnerName: "eval-7"}, "Job", "eval-7"},
		"the first minute":    {Pod{OwnerKind: "Job", OwnerName: "x-25800000"}, "CronJob", "x"},
		"the minute before":   {Pod{OwnerKind: "Job", OwnerName: "x-25799999"}, "Job", "x-25799999"},
		"the last minute":     {Pod{OwnerKind: "Job", OwnerName: "x-44999999"}, "CronJob", "x"},
		"the minute after":    {Pod{OwnerKind: "Job", OwnerName: "x-45000000"}, "Job", "x-45000000"},
		"only a number":       {Pod{OwnerKind: "Job", OwnerName: "-29552520"}, "Job", "-29552520"},
		"ray": {Pod{OwnerKind: "RayCluster", OwnerName: "x-raycluster-abc",
			Labels: map[string]string{"ray.io/cluster": "x-raycluster-abc"}}, "RayCluster", "x-raycluster-abc"},
		"job set": {Pod{OwnerKind: "Job", OwnerName: "llm-workers-0",
			Labels: map[string]string{"jobset.sigs.k8s.io/jobset-name": "llm"}}, "JobSet", "llm"},
		"pytorch job": {Pod{OwnerKind: "PyTorchJob", OwnerName: "bert"}, "PyTorchJob", "bert"},
	} {
		if kind, got := c.pod.Workload("alone"); kind != c.kind || got != c.want {
			t.Errorf("%s: %s %s, want %s %s", name, kind, got, c.kind, c.want)
		}
	}
}
