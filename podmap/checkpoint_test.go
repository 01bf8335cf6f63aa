package podmap

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// entry is a checkpoint entry whose container was shown a GPU.
func entry(uid, container, resource, list, visible string) checkpointEntry {
	return checkpointEntry{PodUID: uid, ContainerName: container, ResourceName: resource,
		DeviceIDs: map[string][]string{"0": strings.Split(list, ",")},
		response:  &deviceplugin.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": visible}}}
}

// checkpoint is a checkpoint file that a test rewrites.
type checkpoint struct {
	t    *testing.T
	path string
	n    int
}

func newCheckpoint(t *testing.T) *checkpoint {
	return &checkpoint{t: t, path: filepath.Join(t.TempDir(), "kubelet_internal_checkpoint")}
}

func (l *checkpoint) raw(data []byte) {
	l.t.Helper()
	// As the kubelet does: a new file takes the place of the old.
	l.n++
	next := fmt.Sprintf("%s.%d", l.path, l.n)
	must.OK(l.t, os.WriteFile(next, data, 0o600))
	must.OK(l.t, os.Rename(next, l.path))
}

func (l *checkpoint) write(entries ...checkpointEntry) {
	l.t.Helper()
	l.raw(checkpointFile(l.t, entries))
}

func (c *clock) withCheckpoint(k kubelet, path string) *Map {
	return newMap(Options{Clock: c.time, Socket: "/run/k.sock", Checkpoint: path}, k)
}

func TestPodUIDs(t *testing.T) {
	l := newCheckpoint(t)
	l.write(entry("uid-p", "c", "nvidia.com/gpu", GPUA, GPUA), entry("uid-q", "c", "nvidia.com/gpu", GPUB+"-1", GPUC),
		entry("uid-init", "init", "nvidia.com/gpu", GPUA, GPUA))
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu="+GPUA, "a/q/c nvidia.com/gpu="+GPUB+"-1", "a/r/c nvidia.com/gpu="+GPUD)}
	h := poll(t, newClock().withCheckpoint(k, l.path))
	want := []gpu.PodRef{{Namespace: "a", Pod: "p", UID: "uid-p"}, {Namespace: "a", Pod: "q", UID: "uid-q"}, {Namespace: "a", Pod: "r"}}
	if !slices.Equal(h.Pods, want) {
		t.Errorf("pods %+v", h.Pods)
	}
	wantLines(t, h, "a/p/c nvidia.com/gpu A 1", "a/q/c nvidia.com/gpu C ? shared", "a/r/c nvidia.com/gpu D 1")
	if h.Uncertain {
		t.Error("everything is resolved, and still no GPU is known to be unallocated")
	}
}

// An entry counts only for the one allocation that it can belong to.
func TestEntriesThatDoNotCount(t *testing.T) {
	opaque := GPUB + "-1"
	for _, c := range []struct {
		name    string
		pods    []string
		entries []checkpointEntry
		want    []string
	}{
		{"another set of ids", []string{"a/p/c nvidia.com/gpu=" + opaque + "," + GPUB + "-2"},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque, GPUA)},
			[]string{"a/p/c nvidia.com/gpu unresolved 2"}},
		{"another container", []string{"a/p/c nvidia.com/gpu=" + opaque},
			[]checkpointEntry{entry("u", "d", "nvidia.com/gpu", opaque, GPUA)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"another resource", []string{"a/p/c nvidia.com/gpu=" + opaque},
			[]checkpointEntry{entry("u", "c", "nvidia.com/vgpu", opaque, GPUA)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"two entries alike, of a dead pod and a living", []string{"a/p/c nvidia.com/gpu=" + opaque},
			[]checkpointEntry{entry("dead", "c", "nvidia.com/gpu", opaque, GPUA), entry("u", "c", "nvidia.com/gpu", opaque, GPUC)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"a pod of two UIDs", []string{"a/p/c nvidia.com/gpu=" + opaque, "a/p/d nvidia.com/gpu=" + GPUB + "-2"},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque, GPUA), entry("v", "d", "nvidia.com/gpu", GPUB+"-2", GPUA)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1", "a/p/d nvidia.com/gpu unresolved 1"}},
		{"one UID for two pods", []string{"a/p/c nvidia.com/gpu=" + opaque, "a/q/d nvidia.com/gpu=" + GPUB + "-2"},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque, GPUA), entry("u", "d", "nvidia.com/gpu", GPUB+"-2", GPUA)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1", "a/q/d nvidia.com/gpu unresolved 1"}},
		{"a GPU that is not here", []string{"a/p/c nvidia.com/gpu=" + opaque},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque, missing)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"one GPU of two is here", []string{"a/p/c nvidia.com/gpu=" + opaque + "," + GPUB + "-2"},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque+","+GPUB+"-2", GPUA+","+missing)},
			[]string{"a/p/c nvidia.com/gpu A ? shared", "a/p/c nvidia.com/gpu unresolved 1"}},
		{"all GPUs", []string{"a/p/c nvidia.com/gpu=" + opaque}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque, "all")},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"none", []string{"a/p/c nvidia.com/gpu=" + opaque}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque, "none")},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"void", []string{"a/p/c nvidia.com/gpu=" + opaque}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque, "void")},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"an index", []string{"a/p/c nvidia.com/gpu=" + opaque}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque, "0")},
			[]string{"a/p/c nvidia.com/gpu A ? shared"}},
		{"an index that is not here", []string{"a/p/c nvidia.com/gpu=" + opaque},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque, "9")},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"direct and opaque IDs of one container", []string{"a/p/c nvidia.com/gpu=" + opaque + "," + GPUA},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", opaque+","+GPUA, GPUC)},
			[]string{"a/p/c nvidia.com/gpu A 1", "a/p/c nvidia.com/gpu unresolved 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newCheckpoint(t)
			l.write(c.entries...)
			h := poll(t, newClock().withCheckpoint(&fakeKubelet{pods: pods(c.pods...)}, l.path))
			wantLines(t, h, c.want...)
		})
	}
}

func TestCheckpointHealth(t *testing.T) {
	l, now := newCheckpoint(t), newClock()
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUB + "-1")}
	m := now.withCheckpoint(k, l.path)
	h := poll(t, m)
	if s := h.Sources; len(s) != 2 || !s[0].Up || s[1].Up || s[1].Name != "checkpoint" {
		t.Errorf("a file that is missing is no failure of the socket's: %+v", s)
	}
	l.write(entry("u", "c", "nvidia.com/gpu", GPUB+"-1", GPUA))
	now.advance(10 * time.Second)
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu A ? shared")

	// Truncated: what was read before is used for the allocations of that time only.
	l.raw([]byte(`{"Data":{"PodDeviceEntries":[{"PodUID":"u"`))
	k.pods = pods("a/p/c nvidia.com/gpu="+GPUB+"-1", "a/q/c nvidia.com/gpu="+GPUB+"-2")
	now.advance(30 * time.Second)
	h = poll(t, m)
	if s := h.Sources[1]; s.Up || s.Errors != 2 || !strings.HasSuffix(s.Message,
		"cannot be decoded: truncated; using the response from 30s ago") {
		t.Errorf("cut off: %+v", s)
	}
	wantLines(t, h, "a/p/c nvidia.com/gpu A ? shared", "a/q/c nvidia.com/gpu unresolved 1")
	k.pods = pods("a/q/c nvidia.com/gpu=" + GPUB + "-1") // the same ids, in another's hand
	wantLines(t, poll(t, m), "a/q/c nvidia.com/gpu unresolved 1")
	k.pods = pods("a/p/c nvidia.com/gpu=" + GPUB + "-1")
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu unresolved 1")

	// Good again, and then too old.
	l.write(entry("u", "c", "nvidia.com/gpu", GPUB+"-1", GPUA))
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu A ? shared")
	must.OK(t, os.Remove(l.path))
	now.advance(4 * time.Minute)
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu A ? shared")
	now.advance(2 * time.Minute)
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu unresolved 1")
}

// The entry of a deleted pod is not its successor's: the file was not written again yet.
func TestAUIDIsOnePods(t *testing.T) {
	l := newCheckpoint(t)
	k := &fakeKubelet{pods: pods("a/p-1/c nvidia.com/gpu=" + GPUB + "-1")}
	m := newClock().withCheckpoint(k, l.path)
	l.write(entry("u1", "c", "nvidia.com/gpu", GPUB+"-1", GPUA))
	wantLines(t, poll(t, m), "a/p-1/c nvidia.com/gpu A ? shared")
	k.pods = pods("a/p-2/c nvidia.com/gpu=" + GPUB + "-1")
	wantLines(t, poll(t, m), "a/p-2/c nvidia.com/gpu unresolved 1")
	l.write(entry("u2", "c", "nvidia.com/gpu", GPUB+"-1", GPUC))
	h := poll(t, m)
	wantLines(t, h, "a/p-2/c nvidia.com/gpu C ? shared")
	if h.Pods[0].UID != "u2" || h.List[0].Source != gpu.SourceCheckpoint {
		t.Errorf("%+v", h)
	}
}

func TestSinceOfResolvedAllocations(t *testing.T) {
	l, now := newCheckpoint(t), newClock()
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUB + "-1")}
	m := now.withCheckpoint(k, l.path)
	l.write(entry("u", "c", "nvidia.com/gpu", GPUB+"-1", GPUA), entry("v", "c", "nvidia.com/gpu", GPUB+"-2", GPUA))
	if h := poll(t, m); h.List[0].Since.Present() {
		t.Errorf("it start before the exporter: %v", h.List[0].Since)
	}
	now.advance(time.Minute)
	start := now.now
	k.pods = pods("a/p/c nvidia.com/gpu="+GPUB+"-1", "a/q/c nvidia.com/gpu="+GPUB+"-2")
	for range 2 {
		if h := poll(t, m); h.List[0].Since.Present() || h.List[1].Since.Or(time.Time{}) != start {
			t.Errorf("%v and %v", h.List[0].Since, h.List[1].Since)
		}
		now.advance(time.Minute)
	}
}
