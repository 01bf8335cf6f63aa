package gpu

import "strings"

// PodsOf is how the pods of a workload are related, by its kind.
type PodsOf int

const (
	// Together are ranks or groups of one program: they start together, and none of them can be left out. Kinds that are
	// not in the table are taken for it.
	Together PodsOf = iota
	// Alone are pods of which each has a task of its own.
	Alone
	// Ordered are numbered pods with data of their own, which may or may not be replicas.
	Ordered
	// Interchangeable are replicas of one pod.
	Interchangeable
)

// Kind is a kind of object that a user creates and that pods belong to.
type Kind struct {
	Name string
	// Label is the label in which its operator names the object on the pods, however many objects are between the two.
	Label string
	// Resource is how kubectl spells the kind.
	Resource string
	Pods     PodsOf
	// Scales is true if kubectl scale sets the number of its pods.
	Scales bool
	// Ends is true if it runs until its work is done.
	Ends bool
}

// kinds are the kinds of Kubernetes, and those of operators with GPU pods. The first whose label a pod has is its
// workload. Resources are plural and group of their CRDs: kubernetes-sigs/lws@83ba21e, kubernetes-sigs/jobset@0a2be5c,
// ray-project/kuberay@1184bc8, volcano-sh/volcano@05e0372, argoproj/argo-rollouts@b211e15 (with a scale subresource),
// kubeflow/training-operator@c20bf65, kserve/kserve@67bcf1a.
var kinds = []Kind{
	// kubectl scale of a LeaderWorkerSet or a JobSet counts groups of pods.
	{"LeaderWorkerSet", "leaderworkerset.sigs.k8s.io/name", "leaderworkersets.leaderworkerset.x-k8s.io", Together, false, false},
	{"JobSet", "jobset.sigs.k8s.io/jobset-name", "jobsets.jobset.x-k8s.io", Together, false, true},
	{"RayCluster", "ray.io/cluster", "rayclusters.ray.io", Together, false, false},
	{"VolcanoJob", "volcano.sh/job-name", "jobs.batch.volcano.sh", Together, false, true},
	{"Workflow", "workflows.argoproj.io/workflow", "workflows.argoproj.io", Together, false, true},
	{"KnativeService", "serving.knative.dev/service", "services.serving.knative.dev", Interchangeable, false, false},
	{"InferenceService", "serving.kserve.io/inferenceservice", "inferenceservices.serving.kserve.io", Interchangeable, false, false},
	{"Notebook", "notebook-name", "notebooks.kubeflow.org", Alone, false, false},
	{"PyTorchJob", "", "pytorchjobs.kubeflow.org", Together, false, true},
	{"TFJob", "", "tfjobs.kubeflow.org", Together, false, true},
	{"MPIJob", "", "mpijobs.kubeflow.org", Together, false, true},
	{"Deployment", "", "deployment", Interchangeable, true, false},
	{"ReplicaSet", "", "replicaset", Interchangeable, true, false},
	{"Rollout", "", "rollouts.argoproj.io", Interchangeable, true, false},
	{"StatefulSet", "", "statefulset", Ordered, true, false},
	{"DaemonSet", "", "daemonset", Alone, false, false},
	{"Job", "", "job", Together, false, true},
	{"CronJob", "", "cronjob", Together, false, true},
	{"Pod", "", "pod", Alone, false, false},
}

// Kinds lists the kinds in the order in which a pod's labels are looked at.
func Kinds() []Kind { return kinds }

// KindOf finds a kind by its name in any case. What is not in the table has its own name as resource.
func KindOf(name string) Kind {
	for _, k := range kinds {
		if strings.EqualFold(k.Name, name) {
			return k
		}
	}
	return Kind{Name: name, Resource: strings.ToLower(name)}
}
