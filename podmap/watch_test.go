package podmap

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

func TestRunWatches(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "true" {
			<-r.Context().Done()
			return
		}
		io.WriteString(w, `{"metadata":{"resourceVersion":"10"},"items":[{"metadata":{"namespace":"a","name":"p","uid":"u1",
			"labels":{"team":"x"},"ownerReferences":[{"kind":"ReplicaSet","name":"web","controller":true}],
			"annotations":{"hami.io/vgpu-devices-allocated":"`+GPUC+`,NVIDIA,10240,0:;"}}}]}`)
	}))
	defer server.Close()
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUB + "-1")}
	m := newMap(Options{Socket: "/run/k.sock", API: &source.APIOptions{Node: "n1", Server: server.URL}, Interval: time.Hour,
		PodLabels: []string{"team", "app"}}, k)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	for {
		h := m.Allocations(node())
		if len(h.List) == 1 && len(h.Sources) == 2 && h.Sources[1].Up {
			wantLines(t, h, "a/p/c nvidia.com/gpu C ? shared 10GiB")
			p := h.Pods[0]
			if p.UID != "u1" || p.Meta == nil || p.Meta.WorkloadType != "ReplicaSet" || p.Meta.Workload != "web" ||
				len(p.Meta.Labels) != 2 || p.Meta.Labels["team"] != "x" {
				t.Errorf("pod %+v, %+v", p, p.Meta)
			}
			break
		}
		runtime.Gosched()
	}
	cancel()
	<-done
}

// The UIDs that two data sources have for a pod must agree, or the annotations are another pod's.
func TestAnnotationsOfAPodOfTheSameName(t *testing.T) {
	l := newCheckpoint(t)
	l.write(entry("u-old", "c", "nvidia.com/gpu", GPUB+"-1", "none"))
	for uid, want := range map[string]string{"u-old": "a/p/c nvidia.com/gpu A 0.25 shared 10GiB",
		"u-new": "a/p/c nvidia.com/gpu unresolved 1"} {
		m := newClock().withCheckpoint(&fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUB + "-1")}, l.path)
		m.watch = &fakeWatch{source.NewPods(map[gpu.PodName]*source.Pod{{Namespace: "a", Pod: "p"}: {UID: uid,
			Annotations: map[string]string{"hami.io/vgpu-devices-allocated": GPUA + ",NVIDIA,10240,0:;"}}})}
		h := poll(t, m)
		wantLines(t, h, want)
		if got := h.Pods[0]; got.UID != strings.TrimSuffix(uid, "u-new") || got.Namespace != "a" || got.Pod != "p" {
			t.Errorf("%+v", got)
		}
	}
}
