// Package podresources_test runs the exporter's client of the PodResources API against the server of Kubernetes itself, which test/kubelet
// runs; the tests set the state that a kubelet's managers would report. KUBERNETES=1.36 or 1.34 takes that release instead of 1.37.
package podresources_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"google.golang.org/protobuf/proto"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

const nvidia = "nvidia.com/gpu"

// GPU is the UUID of the node's n-th GPU, instance that of an instance of it.
func dev(n int) string         { return fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", n+0xa0) }
func instance(n, i int) string { return fmt.Sprintf("MIG-%08x-%04x-4000-8000-000000000000", n+0xa0, i) }

// GPUs is a node of eight, the last in MIG mode with two instances. Minor numbers run against the indices.
func devs() *gpu.Inventory {
	inv := &gpu.Inventory{}
	for n := range 8 {
		c := gpu.InventoryGPU{UUID: gpu.UUID(dev(n)), Index: n, Minor: gpu.Some(7 - n), Memory: gpu.Some(gpu.Bytes(80 << 30))}
		if n == 7 {
			c.MIG = true
			for i := range 2 {
				c.Instances = append(c.Instances, gpu.Instance{UUID: gpu.UUID(instance(7, i)), GI: i + 1, Profile: "3g.40gb",
					Share:     gpu.Some(gpu.Ratio(3.0 / 7)),
					ProfileID: gpu.Some(9), PlacementStart: gpu.Some(4 * i), PlacementSize: gpu.Some(4)})
			}
		}
		inv.GPUs = append(inv.GPUs, c)
	}
	return inv
}

// lines writes holdings as "namespace/pod/container resource GPU[/instance] share", in order.
func lines(h gpu.Allocations) []string {
	var out []string
	for _, x := range h.List {
		share := "?"
		if s, ok := x.Share.Get(); ok {
			share = fmt.Sprintf("%.3g", float64(s))
		}
		place := string(x.GPU)
		if x.Instance != "" {
			place = string(x.Instance)
		}
		out = append(out, fmt.Sprintf("%s/%s/%s %s %s %s", x.Container.Namespace, x.Container.Pod, x.Container.Name, x.Resource, place,
			share))
	}
	for _, u := range h.Unresolved {
		out = append(out, fmt.Sprintf("%s/%s/%s %s unresolved %d", u.Container.Namespace, u.Container.Pod, u.Container.Name, u.Resource,
			u.Devices))
	}
	slices.Sort(out)
	return out
}

func want(t *testing.T, h gpu.Allocations, expected ...string) {
	t.Helper()
	slices.Sort(expected)
	if got := lines(h); !h.Known || !slices.Equal(got, expected) {
		t.Errorf("known: %v; holdings\n\t%s\nwant\n\t%s", h.Known, strings.Join(got, "\n\t"), strings.Join(expected, "\n\t"))
	}
}

func client(t *testing.T, o podmap.Options) *podmap.Map {
	t.Helper()
	m := podmap.New(o)
	t.Cleanup(func() { m.Close() })
	return m
}

func poll(t *testing.T, m *podmap.Map, inv *gpu.Inventory) gpu.Allocations {
	t.Helper()
	must.OK(t, m.Poll(t.Context()))
	return m.Allocations(inv)
}

// Whole GPUs, replicas, MIG devices, claims, sidecars and ordinary containers, in one answer.
func TestEverySchemeOfNVIDIA(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	var s state
	s.pod("a", "whole", "main", "helper")
	s.give("whole", "main", nvidia, dev(0), dev(1)).NUMA = []int64{0, 1}
	s.pod("a", "replica", "x", "y")
	s.give("replica", "x", nvidia+".shared", dev(2)+"::0", dev(2)+"::1")
	s.give("replica", "y", nvidia+".shared", dev(2)+"::3")
	s.pod("b", "sliced", "main")
	s.give("sliced", "main", "nvidia.com/mig-3g.40gb", instance(7, 1))
	s.pod("b", "claims", "one", "two")
	s.claimed("claims", "one", "b", "both", "gpu-4") // minor 4 is GPU 3
	s.claimed("claims", "one", "b", "both", "gpu-3") // minor 3 is GPU 4
	s.claimed("claims", "two", "b", "both", "gpu-4")
	s.claimed("claims", "two", "b", "part", "gpu-0-mig-3g40gb-9-0") // minor 0 is GPU 7
	sidecar := s.pod("c", "sidecar", "main")
	sidecar.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}}
	s.give("sidecar", "setup", nvidia, dev(5))
	s.give("sidecar", "proxy", nvidia, dev(6))
	s.pod("c", "without", "main")
	s.Allocatable = map[string][]string{nvidia: {dev(0), dev(1), dev(5), dev(6)},
		nvidia + ".shared":       {dev(2) + "::0", dev(2) + "::1", dev(2) + "::2", dev(2) + "::3"},
		"nvidia.com/mig-3g.40gb": {instance(7, 0), instance(7, 1)}, "vendor.example/nic": {"n0"}}

	dir := must.ShortDir(t)
	k := run(t, dir, s)
	m := client(t, podmap.Options{Socket: k.socket})
	for range 5 {
		h := poll(t, m, devs())
		want(t, h, "a/whole/main nvidia.com/gpu "+dev(0)+" 1", "a/whole/main nvidia.com/gpu "+dev(1)+" 1",
			"a/replica/x nvidia.com/gpu.shared "+dev(2)+" 0.5", "a/replica/y nvidia.com/gpu.shared "+dev(2)+" 0.25",
			"b/sliced/main nvidia.com/mig-3g.40gb "+instance(7, 1)+" 1",
			"b/claims/one gpu.nvidia.com "+dev(3)+" 0.5", "b/claims/one gpu.nvidia.com "+dev(4)+" 1",
			"b/claims/two gpu.nvidia.com "+dev(3)+" 0.5",
			"b/claims/two gpu.nvidia.com "+instance(7, 0)+" 1",
			// An ordinary init container is never listed: its GPU shows as free. See docs/sharing-schemes.md.
			"c/sidecar/proxy nvidia.com/gpu "+dev(6)+" 1")
		counts := map[string]string{}
		for _, r := range h.Resources {
			counts[r.Resource] = fmt.Sprintf("%d of %d", r.Allocated, r.Allocatable.Or(-1))
		}
		for resource, expected := range map[string]string{nvidia: "3 of 4", nvidia + ".shared": "3 of 4",
			"nvidia.com/mig-3g.40gb": "1 of 2"} {
			if counts[resource] != expected {
				t.Errorf("%s: %s, want %s", resource, counts[resource], expected)
			}
		}
	}
	// One List and one count per poll, and nothing per pod.
	k.set(s)
	if k.counts["list"] != 5 || k.counts["get_allocatable"] != 5 || k.counts["get"] != 0 || k.counts["total"] != 10 {
		t.Errorf("the kubelet counted %v for five polls", k.counts)
	}
}

// What a pod holds follows its life, and nothing else does.
func TestPodsInEveryPhase(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	phases := []struct {
		name  string
		set   func(*corev1.Pod)
		holds bool
	}{
		{"pending", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, true},
		{"running", func(*corev1.Pod) {}, true},
		{"unknown", func(p *corev1.Pod) { p.Status.Phase = corev1.PodUnknown }, true},
		{"no-phase", func(p *corev1.Pod) { p.Status.Phase = "" }, true},
		{"terminating", func(p *corev1.Pod) { p.DeletionTimestamp = &now }, true},
		{"ended-terminating", func(p *corev1.Pod) { p.Status.Phase, p.DeletionTimestamp = corev1.PodSucceeded, &now }, true},
		{"succeeded", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		{"failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
	}
	// With the gate off as up to 1.33: ended pods stay listed, without their devices.
	for _, gates := range []string{"", "KubeletPodResourcesListUseActivePods=false"} {
		t.Run("gates "+gates, func(t *testing.T) {
			var s state
			var expected []string
			for n, p := range phases {
				p.set(s.pod("a", p.name, "main"))
				s.give(p.name, "main", nvidia, dev(n%7))
				if p.holds {
					expected = append(expected, "a/"+p.name+"/main nvidia.com/gpu "+dev(n%7)+" 1")
				}
			}
			k := run(t, must.ShortDir(t), s, "--feature-gates="+gates)
			m := client(t, podmap.Options{Socket: k.socket})
			want(t, poll(t, m, devs()), expected...)

			// All of them end. The answer has no holdings, a second says the same.
			for _, p := range s.Pods {
				p.Status.Phase, p.DeletionTimestamp = corev1.PodSucceeded, nil
			}
			k.set(s)
			want(t, poll(t, m, devs()), expected...)
			want(t, poll(t, m, devs()))
		})
	}
}

// A kubelet of 1.34 whose gate of dynamic resources is off lists claims no more than older ones do.
func TestClaimsBehindTheGate(t *testing.T) {
	t.Parallel()
	if release() != "1.34" {
		return // Since 1.36 the gate is locked on.
	}
	var s state
	s.pod("b", "claims", "one")
	s.claimed("claims", "one", "b", "c", "gpu-4")
	k := run(t, must.ShortDir(t), s, "--feature-gates=KubeletPodResourcesDynamicResources=false")
	m := client(t, podmap.Options{Socket: k.socket})
	want(t, poll(t, m, devs()))
}

// A thousand pods on one node, as whole answers and as they change.
func TestAThousandPods(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	build := func() (s state, expected []string) {
		s.Allocatable = map[string][]string{}
		for r := range 200 {
			for c := range 7 {
				s.Allocatable[nvidia] = append(s.Allocatable[nvidia], fmt.Sprintf("%s::%d", dev(c), r))
			}
		}
		for _, at := range random.Perm(1400)[:1000] {
			name := fmt.Sprintf("pod-%d", at)
			p := s.pod(fmt.Sprintf("team-%d", at%13), name, "main", "side")
			s.give(name, "main", nvidia, s.Allocatable[nvidia][at])
			expected = append(expected, fmt.Sprintf("%s/%s/main nvidia.com/gpu %s 0.005", p.Namespace, name, dev(at%7)))
		}
		return s, expected
	}
	s, expected := build()
	k := run(t, must.ShortDir(t), s)
	m := client(t, podmap.Options{Socket: k.socket})
	for range 3 {
		h := poll(t, m, devs())
		want(t, h, expected...)
		if len(h.Pods) != 1000 {
			t.Errorf("%d pods", len(h.Pods))
		}
		s, expected = build()
		k.set(s)
	}
}

// A plugin that sells memory by the MiB makes an answer of many megabytes, which lies about the GPUs.
func TestAnAnswerOfManyMegabytes(t *testing.T) {
	t.Parallel()
	const slices = 40_000
	var s state
	s.pod("a", "honest", "main")
	s.give("honest", "main", nvidia, dev(0))
	for p := range 8 {
		name := fmt.Sprintf("memory-%d", p)
		s.pod("b", name, "main")
		var ids []string
		for i := range slices {
			ids = append(ids, fmt.Sprintf("%s-_-%d", dev(p), i))
		}
		s.give(name, "main", "aliyun.com/gpu-mem", ids...)
	}
	k := run(t, must.ShortDir(t), s)
	m := client(t, podmap.Options{Socket: k.socket, Timeout: time.Minute})
	h := poll(t, m, devs())
	expected := []string{"a/honest/main nvidia.com/gpu " + dev(0) + " 1"}
	for p := range 8 {
		expected = append(expected, fmt.Sprintf("b/memory-%d/main aliyun.com/gpu-mem unresolved %d", p, slices))
	}
	want(t, h, expected...)
	if !h.Uncertain {
		t.Error("GPUs are known to be free beside a plugin whose ids tell nothing")
	}
}

// A kubelet that crashed and came back: it refuses, then lists nothing, then all again.
func TestRestartWithAnEmptyFirstAnswer(t *testing.T) {
	t.Parallel()
	var s state
	s.pod("a", "p", "main")
	s.give("p", "main", nvidia, dev(0))
	s.Allocatable = map[string][]string{nvidia: {dev(0)}}
	allocated := "a/p/main nvidia.com/gpu " + dev(0) + " 1"
	dir := must.ShortDir(t)
	k := run(t, dir, s)
	m := client(t, podmap.Options{Socket: k.socket})
	inv := devs()
	want(t, poll(t, m, inv), allocated)
	for round := range 3 {
		k.kill()
		if err := m.Poll(t.Context()); err == nil {
			t.Fatal("a dead kubelet answered")
		}
		h := m.Allocations(inv)
		want(t, h, allocated)
		if src := h.Sources[0]; src.Up || src.Errors != uint64(round+1) || !strings.Contains(src.Message, "using the response from") {
			t.Errorf("health %+v", src)
		}
		k = run(t, dir, state{}) // its sources are not ready
		want(t, poll(t, m, inv), allocated)
		k.set(s)
		h = poll(t, m, inv)
		want(t, h, allocated)
		if src := h.Sources[0]; !src.Up || src.Errors != uint64(round+1) {
			t.Errorf("health %+v", src)
		}
	}
	// And a kubelet whose pods are really gone says so twice.
	k.set(state{Allocatable: s.Allocatable})
	want(t, poll(t, m, inv), allocated)
	want(t, poll(t, m, inv))
}

// One limiter serves all clients of a node: another one that asks without end has ours rejected too. What was
// known stays, the rejection is told, and the first free moment heals it.
func TestRateLimiter(t *testing.T) {
	t.Parallel()
	var s state
	s.pod("a", "p", "main")
	s.give("p", "main", nvidia, dev(0))
	allocated := "a/p/main nvidia.com/gpu " + dev(0) + " 1"
	k := run(t, must.ShortDir(t), s)
	m := client(t, podmap.Options{Socket: k.socket})
	inv := devs()
	want(t, poll(t, m, inv), allocated)

	conn, err := grpc.NewClient("unix://"+k.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.OK(t, err)
	defer conn.Close()
	ctx, stop := context.WithCancel(t.Context())
	var knocking sync.WaitGroup
	exhausted := make(chan struct{})
	var once sync.Once
	for range 4 {
		knocking.Go(func() {
			for ctx.Err() == nil {
				if _, err := api.NewPodResourcesListerClient(conn).List(ctx,
					&api.ListPodResourcesRequest{}); status.Code(err) == codes.ResourceExhausted {
					once.Do(func() { close(exhausted) })
				}
			}
		})
	}
	<-exhausted
	rejected := false
	for range 1000 {
		if err := m.Poll(t.Context()); status.Code(err) == codes.ResourceExhausted {
			rejected = true
			break
		}
	}
	h := m.Allocations(inv)
	stop()
	knocking.Wait()
	if !rejected {
		t.Fatal("the limiter let everything pass")
	}
	want(t, h, allocated)
	if src := h.Sources[0]; src.Up || !strings.Contains(src.Message, "rate limited by the kubelet") {
		t.Errorf("health %+v", src)
	}
	// The bucket fills by a hundred in a second.
	for range 1000 {
		if err = m.Poll(t.Context()); err == nil {
			break
		}
	}
	must.OK(t, err)
	h = m.Allocations(inv)
	want(t, h, allocated)
	if src := h.Sources[0]; !src.Up || src.Message != "" {
		t.Errorf("health %+v", src)
	}
}

// Run, left to itself, asks within the limit also while it is rejected.
func TestRunAsksSparingly(t *testing.T) {
	t.Parallel()
	var s state
	s.pod("a", "p", "main")
	k := run(t, must.ShortDir(t), s)
	m := podmap.New(podmap.Options{Socket: k.socket, Interval: 20 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	start := time.Now()
	for k.counts["list"] < 20 {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("the kubelet counted %v", k.counts)
		}
		k.set(s)
	}
	stop()
	<-done
	took := time.Since(start)
	k.set(s)
	if most := 1 + took.Seconds()/0.02 + 2; k.counts["list"] > most || k.counts["total"] > 2*most {
		t.Errorf("the kubelet counted %v in %v", k.counts, took)
	}
}

// A kubelet before 1.20 knows v1alpha1 alone: Kubernetes' own server of it, which lists no claims and no counts.
func TestV1Alpha1OfKubernetes(t *testing.T) {
	t.Parallel()
	var s state
	s.pod("a", "p", "main")
	s.give("p", "main", nvidia, dev(0))
	s.pod("a", "q", "main")
	s.give("q", "main", nvidia+".shared", dev(1)+"::0")
	dir := must.ShortDir(t)
	k := run(t, dir, s, "--v1=false")
	m := client(t, podmap.Options{Socket: k.socket})
	for range 3 {
		h := poll(t, m, devs())
		want(t, h, "a/p/main nvidia.com/gpu "+dev(0)+" 1", "a/q/main nvidia.com/gpu.shared "+dev(1)+" ?")
		if h.Sources[0].Errors != 0 {
			t.Errorf("an old kubelet is an error: %+v", h.Sources[0])
		}
	}
	// It is upgraded in place.
	k.kill()
	s.Allocatable = map[string][]string{nvidia + ".shared": {dev(1) + "::0", dev(1) + "::1"}}
	run(t, dir, s)
	want(t, poll(t, m, devs()), "a/p/main nvidia.com/gpu "+dev(0)+" 1", "a/q/main nvidia.com/gpu.shared "+dev(1)+" 0.5")
}

// The checkpoint as Kubernetes' own code writes it: the UIDs of pods, and the GPU of a scheme whose ids lie.
func TestCheckpointOfKubernetes(t *testing.T) {
	t.Parallel()
	answer := func(visible string) []byte {
		b, err := proto.Marshal(&deviceplugin.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": visible}})
		must.OK(t, err)
		return b
	}
	var s state
	s.pod("a", "honest", "main")
	s.give("honest", "main", nvidia, dev(0)).Answer = answer(dev(0))
	s.pod("a", "wide", "main")
	wide := s.give("wide", "main", nvidia, dev(1))
	wide.NUMA, wide.Answer = []int64{0, 1}, answer(dev(1))
	s.pod("b", "liar", "main")
	s.give("liar", "main", nvidia, dev(3)+"-4").Answer = answer(dev(2)) // HAMi: the id names another GPU
	// An entry of a pod that is long gone lingers.
	s.Devices = append(s.Devices, device{Pod: "uid-gone", Container: "main", Resource: nvidia, IDs: []string{dev(3) + "-5"},
		Answer: answer(dev(4))})
	dir := must.ShortDir(t)
	file := dir + "/kubelet_internal_checkpoint"
	k := run(t, dir, s, "--checkpoint="+file)
	m := client(t, podmap.Options{Socket: k.socket, Checkpoint: file})
	h := poll(t, m, devs())
	want(t, h, "a/honest/main nvidia.com/gpu "+dev(0)+" 1", "a/wide/main nvidia.com/gpu "+dev(1)+" 1",
		"b/liar/main nvidia.com/gpu "+dev(2)+" ?")
	for _, p := range h.Pods {
		if p.UID != "uid-"+p.Pod {
			t.Errorf("pod %s has the UID %q", p.Pod, p.UID)
		}
	}
	for _, src := range h.Sources {
		if !src.Up || src.Errors != 0 {
			t.Errorf("health %+v", src)
		}
	}
}

// The real binary between a fake driver and Kubernetes' own server, through a crash of that with an empty first answer.
func TestTheBinaryAndKubernetes(t *testing.T) {
	t.Parallel()
	n := machine.Shipped(t, "demo", "demo")
	const allocated = "GPU-5a0e1100-8c1d-4e6b-9d10-000000000000"
	var s state
	s.pod("ml", "train-0", "main")
	s.give("train-0", "main", nvidia, allocated)
	s.Allocatable = map[string][]string{nvidia: {allocated}}
	dir := must.ShortDir(t)
	k := run(t, dir, s)
	n.Socket = k.socket
	e := n.Start(t, machine.Options{Flags: []string{"--poll.fast=200ms", "--poll.medium=400ms", "--poll.slow=1s", "--poll.kubelet=4s"}})
	// until scrapes until every text is there; the allocation has to be there all the time once it was.
	seen := false
	until := func(what string, texts ...string) {
		t.Helper()
		servers.Until(t, what, func() error {
			page, err := servers.Fetch(e.Base() + "/metrics")
			holds := strings.Contains(page, `gpu_container_allocation_ratio{container="main"`) &&
				strings.Contains(page, `pod="train-0"`)
			if seen && !holds {
				t.Fatalf("%s: the allocation is missing", what)
			}
			seen = holds
			if holds && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(page, text) }) {
				return err
			}
			return errors.Join(errors.New("not all texts are there"), err)
		})
	}
	up := func(is string) string { return `source="podresources"} ` + is + "\n" }
	until("at first", up("1"))
	k.kill()
	until("after the crash", `gpu_exporter_source_up{node="test-node",`+up("0"))
	k = run(t, dir, state{})
	until("with no pods yet", `gpu_exporter_source_up{node="test-node",`+up("1"))
	k.set(s)
	until("with all of them", `gpu_exporter_source_up{node="test-node",`+up("1"))
}
