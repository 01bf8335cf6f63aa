package podmap_test

import (
	"cmp"
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/podmap"
)

const (
	GPUA = "GPU-aaaaaaaa-0000-4000-8000-000000000001"
	GPUB = "GPU-bbbbbbbb-0000-4000-8000-000000000002"
)

var devs = &gpu.Inventory{GPUs: []gpu.InventoryGPU{
	{UUID: GPUA, Index: 0, Minor: gpu.Some(1)},
	{UUID: GPUB, Index: 1, Minor: gpu.Some(0)},
}}

func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(must.ShortDir(t), "kubelet.sock")
}

// serve plays a kubelet of two pods: one with a whole GPU and a claim, one with a replica on two NUMA nodes.
func serve(t *testing.T, socket string) *standin.Kubelet {
	t.Helper()
	node, err := standin.ParsePods("test", strings.NewReader(`
		allocatable nvidia.com/gpu `+GPUA+` `+GPUB+`::0 `+GPUB+`::1
		pod team-a/trainer-0 container main nvidia.com/gpu=`+GPUA+`
		pod team-b/notebook container main nvidia.com/gpu=`+GPUB+`::1 numa=0,1
		pod kube-system/exporter container exporter
	`))
	must.OK(t, err)
	k := standin.NewKubelet()
	k.SetNode(node)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- k.Serve(ctx, socket) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	must.OK(t, k.Ready(t.Context()))
	return k
}

func newMap(t *testing.T, o podmap.Options) *podmap.Map {
	t.Helper()
	o.Timeout = cmp.Or(o.Timeout, time.Hour) // a busy machine is slow, and no fault
	m := podmap.New(o)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func wantGood(t *testing.T, m *podmap.Map) gpu.Allocations {
	t.Helper()
	must.OK(t, m.Poll(t.Context()))
	h := m.Allocations(devs)
	if !h.Known || len(h.List) != 2 || h.List[0].GPU != GPUA || h.List[1].GPU != GPUB || len(h.Unresolved) != 0 {
		t.Fatalf("allocations %+v", h)
	}
	if s := h.Sources[0]; !s.Up || s.Message != "" {
		t.Fatalf("health %+v", s)
	}
	return h
}

// wantBad polls, and expects the message, and the allocations to remain.
func wantBad(t *testing.T, m *podmap.Map, message string) {
	t.Helper()
	before := m.Allocations(devs)
	if err := m.Poll(t.Context()); err == nil {
		t.Fatal("no error")
	}
	h := m.Allocations(devs)
	s := h.Sources[0]
	if s.Up || !strings.Contains(s.Message, message) || strings.ContainsAny(s.Message, "\n\r") || s.Errors != before.Sources[0].Errors+1 {
		t.Fatalf("health %+v, want a message with %q", s, message)
	}
	if h.Known != before.Known || len(h.List) != len(before.List) {
		t.Fatalf("the mapping went from %+v to %+v", before, h)
	}
}

func TestOverTheSocket(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	m := newMap(t, podmap.Options{Socket: socket})
	for range 3 {
		h := wantGood(t, m)
		if s := h.List[0].Share; s != gpu.Some[gpu.Ratio](1) {
			t.Errorf("share of a whole GPU: %v", s)
		}
		if s := h.List[1].Share; s != gpu.Some[gpu.Ratio](0.5) {
			t.Errorf("share of a replica: %v", s)
		}
		if r := h.Resources; len(r) != 1 || r[0].Allocatable != gpu.Some(3) || r[0].Allocated != 2 {
			t.Errorf("resources %+v", r)
		}
	}
	if l, a := k.Calls("v1.List"), k.Calls("v1.GetAllocatableResources"); l != 3 || a != 3 {
		t.Errorf("%d and %d calls for 3 polls", l, a)
	}
}

func TestKubeletRestart(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	m := newMap(t, podmap.Options{Socket: socket})
	wantGood(t, m)
	for range 3 {
		// The first response after a restart is empty: the GPUs are not unallocated.
		must.OK(t, k.Restart(t.Context(), 1))
		wantGood(t, m)
		wantGood(t, m)
	}
	// One that lists pods without devices after a restart needs a second response, one that did not restart does not.
	pods := standin.KubeletPod{Namespace: "kube-system", Name: "exporter", Containers: []standin.KubeletContainer{{Name: "exporter"}}}
	all, err := standin.ParsePods("test", strings.NewReader("pod a/p container c nvidia.com/gpu="+
		GPUA+"\npod a/q container c nvidia.com/gpu="+GPUB+"::1"))
	must.OK(t, err)
	for _, restarts := range []bool{true, false} {
		wantGood(t, m)
		k.SetPods([]standin.KubeletPod{pods})
		if restarts {
			must.OK(t, k.Restart(t.Context(), 0))
			wantGood(t, m)
		}
		must.OK(t, m.Poll(t.Context()))
		if h := m.Allocations(devs); !h.Known || len(h.List) != 0 {
			t.Errorf("restarted %v: %+v", restarts, h)
		}
		k.SetPods(all.Pods)
	}
	// A kubelet without pods.
	wantGood(t, m)
	k.SetPods(nil)
	wantGood(t, m)
	must.OK(t, m.Poll(t.Context()))
	if h := m.Allocations(devs); !h.Known || len(h.List) != 0 || len(h.Pods) != 0 {
		t.Errorf("two empty responses, and still %+v", h)
	}
}

// The options bound each call, in time and bytes, and what a call that fails leaves is the last response. The client's own
// tests have the other failures.
func TestFaults(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	m := newMap(t, podmap.Options{Socket: socket})
	hasty := newMap(t, podmap.Options{Socket: socket, Timeout: 20 * time.Millisecond})
	small := newMap(t, podmap.Options{Socket: socket, MaxMessage: 1 << 20})
	wantGood(t, m)
	for _, c := range []struct {
		fault   standin.KubeletFault
		of      *podmap.Map
		message string
	}{
		{standin.KubeletFault{Hang: true}, hasty, "no response within 20ms"},
		{standin.KubeletFault{Padding: 20 << 20}, small, "larger than 1 MiB"},
		{standin.KubeletFault{Pods: 5000}, m, "more than 4096 pods"},
	} {
		k.SetFault(c.fault)
		if c.fault.Padding > 0 {
			wantGood(t, m)
		}
		wantBad(t, c.of, c.message)
		k.SetFault(standin.KubeletFault{})
		wantGood(t, m)
	}
}

func TestStopIsPromptWhileTheKubeletHangs(t *testing.T) {
	socket := socketPath(t)
	k := serve(t, socket)
	k.SetFault(standin.KubeletFault{Hang: true})
	m := podmap.New(podmap.Options{Socket: socket, Timeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	for k.Calls("v1.List") == 0 {
		runtime.Gosched()
		// Allocations never waits for the kubelet.
		if m.Allocations(devs).Known {
			t.Fatal("known without a response")
		}
	}
	cancel()
	<-done
	if n := m.Allocations(devs).Sources[0].Errors; n != 0 {
		t.Errorf("our own end counted %d errors", n)
	}
}
