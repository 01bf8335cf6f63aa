package report

import (
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
)

// TestFollow: advice is followed by all workloads at a time on the nodes of the period; what the replay refutes is withdrawn,
// and what it finds is printed.
func TestFollow(t *testing.T) {
	const l40s = "NVIDIA L40S"
	small := func(name string, busy func(int64) float64, pods ...string) job {
		return job{name: name, model: l40s, memory: 5 * gib, busy: busy, pods: pods}
	}
	spike := between(monday.Add(3*day), monday.Add(3*day+5*time.Minute), 0.95, 0.05)
	for _, tt := range []struct {
		name      string
		gpus      float64
		jobs      []job
		advice    map[string]string // by workload; refuted_by_replay is a reason for none
		text      string            // of the reasons for none
		pods      int               // of the replay of the first workload
		throttled float64           // steps of 2,880
	}{
		// A quarter and a half: their GPU has 0.2 + 0.05.
		{"two that fit", 2, []job{small("a", hourOf(0, 24, 0.05, 0), "a-0"), small("b", hourOf(0, 24, 0.2, 0), "b-0")},
			map[string]string{"a": "share", "b": "share"}, "", 1, 0},
		// Alone each is within the budget. Together they exceed the GPU in an hour of 240, for demand is known by the hour.
		{"peaks on a shared GPU", 2, []job{small("a", spike, "a-0"), small("b", hourOf(0, 24, 0.2, 0), "b-0")},
			map[string]string{"a": "refuted_by_replay", "b": "refuted_by_replay"}, "would have waited", 0, 0},
		// The device plugin shares all GPUs of a node or none.
		{"beside a whole GPU", 2, []job{small("a", spike, "a-0"), small("b", hourOf(0, 24, 0.9, 0), "b-0")},
			map[string]string{"a": "refuted_by_replay", "b": "well_used"},
			"with nodes set aside for it, pods of team/Deployment/b/NVIDIA L40S would have waited", 1, 1},
		{"a peak alone on its node", 1, []job{small("a", spike, "a-0"), {name: "b", node: "n2", model: l40s, memory: 5 * gib,
			busy: hourOf(0, 24, 0.9, 0), pods: []string{"b-0"}}}, map[string]string{"a": "share", "b": "well_used"}, "", 1, 1},
		{"a pod of two GPUs", 2, []job{small("a", hourOf(0, 24, 0.05, 0), "a-0", "a-0")}, map[string]string{"a": "share"}, "", 2, 0},
		{"idle pods", 4, []job{small("a", no, "a-0", "a-1", "a-2")}, map[string]string{"a": "release"}, "", 0, 0},
		{"replicas", 10, []job{{name: "a", model: l40s, memory: 70 * gib, busy: hourOf(0, 24, 0.1, 0), pods: names("a", 10)}},
			map[string]string{"a": "fewer_replicas"}, "", 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s scene
			s.node("n1", l40s, tt.gpus, states{"busy": tt.gpus}, nil)
			for _, j := range tt.jobs {
				if j.node != "" {
					s.node(j.node, l40s, 1, states{"busy": 1}, nil)
				}
				s.job(j)
			}
			d := s.must(t, nil)
			for _, w := range d.Workloads {
				want := tt.advice[w.Name]
				if w.Advice != want && w.NoAdvice != want ||
					w.NoAdvice == "refuted_by_replay" && !strings.Contains(w.NoAdviceReason, tt.text) {
					t.Errorf("%s: %q, %q %s", w.Name, w.Advice, w.NoAdvice, w.NoAdviceReason)
				}
			}
			if len(d.Advice) == 0 {
				return
			}
			var a document.Advice
			for _, w := range d.Workloads {
				if w.Name == "a" {
					a = adviceOn(t, d, w.ID)
				}
			}
			if r := a.Replay; tt.pods > 0 && (r == nil || r.Pods != tt.pods || r.Waiting != 0 || r.Evicted != 0) {
				t.Errorf("%+v", r)
			} else if r != nil {
				near(t, "throttled", r.Throttled*2880, tt.throttled)
			}
		})
	}
}
