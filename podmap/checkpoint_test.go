package podmap

import (
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// entry is a checkpoint entry whose container was shown a GPU.
func entry(uid, container, resource, list, visible string) checkpointEntry {
	return checkpointEntry{PodUID: uid, ContainerName: container, ResourceName: resource, DeviceIDs: map[string][]string{"0": strings.Split(list, ",")},
		answer: &deviceplugin.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": visible}}}
}

// ledger is a checkpoint file that a test rewrites.
type ledger struct {
	t    *testing.T
	path string
	n    int
}

func newLedger(t *testing.T) *ledger {
	return &ledger{t: t, path: filepath.Join(t.TempDir(), "kubelet_internal_checkpoint")}
}

func (l *ledger) raw(data []byte) {
	l.t.Helper()
	// As the kubelet does: a new file takes the place of the old.
	l.n++
	next := fmt.Sprintf("%s.%d", l.path, l.n)
	if err := os.WriteFile(next, data, 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(next, l.path); err != nil {
		l.t.Fatal(err)
	}
}

func (l *ledger) write(entries ...checkpointEntry) {
	l.t.Helper()
	l.raw(checkpointFile(l.t, entries))
}

func (c *clock) withCheckpoint(k lister, path string) *Map {
	return newMap(Options{Clock: c.time, Socket: "/run/k.sock", Checkpoint: path}, k)
}

func TestFormsOfTheCheckpoint(t *testing.T) {
	seed := maphash.MakeSeed()
	set := func(list ...string) idSet {
		var hashes []uint64
		for _, id := range list {
			hashes = append(hashes, hashID(seed, id))
		}
		return newIDSet(hashes)
	}
	for _, c := range []struct {
		name, text string
		want       []string
		unread     int
		err        string
	}{
		{"a list per NUMA node", `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"nvidia.com/gpu","DeviceIDs":{"0":["a","b"],"1":["b"]},"AllocResp":""}],"RegisteredDevices":{"nvidia.com/gpu":["a","b"]}},"Checksum":12345}`,
			[]string{"u c nvidia.com/gpu 2"}, 0, ""},
		{"one list, of old kubelets", `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"nvidia.com/gpu","DeviceIDs":["b","a"],"AllocResp":null}],"RegisteredDevices":{}},"Checksum":1}`,
			[]string{"u c nvidia.com/gpu 2"}, 0, ""},
		{"no ids, keys of tomorrow, any order", `{"BootID":"x","Checksum":1,"Data":{"New":{"a":[1,{"b":null}]},"RegisteredDevices":null,"PodDeviceEntries":[{"ResourceName":"r/r","DeviceIDs":null,"More":[[1]],"ContainerName":"c","PodUID":"u"}]}}`,
			[]string{"u c r/r 0"}, 0, ""},
		{"nothing handed out", `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`, nil, 0, ""},
		{"no names", `{"Data":{"PodDeviceEntries":[{"ContainerName":"c","ResourceName":"r"}]},"Checksum":1}`, nil, 0, ""},
		{"an answer that is none", `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":["a"],"AllocResp":"%%%"},{"PodUID":"v","ContainerName":"c","ResourceName":"r","DeviceIDs":["b"],"AllocResp":"/////w=="}]}}`,
			[]string{"u c r 1", "v c r 1"}, 2, ""},
		{"cut off", `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":["a"]}`, nil, 0, "ends in the middle"},
		{"cut off behind the entries", `{"Data":{"PodDeviceEntries":[]`, nil, 0, "ends in the middle"},
		{"empty", ``, nil, 0, "ends in the middle"},
		{"another file", `{"policyName":"none","checksum":1}`, nil, 0, "not a kubelet's device checkpoint"},
		{"not JSON", "\x00\x00", nil, 0, "invalid character"},
		{"a number for a name", `{"Data":{"PodDeviceEntries":[{"PodUID":7}]}}`, nil, 0, "7 where a text should be"},
		{"a name without end", `{"Data":{"PodDeviceEntries":[{"PodUID":"` + strings.Repeat("u", 600) + `"}]}}`, nil, 0, "600 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readCheckpoint(strings.NewReader(c.text), seed)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for key, entries := range got.entries {
				for _, e := range entries {
					lines = append(lines, fmt.Sprintf("%s %s %s %d", e.uid, key.container, key.resource, key.ids.count))
				}
			}
			slices.Sort(lines)
			if !slices.Equal(lines, c.want) || got.unread != c.unread {
				t.Errorf("%q, %d unread; want %q, %d", lines, got.unread, c.want, c.unread)
			}
		})
	}
	if set("a", "b", "a") != set("b", "a") || set("a") == set("b") || set("a", "b") == set("a", "c") || set() == set("a") {
		t.Error("sets are not compared by what is in them")
	}
}

// The kubelet writes the file after it has handed out; secrets of a plugin's answer are not kept.
func TestOnlyWhatASchemeReadsIsKept(t *testing.T) {
	e := entry("u", "c", "nvidia.com/gpu", "a", GPUA)
	e.answer.Envs["PASSWORD"] = "secret"
	e.answer.Envs["ALIYUN_COM_GPU_MEM_DEV"] = strings.Repeat("1", longestValue+1)
	e.answer.Annotations = map[string]string{"other": "x"}
	for range mostNames + 10 {
		e.answer.Devices = append(e.answer.Devices, &deviceplugin.DeviceSpec{HostPath: "/dev/nvidia0"})
	}
	seed := maphash.MakeSeed()
	got, err := readCheckpoint(strings.NewReader(string(checkpointFile(t, []checkpointEntry{e}))), seed)
	if err != nil {
		t.Fatal(err)
	}
	for _, entries := range got.entries {
		if a := entries[0]; len(a.env) != 1 || len(a.annotations) != 0 || len(a.nodes) != mostNames {
			t.Errorf("kept %d variables, %d annotations, %d nodes", len(a.env), len(a.annotations), len(a.nodes))
		}
	}
}

func TestPodUIDs(t *testing.T) {
	l := newLedger(t)
	l.write(entry("uid-p", "c", "nvidia.com/gpu", GPUA, GPUA), entry("uid-q", "c", "nvidia.com/gpu", GPUB+"-1", GPUC),
		entry("uid-init", "init", "nvidia.com/gpu", GPUA, GPUA))
	k := &kubelet{pods: pods("a/p/c nvidia.com/gpu="+GPUA, "a/q/c nvidia.com/gpu="+GPUB+"-1", "a/r/c nvidia.com/gpu="+GPUD)}
	h := poll(t, newClock().withCheckpoint(k, l.path))
	want := []gpu.PodRef{{Namespace: "a", Pod: "p", UID: "uid-p"}, {Namespace: "a", Pod: "q", UID: "uid-q"}, {Namespace: "a", Pod: "r"}}
	if !slices.Equal(h.Pods, want) {
		t.Errorf("pods %+v", h.Pods)
	}
	wantLines(t, h, "a/p/c nvidia.com/gpu A 1", "a/q/c nvidia.com/gpu C ? shared", "a/r/c nvidia.com/gpu D 1")
	if h.Uncertain {
		t.Error("all is told, and still no GPU is known free")
	}
}

// An entry is believed only beside the one holder that it can be of.
func TestEntriesThatAreNotBelieved(t *testing.T) {
	lying := GPUB + "-1"
	for _, c := range []struct {
		name    string
		pods    []string
		entries []checkpointEntry
		want    []string
	}{
		{"another set of ids", []string{"a/p/c nvidia.com/gpu=" + lying + "," + GPUB + "-2"}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying, GPUA)},
			[]string{"a/p/c nvidia.com/gpu unresolved 2"}},
		{"another container", []string{"a/p/c nvidia.com/gpu=" + lying}, []checkpointEntry{entry("u", "d", "nvidia.com/gpu", lying, GPUA)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"another resource", []string{"a/p/c nvidia.com/gpu=" + lying}, []checkpointEntry{entry("u", "c", "nvidia.com/vgpu", lying, GPUA)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"two entries alike, of a dead pod and a living", []string{"a/p/c nvidia.com/gpu=" + lying},
			[]checkpointEntry{entry("dead", "c", "nvidia.com/gpu", lying, GPUA), entry("u", "c", "nvidia.com/gpu", lying, GPUC)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"a pod of two UIDs", []string{"a/p/c nvidia.com/gpu=" + lying, "a/p/d nvidia.com/gpu=" + GPUB + "-2"},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying, GPUA), entry("v", "d", "nvidia.com/gpu", GPUB+"-2", GPUA)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1", "a/p/d nvidia.com/gpu unresolved 1"}},
		{"one UID for two pods", []string{"a/p/c nvidia.com/gpu=" + lying, "a/q/d nvidia.com/gpu=" + GPUB + "-2"},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying, GPUA), entry("u", "d", "nvidia.com/gpu", GPUB+"-2", GPUA)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1", "a/q/d nvidia.com/gpu unresolved 1"}},
		{"a GPU that is not here", []string{"a/p/c nvidia.com/gpu=" + lying}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying, gone)},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"one GPU of two is here", []string{"a/p/c nvidia.com/gpu=" + lying + "," + GPUB + "-2"},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying+","+GPUB+"-2", GPUA+","+gone)},
			[]string{"a/p/c nvidia.com/gpu A ? shared", "a/p/c nvidia.com/gpu unresolved 1"}},
		{"all GPUs", []string{"a/p/c nvidia.com/gpu=" + lying}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying, "all")},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"none", []string{"a/p/c nvidia.com/gpu=" + lying}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying, "none")},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"void", []string{"a/p/c nvidia.com/gpu=" + lying}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying, "void")},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"an index", []string{"a/p/c nvidia.com/gpu=" + lying}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying, "0")},
			[]string{"a/p/c nvidia.com/gpu A ? shared"}},
		{"an index that is not here", []string{"a/p/c nvidia.com/gpu=" + lying}, []checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying, "9")},
			[]string{"a/p/c nvidia.com/gpu unresolved 1"}},
		{"ids of a plugin that nobody knows", []string{"a/p/c example.com/gpu=" + GPUA}, []checkpointEntry{entry("u", "c", "example.com/gpu", GPUA, GPUA)},
			[]string{"a/p/c example.com/gpu unresolved 1"}},
		{"honest and invented ids in one hand", []string{"a/p/c nvidia.com/gpu=" + lying + "," + GPUA},
			[]checkpointEntry{entry("u", "c", "nvidia.com/gpu", lying+","+GPUA, GPUC)},
			[]string{"a/p/c nvidia.com/gpu A 1", "a/p/c nvidia.com/gpu unresolved 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(t)
			l.write(c.entries...)
			h := poll(t, newClock().withCheckpoint(&kubelet{pods: pods(c.pods...)}, l.path))
			wantLines(t, h, c.want...)
		})
	}
}

// How a container is shown its GPUs, in all the ways of the runtime.
func TestWaysToShowAGPU(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer *deviceplugin.ContainerAllocateResponse
		want   string
	}{
		{"environment", &deviceplugin.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": GPUC}}, "C ? shared"},
		{"MIG index", &deviceplugin.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "3:0"}}, "D D3 1"},
		{"mounts", &deviceplugin.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": volumeDevices},
			Mounts: []*deviceplugin.Mount{{ContainerPath: volumeDevices + "/" + GPUC}}}, "C ? shared"},
		{"CDI annotation", &deviceplugin.ContainerAllocateResponse{Annotations: map[string]string{
			"cdi.k8s.io/nvidia-device-plugin_1": "k8s.device-plugin.nvidia.com/gpu=" + GPUC, "cdi.k8s.io/other": "nvidia.com/gds=all"}}, "C ? shared"},
		{"CDI field", &deviceplugin.ContainerAllocateResponse{CdiDevices: []*deviceplugin.CDIDevice{{Name: "nvidia.com/gpu=2"}, {Name: "nvidia.com/gds=all"}}}, "C ? shared"},
		{"CDI type and index", &deviceplugin.ContainerAllocateResponse{CdiDevices: []*deviceplugin.CDIDevice{{Name: "nvidia.com/mig=mig3:0"}}}, "D D3 1"},
		{"device nodes", &deviceplugin.ContainerAllocateResponse{Devices: []*deviceplugin.DeviceSpec{{HostPath: "/dev/nvidiactl"}, {HostPath: "/dev/nvidia1"}}}, "C ? shared"},
		{"a CDI name of others", &deviceplugin.ContainerAllocateResponse{CdiDevices: []*deviceplugin.CDIDevice{{Name: "example.com/gpu=0"}}}, ""},
		{"nothing", &deviceplugin.ContainerAllocateResponse{}, ""},
	} {
		l := newLedger(t)
		e := entry("u", "c", "nvidia.com/gpu", GPUB+"-1", "")
		e.answer = c.answer
		l.write(e)
		h := poll(t, newClock().withCheckpoint(&kubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUB + "-1")}, l.path))
		want := "a/p/c nvidia.com/gpu " + c.want
		if c.want == "" {
			want = "a/p/c nvidia.com/gpu unresolved 1"
		}
		if got := lines(h); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}

func TestCheckpointHealth(t *testing.T) {
	l, now := newLedger(t), newClock()
	k := &kubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUB + "-1")}
	m := now.withCheckpoint(k, l.path)
	if s := m.Allocations(node()).Sources; len(s) != 2 || s[1].Name != "checkpoint" || s[1].Up || s[1].Message == "" {
		t.Errorf("before anything: %+v", s)
	}
	h := poll(t, m)
	if s := h.Sources[1]; s.Up || s.Errors != 1 || !strings.Contains(s.Message, "does not exist") {
		t.Errorf("no file: %+v", s)
	}
	if !h.Sources[0].Up {
		t.Error("a file that is missing is no failure of the socket's")
	}
	l.write(entry("u", "c", "nvidia.com/gpu", GPUB+"-1", GPUA))
	now.advance(10 * time.Second)
	h = poll(t, m)
	if s := h.Sources[1]; !s.Up || s.Errors != 1 || s.Message != "" || s.LastSuccess.Or(time.Time{}) != now.now {
		t.Errorf("good: %+v", s)
	}
	wantLines(t, h, "a/p/c nvidia.com/gpu A ? shared")

	// Cut off: what was read before goes on for those who held then, and for nobody else.
	l.raw([]byte(`{"Data":{"PodDeviceEntries":[{"PodUID":"u"`))
	k.pods = pods("a/p/c nvidia.com/gpu="+GPUB+"-1", "a/q/c nvidia.com/gpu="+GPUB+"-2")
	now.advance(30 * time.Second)
	h = poll(t, m)
	if s := h.Sources[1]; s.Up || s.Errors != 2 || !strings.HasSuffix(s.Message, "cannot be understood: it ends in the middle; using what was read 30s ago") {
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
	if err := os.Remove(l.path); err != nil {
		t.Fatal(err)
	}
	now.advance(4 * time.Minute)
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu A ? shared")
	now.advance(2 * time.Minute)
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu unresolved 1")
}

// The entry of a pod that is gone is not its successor's: the file was not written anew yet.
func TestAUIDIsOnePods(t *testing.T) {
	l := newLedger(t)
	k := &kubelet{pods: pods("a/p-1/c nvidia.com/gpu=" + GPUB + "-1")}
	m := newClock().withCheckpoint(k, l.path)
	l.write(entry("u1", "c", "nvidia.com/gpu", GPUB+"-1", GPUA))
	wantLines(t, poll(t, m), "a/p-1/c nvidia.com/gpu A ? shared")
	k.pods = pods("a/p-2/c nvidia.com/gpu=" + GPUB + "-1")
	wantLines(t, poll(t, m), "a/p-2/c nvidia.com/gpu unresolved 1")
	l.write(entry("u2", "c", "nvidia.com/gpu", GPUB+"-1", GPUC))
	h := poll(t, m)
	wantLines(t, h, "a/p-2/c nvidia.com/gpu C ? shared")
	if h.Pods[0].UID != "u2" || h.List[0].Source != SourceCheckpoint {
		t.Errorf("%+v", h)
	}
}

func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	l := newLedger(t)
	m := newClock().withCheckpoint(&kubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUB + "-1")}, l.path)
	l.write(entry("u", "c", "nvidia.com/gpu", GPUB+"-1", GPUA))
	poll(t, m)
	first := m.files.checkpoint
	poll(t, m)
	if m.files.checkpoint != first {
		t.Error("read again")
	}
	l.write(entry("u", "c", "nvidia.com/gpu", GPUB+"-1", GPUC))
	wantLines(t, poll(t, m), "a/p/c nvidia.com/gpu C ? shared")
}

func TestWhatIsToldIsNoLongerStrange(t *testing.T) {
	l := newLedger(t)
	k := &kubelet{pods: pods("a/p/c nvidia.com/gpu="+GPUB+"-1", "a/q/c aliyun.com/gpu-mem="+GPUB+"-_-1")}
	m := newClock().withCheckpoint(k, l.path)
	l.write(entry("u", "c", "nvidia.com/gpu", GPUB+"-1", GPUA))
	poll(t, m)
	if got := m.Unrecognised(); len(got) != 1 || got[0].Resource != "aliyun.com/gpu-mem" {
		t.Errorf("%+v", got)
	}
}

func TestAllocsOfTruthHaveABeginning(t *testing.T) {
	l, now := newLedger(t), newClock()
	k := &kubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUB + "-1")}
	m := now.withCheckpoint(k, l.path)
	l.write(entry("u", "c", "nvidia.com/gpu", GPUB+"-1", GPUA), entry("v", "c", "nvidia.com/gpu", GPUB+"-2", GPUA))
	if h := poll(t, m); h.List[0].Since.Present() {
		t.Errorf("it began before the exporter: %v", h.List[0].Since)
	}
	now.advance(time.Minute)
	began := now.now
	k.pods = pods("a/p/c nvidia.com/gpu="+GPUB+"-1", "a/q/c nvidia.com/gpu="+GPUB+"-2")
	for range 2 {
		if h := poll(t, m); h.List[0].Since.Present() || h.List[1].Since.Or(time.Time{}) != began {
			t.Errorf("%v and %v", h.List[0].Since, h.List[1].Since)
		}
		now.advance(time.Minute)
	}
}

// A plugin with an id per MiB makes files of tens of megabytes; they are read in passing.
func TestALargeCheckpointTakesLittleMemory(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{"aliyun.com/gpu-mem":["`)
	for i := range 200_000 {
		fmt.Fprintf(&b, "%s-_-%d\",\"", GPUA, i)
	}
	b.WriteString(`x"]}},"Checksum":1}`)
	text := b.String()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	got, err := readCheckpoint(strings.NewReader(text), maphash.MakeSeed())
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("%d bytes stay of a file of %d", grown, len(text))
	}
	runtime.KeepAlive(got)
}

// endless says one thing for ever.
type endless struct {
	chunk string
	at    int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.chunk[e.at:])
	e.at = (e.at + n) % len(e.chunk)
	return n, nil
}

func TestBoundlessFiles(t *testing.T) {
	big := `"` + strings.Repeat("x", 1<<18) + `",`
	for _, c := range []struct{ begin, chunk, message string }{
		{`{"New":[`, big, "larger than 64 MiB"},
		{`{"Data":"`, "x", "a value of more than 1 MiB"},
		{``, "    ", "a value of more than 1 MiB"},
		{`{"Data":{"PodDeviceEntries":[{"DeviceIDs":[`, strings.Repeat(`"",`, 1000), "ids in one entry"},
	} {
		e := &endless{chunk: strings.Repeat(c.chunk, 1+4096/len(c.chunk))}
		_, err := readCheckpoint(io.MultiReader(strings.NewReader(c.begin), e), maphash.MakeSeed())
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q", c.begin, err, c.message)
		}
	}
	if _, err := readPreparedClaims(&endless{chunk: big}); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("DRA checkpoint: %v", err)
	}
}

func TestDRACheckpointHealth(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "checkpoint.json"), newClock()
	m := newMap(Options{Clock: now.time, DRACheckpoint: path}, &kubelet{pods: pods("a/p/c gpu.nvidia.com:x=gpu-3")})
	for _, c := range []struct{ text, message string }{
		{"", "unexpected end"},
		{`{"checksum":1,"v1":{}}`, "older than v25.12"},
		{`[]`, "cannot unmarshal array"},
		{`{"v2":{"preparedClaims":{"x":{"namespace":7}}}}`, "cannot unmarshal number"},
		{`{"v2":{}}`, ""},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		h := poll(t, m)
		wantLines(t, h, "a/p/c gpu.nvidia.com A 1")
		if s := h.Sources[1]; s.Name != "dra_checkpoint" || s.Up != (c.message == "") || !strings.Contains(s.Message, c.message) {
			t.Errorf("%s: %+v", c.text, s)
		}
	}
}
