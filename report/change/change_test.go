package change

import (
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/kube"
	"github.com/gpu-exporter/gpu-exporter/report/mig"
	"github.com/gpu-exporter/gpu-exporter/report/sizing"
)

func TestRelease(t *testing.T) {
	of := func(kind, from string) *document.Workload {
		return &document.Workload{Namespace: "team", Kind: kind, Name: "app", OwnerFrom: from, Pods: 3}
	}
	for _, tt := range []struct {
		name, where, text string
		w                 *document.Workload
		whole             bool
	}{
		{"deployment", "shell", "kubectl -n team scale deployment/app --replicas=0", of("Deployment", kube.Recorded), true},
		{"two of three", "shell", "# 2 pods fewer; idle now: a, b\nkubectl -n team scale statefulset/app --replicas=1",
			of("StatefulSet", kube.Recorded), false},
		{"pods of a group", "workload", "# Its pods belong together, and a deleted one is started again: ask the owner to run it " +
			"without a, b.", of("LeaderWorkerSet", kube.Recorded), false},
		{"pods of a daemon set", "shell", "kubectl -n team delete pod a b", of("daemonset", kube.Recorded), false},
		{"an operator's kind", "shell", "kubectl -n team delete jobs.batch.volcano.sh app", of("VolcanoJob", kube.Recorded), true},
		{"rollout", "shell", "kubectl -n team scale rollouts.argoproj.io/app --replicas=0", of("Rollout", kube.Recorded), true},
		{"unknown kind", "shell", "kubectl -n team delete xjob app", of("XJob", kube.Recorded), true},
		{"job", "shell", "kubectl -n team delete job app", of("Job", kube.Recorded), true},
		{"pod", "shell", "kubectl -n team delete pod app", of("Pod", kube.Recorded), true},
		{"stands for itself", "shell", "kubectl -n team delete pod app", of("x", kube.Itself), true},
		{"host", "host", "Ask the owner of unit app to stop it.", &document.Workload{Kind: "unit", Name: "app"}, true},
	} {
		if where, text := Release(tt.w, tt.whole, []string{"a", "b"}); where != tt.where || text != tt.text {
			t.Errorf("%s: %s: %s", tt.name, where, text)
		}
	}
	w := of("ReplicaSet", kube.Recorded)
	w.Pods = 1
	if _, text := Release(w, false, []string{"a", "b"}); !strings.HasSuffix(text, "scale replicaset/app --replicas=0") {
		t.Error(text)
	}
}

func TestSizeAndReplicas(t *testing.T) {
	w := &document.Workload{Namespace: "team", Kind: "Deployment", Name: "app"}
	gpu, ok := mig.For("NVIDIA H100 80GB HBM3", 80<<30)
	profile, has := gpu.Profile("1g.10gb")
	if !ok || !has {
		t.Fatal("no profile")
	}
	holds := func(where, text, wantWhere string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if where != wantWhere || !strings.Contains(text, want) {
				t.Errorf("%s: %s", where, text)
			}
		}
	}
	where, text := Size(w, &sizing.Size{Profile: profile})
	holds(where, text, "pod template and mig-parted", "nvidia.com/mig-1g.10gb: 1\n", "some-1g.10gb:\n  - devices: [0]", `"1g.10gb": 7`)
	where, text = Size(w, &sizing.Size{Replicas: 4})
	holds(where, text, "device plugin", "replicas: 4\n", "renameByDefault: true", "nvidia.com/gpu.shared: 1")
	if strings.Contains(text, "vLLM") {
		t.Error(text)
	}
	w.Preallocated = true
	where, text = Size(w, &sizing.Size{Replicas: 4})
	holds(where, text, "device plugin", "--gpu-memory-utilization=0.23", "MEM_FRACTION=0.23", "fraction(0.23)")
	const scale = "kubectl -n team scale deployment/app --replicas="
	if got := Replicas(w, 9, 7, 7, 0, 0, "Europe/Berlin"); got != scale+
		"7\n# or an autoscaler on the metric of its requests, from 7 to 9, the number of today" {
		t.Error(got)
	}
	w.Kind = "knativeservice"
	if got := Replicas(w, 9, 7, 4, 18, 6, "Europe/Berlin"); !strings.Contains(got, `min-scale: "4"`) || !strings.Contains(got,
		`max-scale: "9"`) {
		t.Error(got)
	}
	w.Kind = "InferenceService"
	if got := Replicas(w, 9, 7, 7, 0, 0, "Europe/Berlin"); !strings.HasSuffix(got, "minReplicas: 7\n    maxReplicas: 9") {
		t.Error(got)
	}
	w.Kind = "deployment"
	if got := Replicas(w, 30, 24, 4, 18, 6, "Europe/Berlin"); !strings.HasSuffix(got, "\n# at 18:00 Europe/Berlin\n"+scale+
		"4\n# at 06:00 Europe/Berlin\n"+scale+"24") {
		t.Error(got)
	}
}
