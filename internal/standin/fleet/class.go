package fleet

import "math/rand/v2"

// Class is what a workload is like: the truth that a report has to find.
type Class string

// The classes. Training, Inference, ShortJobs and Weekly use their GPUs; each of the others wastes them in one way,
// see behaviors.
const (
	Training       Class = "training"       // whole GPUs, busy nearly all the time, for days
	Inference      Class = "inference"      // bursts with pauses, fewer at night
	Loaded         Class = "loaded"         // a model in memory and no requests
	NeverUsed      Class = "never_used"     // allocated, and no process ever
	Stopped        Class = "stopped"        // was busy, stopped and kept its GPUs
	Preallocated   Class = "preallocated"   // memory taken at start as a fixed part, little work: memory is no evidence
	Imbalanced     Class = "imbalanced"     // several GPUs in one pod, of which some do nothing
	Oversubscribed Class = "oversubscribed" // shared GPUs that are busy all the time
	Small          Class = "small"          // little work and little memory: a smaller share would do
	ShortJobs      Class = "short_jobs"     // batch jobs of minutes to hours, one after the other
	Weekly         Class = "weekly"         // busy on working days, quiet at night and weekends
	Pending        Class = "pending"        // waits for GPUs that are not there
	Free           Class = "free"           // unallocated
)

// Classes lists them all.
var Classes = []Class{Training, Inference, Loaded, NeverUsed, Stopped, Preallocated, Imbalanced, Oversubscribed, Small,
	ShortJobs, Weekly, Pending, Free}

// behavior is how a class shows: values are drawn from the ranges.
type behavior struct {
	class       Class
	kind        string // of the object
	names       []string
	namespaces  []string
	container   string
	gpus        []int // whole GPUs for each pod, to choose from
	gang        bool  // may span the nodes of a rack
	life, pause span[stamp]
	renew       bool // each life is another workload, not another pod of the same
	load        span[stamp]
	level       span[float64]
	shape       func(*rand.Rand, float64) *pattern
	memory      span[float64] // part of the GPU or instance
	intensity   span[float64] // of the power between idle and busy
	processes   bool
	// works is the part of its life after which it stops working; 0: it goes on.
	works span[float64]
}

// behaviors is the table of classes.
func behaviors() []behavior {
	long := span[stamp]{3 * day, 12 * day}
	ever := span[stamp]{60 * day, 61 * day}
	return []behavior{
		{class: Training, kind: "PyTorchJob", names: []string{"pretrain", "finetune", "distill", "align"},
			namespaces: []string{"llm-training", "research"}, container: "pytorch",
			gpus: []int{8, 4, 8}, gang: true, life: span[stamp]{18 * hour, 5 * day},
			pause: span[stamp]{2 * minute, 3 * hour}, renew: true, load: span[stamp]{3 * minute, 12 * minute},
			level: span[float64]{0.85, 0.97}, shape: steady, memory: span[float64]{0.7, 0.93},
			intensity: span[float64]{0.8, 1}, processes: true},
		{class: Inference, kind: "Deployment", names: []string{"chat", "rerank", "embed", "translate"},
			namespaces: []string{"serving", "search", "ads"}, container: "server",
			gpus: []int{1, 1, 2}, life: long, pause: span[stamp]{20 * second, 5 * minute},
			load:  span[stamp]{1 * minute, 4 * minute},
			level: span[float64]{0.5, 0.9}, shape: bursty, memory: span[float64]{0.45, 0.85},
			intensity: span[float64]{0.5, 0.8}, processes: true},
		{class: Loaded, kind: "Deployment", names: []string{"legacy-model", "canary", "demo-api"},
			namespaces: []string{"serving", "platform"}, container: "server",
			gpus: []int{1, 1, 2}, life: ever, pause: span[stamp]{minute, 5 * minute},
			load:  span[stamp]{1 * minute, 3 * minute},
			shape: flat, memory: span[float64]{0.3, 0.8}, processes: true},
		{class: NeverUsed, kind: "StatefulSet", names: []string{"notebook", "workspace"},
			namespaces: []string{"research", "vision", "speech"}, container: "notebook",
			gpus: []int{1, 1, 2, 4}, life: ever, pause: span[stamp]{minute, 5 * minute}, shape: flat},
		{class: Stopped, kind: "StatefulSet", names: []string{"notebook", "debug"},
			namespaces: []string{"research", "vision"}, container: "notebook",
			gpus: []int{1, 2}, life: ever, pause: span[stamp]{minute, 5 * minute},
			load: span[stamp]{2 * minute, 10 * minute}, works: span[float64]{0.002, 0.004},
			level: span[float64]{0.4, 0.8}, shape: steady, memory: span[float64]{0.2, 0.6},
			intensity: span[float64]{0.5, 0.8}, processes: true},
		{class: Preallocated, kind: "Deployment", names: []string{"vllm", "jax-server"},
			namespaces: []string{"serving", "ads"}, container: "server",
			gpus: []int{1, 1, 2}, life: long, pause: span[stamp]{20 * second, 5 * minute},
			load:  span[stamp]{30 * second, 2 * minute},
			level: span[float64]{0.1, 0.3}, shape: bursty, memory: span[float64]{0.88, 0.92},
			intensity: span[float64]{0.4, 0.7}, processes: true},
		{class: Imbalanced, kind: "Job", names: []string{"ddp-eval", "sweep"},
			namespaces: []string{"research", "speech"}, container: "trainer",
			gpus: []int{4, 8}, life: span[stamp]{2 * day, 6 * day}, pause: span[stamp]{5 * minute, 2 * hour},
			renew: true, load: span[stamp]{2 * minute, 8 * minute},
			level: span[float64]{0.8, 0.95}, shape: steady, memory: span[float64]{0.4, 0.8},
			intensity: span[float64]{0.7, 0.95}, processes: true},
		{class: Oversubscribed, kind: "Deployment", names: []string{"thumbnails", "ocr", "asr"},
			namespaces: []string{"vision", "speech", "ads"}, container: "worker",
			gpus: []int{1}, life: long, pause: span[stamp]{20 * second, 3 * minute},
			load:  span[stamp]{20 * second, minute},
			level: span[float64]{0.94, 0.99}, shape: flat, memory: span[float64]{0.9, 0.99},
			intensity: span[float64]{0.6, 0.9}, processes: true},
		{class: Small, kind: "Deployment", names: []string{"classifier", "moderation", "tagger"},
			namespaces: []string{"search", "vision", "platform"}, container: "server",
			gpus: []int{1}, life: long, pause: span[stamp]{20 * second, 5 * minute},
			load:  span[stamp]{30 * second, 2 * minute},
			level: span[float64]{0.05, 0.2}, shape: sparse, memory: span[float64]{0.03, 0.12},
			intensity: span[float64]{0.3, 0.5}, processes: true},
		{class: ShortJobs, kind: "Job", names: []string{"batch", "render", "nightly"},
			namespaces: []string{"batch", "research"}, container: "job",
			gpus: []int{1, 1, 2}, life: span[stamp]{10 * minute, 4 * hour},
			pause: span[stamp]{30 * second, 40 * minute}, renew: true, load: span[stamp]{10 * second, 90 * second},
			level: span[float64]{0.5, 0.98}, shape: flat, memory: span[float64]{0.2, 0.9},
			intensity: span[float64]{0.5, 1}, processes: true},
		{class: Weekly, kind: "Deployment", names: []string{"copilot", "assistant"},
			namespaces: []string{"platform", "serving"}, container: "server",
			gpus: []int{1, 2}, life: ever, pause: span[stamp]{minute, 5 * minute},
			load:  span[stamp]{minute, 3 * minute},
			level: span[float64]{0.5, 0.85}, shape: weekly, memory: span[float64]{0.5, 0.8},
			intensity: span[float64]{0.5, 0.8}, processes: true},
		{class: Pending, kind: "PyTorchJob", names: []string{"pretrain", "ablation"},
			namespaces: []string{"llm-training", "research"}, container: "pytorch",
			gpus: []int{8, 8, 4, 2}, life: span[stamp]{20 * minute, 2 * day}, pause: span[stamp]{10 * minute, 1 * day},
			renew: true},
	}
}
