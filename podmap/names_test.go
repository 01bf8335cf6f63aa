package podmap

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// namesOf lists what a map names of some UIDs.
func namesOf(m *Map, uids ...string) map[string]string {
	out := map[string]string{}
	for _, uid := range uids {
		if c, ok := m.ContainerOf(uid); ok {
			out[uid] = c.Namespace + "/" + c.Pod + "/" + c.Name
		}
	}
	return out
}

func TestContainerOfAUID(t *testing.T) {
	api := func(uids map[gpu.PodName]string) *source.Pods {
		pods := map[gpu.PodName]*source.Pod{}
		for name, uid := range uids {
			pods[name] = &source.Pod{UID: uid}
		}
		return source.NewPods(pods)
	}
	p, q := gpu.PodName{Namespace: "a", Pod: "p"}, gpu.PodName{Namespace: "a", Pod: "q"}
	gpuOf := func(dev string) string { return "nvidia.com/gpu=" + dev }
	for _, c := range []struct {
		name    string
		pods    []string
		entries []checkpointEntry
		api     map[gpu.PodName]string
		want    map[string]string
	}{
		{"by the checkpoint", []string{"a/p/c " + gpuOf(GPUA), "a/q/c " + gpuOf(GPUB)},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", GPUA, GPUA), entry("v", "c", "nvidia.com/gpu", GPUB, GPUB)}, nil,
			map[string]string{"u": "a/p/c", "v": "a/q/c"}},
		{"by the checkpoint, ids that lie", []string{"a/p/c " + gpuOf(GPUA+"-1")},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", GPUA+"-1", GPUB)}, nil, map[string]string{"u": "a/p/c"}},
		{"by the API alone", []string{"a/p/c " + gpuOf(GPUA)}, nil, map[gpu.PodName]string{p: "u"}, map[string]string{"u": "a/p/c"}},
		{"by the API, a pod without devices", []string{"a/p/c"}, nil, map[gpu.PodName]string{p: "u"}, map[string]string{"u": "a/p/c"}},
		{"by the API, a claim of DRA", []string{"a/p/c gpu.nvidia.com:claim=gpu-0"}, nil, map[gpu.PodName]string{p: "u"},
			map[string]string{"u": "a/p/c"}},
		{"a side container without devices", []string{"a/p/proxy", "a/p/c " + gpuOf(GPUA)},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", GPUA, GPUA)}, nil, map[string]string{"u": "a/p/c"}},
		{"two containers with devices", []string{"a/p/c " + gpuOf(GPUA), "a/p/d " + gpuOf(GPUB)},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", GPUA, GPUA), entry("u", "d", "nvidia.com/gpu", GPUB, GPUB)},
			map[gpu.PodName]string{p: "u"}, nil},
		{"two containers without devices", []string{"a/p/c", "a/p/d"}, nil, map[gpu.PodName]string{p: "u"}, nil},
		{"a pod that the kubelet does not list", []string{"a/p/c " + gpuOf(GPUA)}, nil, map[gpu.PodName]string{q: "u"}, nil},
		{"equal ids of two pods", []string{"a/p/c " + gpuOf(GPUA+"-1"), "a/q/c " + gpuOf(GPUA+"-1")},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", GPUA+"-1", GPUA)}, nil, nil},
		{"two entries alike", []string{"a/p/c " + gpuOf(GPUA)},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", GPUA, GPUA), entry("v", "c", "nvidia.com/gpu", GPUA, GPUA)}, nil, nil},
		{"the sources contradict", []string{"a/p/c " + gpuOf(GPUA)},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", GPUA, GPUA)}, map[gpu.PodName]string{p: "v"}, nil},
		{"one UID for two pods", []string{"a/p/c " + gpuOf(GPUA), "a/q/c " + gpuOf(GPUB)},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", GPUA, GPUA)}, map[gpu.PodName]string{q: "u"}, nil},
		{"no source", []string{"a/p/c " + gpuOf(GPUA)}, nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newCheckpoint(t)
			l.write(c.entries...)
			m := newClock().withCheckpoint(&fakeKubelet{pods: pods(c.pods...)}, l.path)
			if c.api != nil {
				m.watch = &fakeWatch{api(c.api)}
			}
			poll(t, m)
			poll(t, m)
			if got := namesOf(m, "u", "v", ""); !maps.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// Between the list and the file an entry of the pod that had the same devices before may still stand in the file: one
// response alone names no container, and a name that turned out to be another pod's was never returned.
func TestAUIDNeedsTwoResponses(t *testing.T) {
	l := newCheckpoint(t)
	k := &fakeKubelet{pods: pods("a/new/c nvidia.com/gpu=" + GPUA)}
	c := newClock()
	m := c.withCheckpoint(k, l.path)
	l.write(entry("old", "c", "nvidia.com/gpu", GPUA, GPUA)) // of a deleted pod
	poll(t, m)
	if got := namesOf(m, "old"); len(got) != 0 {
		t.Fatalf("one response named %v", got)
	}
	l.write(entry("new", "c", "nvidia.com/gpu", GPUA, GPUA))
	poll(t, m)
	if got := namesOf(m, "old", "new"); len(got) != 0 {
		t.Fatalf("one response named %v", got)
	}
	poll(t, m)
	if got := namesOf(m, "old", "new"); !maps.Equal(got, map[string]string{"new": "a/new/c"}) {
		t.Errorf("named %v", got)
	}
	// A response that is too old names no container.
	k.err = fmt.Errorf("gone")
	c.advance(DefaultMaxAge + time.Second)
	_ = m.Poll(t.Context())
	if got := namesOf(m, "new"); len(got) != 0 {
		t.Errorf("an old response named %v", got)
	}
	if got := namesOf(newMap(Options{}, nil), "new"); len(got) != 0 {
		t.Errorf("without a source, named %v", got)
	}
}

// A list that is older than the checkpoint for longer than one poll has the predecessor of a pod with the same devices. No
// kubelet should send one; a name of two pods one after the other looks alike, and waits as long as a response is used.
func TestAListOlderThanTheCheckpoint(t *testing.T) {
	const first, next, gone = "a/p-1/c nvidia.com/gpu=" + GPUA, "a/p-2/c nvidia.com/gpu=" + GPUA, "a/other/c nvidia.com/gpu=" + GPUB
	type poll struct{ pod, uid, named string }
	named := func(pod string) string { return pod[:len("a/p-1/c")] }
	p1, p2 := poll{first, "u1", "u1 " + named(first)}, poll{next, "u2", "u2 " + named(next)}
	stale, fresh, silence := poll{first, "u2", ""}, poll{next, "u2", ""}, poll{}
	for _, c := range []struct {
		name  string
		polls []poll
	}{
		{"a pod after the other", []poll{{first, "u1", ""}, p1, fresh, p2}},
		{"the file before the list, once", []poll{{first, "u1", ""}, p1, stale, fresh, fresh, p2}},
		{"the file long before the list", []poll{{first, "u1", ""}, p1, stale, stale, stale, fresh, fresh, p2}},
		{"an old list after a new one", []poll{{first, "u1", ""}, p1, fresh, stale, stale, stale, fresh, fresh, p2}},
		{"in turn", []poll{{first, "u1", ""}, p1, fresh, p2, stale, fresh, stale, stale, stale, fresh, fresh, p2}},
		{"an old list after none", []poll{{first, "u1", ""}, p1,
			{gone, "u1", ""}, {gone, "u1", ""}, stale, stale, stale, fresh, fresh, p2}},
		{"an old list after no response for long", []poll{{first, "u1", ""}, p1, silence, stale, stale, fresh, fresh, p2}},
		{"two pods of one name", append(append([]poll{{first, "u1", ""}, p1}, slices.Repeat([]poll{stale}, 31)...),
			poll{first, "u2", "u2 " + named(first)})},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, now := newCheckpoint(t), newClock()
			k := &fakeKubelet{}
			m := now.withCheckpoint(k, l.path)
			for i, p := range c.polls {
				if p == silence {
					now.advance(DefaultMaxAge)
					continue
				}
				l.write(entry(p.uid, "c", "nvidia.com/gpu", GPUA, GPUA))
				k.pods = pods(p.pod)
				must.OK(t, m.Poll(t.Context()))
				got := ""
				for uid, name := range namesOf(m, "u1", "u2") {
					got += uid + " " + name
				}
				if got != p.named {
					t.Errorf("poll %d: %q, want %q", i, got, p.named)
				}
				now.advance(DefaultInterval)
			}
		})
	}
}

// FuzzContainerOf plays a node whose checkpoint has every listed pod's true entries and, beside them, whatever dead
// pods left: a name is the true one, or there is none.
func FuzzContainerOf(f *testing.F) {
	f.Add([]byte{0x00, 0x11, 0x22}, []byte{0x01})
	f.Add([]byte{0x00, 0x00, 0x10}, []byte{0x00, 0x10, 0x21})
	f.Fuzz(func(t *testing.T, living, dead []byte) {
		living, dead = living[:min(len(living), 8)], dead[:min(len(dead), 8)]
		id := func(b byte) string { return fmt.Sprintf("%s-%d", GPUA, b>>4&3) }
		container := func(b byte) string { return fmt.Sprintf("c%d", b&1) }
		var lines []string
		var entries []checkpointEntry
		want := map[string]gpu.Container{}
		for i, b := range living {
			pod, uid := fmt.Sprintf("p%d", i), fmt.Sprintf("u%d", i)
			lines = append(lines, fmt.Sprintf("a/%s/%s nvidia.com/gpu=%s", pod, container(b), id(b)))
			entries = append(entries, entry(uid, container(b), "nvidia.com/gpu", id(b), GPUA))
			want[uid] = gpu.Container{Namespace: "a", Pod: pod, Name: container(b)}
		}
		for i, b := range dead {
			entries = append(entries, entry(fmt.Sprintf("dead%d", i), container(b), "nvidia.com/gpu", id(b), GPUA))
		}
		if len(living) == 0 {
			return
		}
		l := newCheckpoint(t)
		l.write(entries...)
		m := newClock().withCheckpoint(&fakeKubelet{pods: pods(lines...)}, l.path)
		poll(t, m)
		poll(t, m)
		for i := range living {
			uid := fmt.Sprintf("u%d", i)
			if c, ok := m.ContainerOf(uid); ok && c != want[uid] {
				t.Errorf("%s is %v, named %v", uid, want[uid], c)
			}
		}
		for i := range dead {
			if c, ok := m.ContainerOf(fmt.Sprintf("dead%d", i)); ok {
				t.Errorf("a dead pod was named %v", c)
			}
		}
	})
}
