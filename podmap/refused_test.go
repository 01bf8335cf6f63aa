package podmap

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// A pod of 1,025 containers takes no allocation from another: what it has itself is unknown, counted and named.
func TestOnePodBlindsNoNode(t *testing.T) {
	var log strings.Builder
	list := pods("team/good/main nvidia.com/gpu=" + GPUA)
	bad := &podresources.PodResources{Namespace: "evil", Name: "x"}
	for i := range 1025 {
		bad.Containers = append(bad.Containers, &podresources.ContainerResources{Name: fmt.Sprint("c", i)})
	}
	list.PodResources = append(list.PodResources, bad)
	clock := newClock()
	m := newMap(Options{Clock: clock.time, Socket: "/run/k.sock", Logger: slog.New(slog.NewTextHandler(&log, nil))},
		&fakeKubelet{pods: list})
	for range 3 {
		h := poll(t, m)
		wantLines(t, h, "team/good/main nvidia.com/gpu A 1", "evil/x/  unresolved 1")
		if !h.Uncertain {
			t.Error("what the pod may have counts as unallocated")
		}
		if s := h.Sources[0]; !s.Up || s.Errors != 1 {
			t.Errorf("%+v", s)
		}
		clock.advance(DefaultMaxAge)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "pods=1 namespace=evil pod=x "+
		`err="more than 1024 containers in one pod"`) {
		t.Error(got)
	}
}
