package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// keepGPU keeps what begins with GPU.
var keepGPU = Keep{Env: isGPU, Annotation: isGPU}

func isGPU(name string) bool { return strings.HasPrefix(name, "GPU") }

// file renders a checkpoint of one entry.
func file(t testing.TB, ids any, r *deviceplugin.ContainerAllocateResponse) []byte {
	raw, err := proto.Marshal(r)
	must.OK(t, err)
	out, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": []any{map[string]any{
		"PodUID": "u", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": ids, "AllocResp": raw}}}})
	must.OK(t, err)
	return out
}

func TestFormsOfTheCheckpoint(t *testing.T) {
	seed := maphash.MakeSeed()
	for _, c := range []struct {
		name, text string
		want       []string
		unread     int
		err        string
	}{
		{"a list per NUMA node",
			`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"nvidia.com/gpu",
			"DeviceIDs":{"0":["a","b"],"1":["b"]},"AllocResp":""}],"RegisteredDevices":{"nvidia.com/gpu":["a",
			"b"]}},"Checksum":12345}`,
			[]string{"u c nvidia.com/gpu 2"}, 0, ""},
		{"one list, of old kubelets",
			`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"nvidia.com/gpu",
			"DeviceIDs":["b","a"],"AllocResp":null}],"RegisteredDevices":{}},"Checksum":1}`,
			[]string{"u c nvidia.com/gpu 2"}, 0, ""},
		{"no ids, keys of tomorrow, any order",
			`{"BootID":"x","Checksum":1,"Data":{"New":{"a":[1,{"b":null}]},"RegisteredDevices":null,
			"PodDeviceEntries":[{"ResourceName":"r/r","DeviceIDs":null,"More":[[1]],"ContainerName":"c",
			"PodUID":"u"}]}}`,
			[]string{"u c r/r 0"}, 0, ""},
		{"nothing handed out", `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`, nil, 0, ""},
		{"an undecodable response",
			`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":["a"],
			"AllocResp":"%%%"},{"PodUID":"v","ContainerName":"c","ResourceName":"r","DeviceIDs":["b"],
			"AllocResp":"/////w=="}]}}`,
			[]string{"u c r 1", "v c r 1"}, 2, ""},
		{"cut off", `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":["a"]}`, nil, 0,
			"truncated"},
		{"cut off behind the entries", `{"Data":{"PodDeviceEntries":[]`, nil, 0, "truncated"},
		{"empty", ``, nil, 0, "truncated"},
		{"another file", `{"policyName":"none","checksum":1}`, nil, 0, "not a kubelet's device checkpoint"},
		{"not JSON", "\x00\x00", nil, 0, "invalid character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readCheckpoint(strings.NewReader(c.text), seed, keepGPU)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			must.OK(t, err)
			var lines []string
			for key, entries := range got.Entries {
				for _, e := range entries {
					lines = append(lines, fmt.Sprintf("%s %s %s %d", e.UID, key.Container, key.Resource, key.IDs.Len()))
				}
			}
			slices.Sort(lines)
			if !slices.Equal(lines, c.want) || got.undecoded != c.unread {
				t.Errorf("%q, %d unread; want %q, %d", lines, got.undecoded, c.want, c.unread)
			}
		})
	}
}

// A plugin with an id per MiB makes files of tens of megabytes; they are read in passing.
func TestALargeCheckpointTakesLittleMemory(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{"aliyun.com/gpu-mem":["`)
	for i := range 200_000 {
		fmt.Fprintf(&b, "%s-_-%d\",\"", "GPU-0", i)
	}
	b.WriteString(`x"]}},"Checksum":1}`)
	text := b.String()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	got, err := readCheckpoint(strings.NewReader(text), maphash.MakeSeed(), keepGPU)
	runtime.GC()
	runtime.ReadMemStats(&after)
	must.OK(t, err)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("%d bytes stay of a file of %d", grown, len(text))
	}
	runtime.KeepAlive(got)
}

// endless repeats a text.
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
		{`{"Data":{"PodDeviceEntries":[{"DeviceIDs":[`, strings.Repeat(`"",`, 1000), "IDs in one entry"},
	} {
		e := &endless{chunk: strings.Repeat(c.chunk, 1+4096/len(c.chunk))}
		_, err := readCheckpoint(io.MultiReader(strings.NewReader(c.begin), e), maphash.MakeSeed(), keepGPU)
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v, want %q", c.begin, err, c.message)
		}
	}
	if _, err := ReadPreparedClaims(&endless{chunk: big}, "gpu.nvidia.com"); err == nil ||
		!strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("DRA checkpoint: %v", err)
	}
}

// FuzzCheckpoint reads any file: it is an error, or its entries have names and what is kept of them is bounded.
func FuzzCheckpoint(f *testing.F) {
	f.Add(file(f, []string{"a"}, &deviceplugin.ContainerAllocateResponse{
		Mounts: []*deviceplugin.Mount{{ContainerPath: volumeDevices + "/0"}}}))
	f.Add(file(f, map[string][]string{"0": {"a", "b"}}, &deviceplugin.ContainerAllocateResponse{
		Envs: map[string]string{"GPU": "0"}, Devices: []*deviceplugin.DeviceSpec{{HostPath: "/dev/nvidia0"}},
		CdiDevices: []*deviceplugin.CDIDevice{{Name: "nvidia.com/gpu=0"}}}))
	seed := maphash.MakeSeed()
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readCheckpoint(bytes.NewReader(data), seed, keepGPU)
		if err != nil {
			if got != nil {
				t.Fatal("an error, and entries")
			}
			return
		}
		for key, entries := range got.Entries {
			for _, e := range entries {
				if e.UID == "" || key.Container == "" || key.Resource == "" || e.EntryKey != key {
					t.Fatalf("%+v under %+v", e, key)
				}
				if len(e.Env) > maxItems || len(e.Nodes) > maxItems || len(e.UID) > maxName {
					t.Fatal("unbounded")
				}
			}
		}
		if !json.Valid(data) && len(got.Entries) > 0 {
			// What stands behind the end of the file's object is not read; the object itself was whole.
			d := json.NewDecoder(bytes.NewReader(data))
			var v any
			if err := d.Decode(&v); err != nil {
				t.Fatalf("entries of a file that is broken: %v", err)
			}
		}
	})
}
