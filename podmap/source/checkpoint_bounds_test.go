package source

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func readText(r io.Reader) (*Checkpoint, error) {
	return readCheckpoint(r, maphash.MakeSeed(), keepGPU)
}

// The bounds of a checkpoint: what is as large as it may be is read, one more is refused as a whole. TestBoundlessFiles has
// more bytes and IDs.
func TestBoundsOfTheCheckpoint(t *testing.T) {
	const entry = `{"PodUID":"u","ContainerName":"c","ResourceName":"r"}`
	entries := func(n int) string {
		return `{"Data":{"PodDeviceEntries":[` + strings.TrimSuffix(strings.Repeat(entry+",", n), ",") + `]}}`
	}
	ids := func(n int) string {
		return `{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r","DeviceIDs":["a"` +
			strings.Repeat(`,""`, n-1) + `]}]}}`
	}
	// of is a file of n bytes, in values of less than a MiB.
	of := func(n int) io.Reader {
		const head, tail = `{"Data":{"PodDeviceEntries":[]},"x":["`, `"]}`
		chunk := strings.Repeat("x", 1<<19) + `","`
		var parts []io.Reader
		parts = append(parts, strings.NewReader(head))
		for n -= len(head) + len(tail); n > len(chunk); n -= len(chunk) {
			parts = append(parts, strings.NewReader(chunk))
		}
		return io.MultiReader(append(parts, strings.NewReader(strings.Repeat("x", n)+tail))...)
	}
	for _, c := range []struct {
		name string
		file io.Reader
		want string // empty: it is read
	}{
		{"one more entry", strings.NewReader(entries(maxEntries + 1)), "more than 65536 entries"},
		{"entries, and one of no pod, which does not count", strings.NewReader(strings.Replace(entries(maxEntries+1), `"u"`, `""`, 1)), ""},
		{"IDs", strings.NewReader(ids(maxIDs)), ""},
		{"bytes", of(maxCheckpoint), ""},
		{"a disk that fails", iotest.ErrReader(os.ErrDeadlineExceeded), "i/o timeout"},
	} {
		got, err := readText(c.file)
		if c.want == "" && (err != nil || got == nil) || c.want != "" && (err == nil || err.Error() != c.want || got != nil) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// An entry belongs to a pod, a container and a resource; without one of them it is none.
func TestEntriesWithoutAName(t *testing.T) {
	for i, fields := range []string{`"ContainerName":"c","ResourceName":"r"`, `"PodUID":"u","ResourceName":"r"`,
		`"PodUID":"u","ContainerName":"c"`, `"PodUID":"u","ContainerName":"c","ResourceName":"r"`} {
		got, err := readText(strings.NewReader(`{"Data":{"PodDeviceEntries":[{` + fields + `,"AllocResp":"%"}]}}`))
		if err != nil || len(got.Entries) != i/3 || got.undecoded != i/3 {
			t.Errorf("%s: %d entries, %d undecoded, %v", fields, len(got.Entries), got.undecoded, err)
		}
	}
	for field, want := range map[string]string{`"PodUID":7`: "7 instead of a string", `"AllocResp":7`: "7 instead of a string",
		`"DeviceIDs":[7]`: "7 instead of a string", `"DeviceIDs":{"0":[7]}`: "7 instead of a string",
		`"ContainerName":"` + strings.Repeat("x", 513) + `"`: "a name of 513 bytes"} {
		if got, err := readText(strings.NewReader(`{"Data":{"PodDeviceEntries":[{` + field + `}]}}`)); err == nil || err.Error() != want ||
			got != nil {
			t.Errorf("%.40s: %v, want %q", field, err, want)
		}
	}
	var none *Checkpoint
	if none.Of(EntryKey{}) != nil {
		t.Error("entries of no checkpoint")
	}
}

// What is kept of a plugin's response, field by field.
func TestResponsesOfPlugins(t *testing.T) {
	long := strings.Repeat("x", maxName)
	r := &deviceplugin.ContainerAllocateResponse{
		Envs:        map[string]string{"GPU_A": "1", "HOME": "/"},
		Annotations: map[string]string{"GPU_B": "2", "other": "x"},
		Devices: []*deviceplugin.DeviceSpec{{HostPath: "/dev/nvidia0", ContainerPath: "/dev/x"}, {}, {HostPath: long}, {HostPath: long +
			"x"}},
		CdiDevices: []*deviceplugin.CDIDevice{{Name: "nvidia.com/gpu=0"}, {}, {Name: long + "x"}},
		Mounts: []*deviceplugin.Mount{{ContainerPath: "/var/run/nvidia-container-devices/GPU-1"},
			{ContainerPath: "/var/run/nvidia-container-devices"},
			{ContainerPath: "/etc/x"}, {HostPath: "/var/run/nvidia-container-devices/GPU-2"}},
	}
	got, err := readText(bytes.NewReader(file(t, []string{"a"}, r)))
	if err != nil || len(got.Entries) != 1 {
		t.Fatal(err)
	}
	for key, entries := range got.Entries {
		e := entries[0]
		if e.UID != "u" || key.Container != "c" || key.Resource != "r" || key.IDs.Len() != 1 || len(got.Of(key)) != 1 {
			t.Errorf("%+v", key)
		}
		if want := fmt.Sprint(map[string]string{"GPU_A": "1"}, map[string]string{"GPU_B": "2"}, []string{"/dev/nvidia0", long},
			[]string{"nvidia.com/gpu=0"}, []string{"GPU-1"}); fmt.Sprint(e.Env, e.Annotations, e.Nodes, e.CDI, e.Mounts) != want {
			t.Errorf("%+v", e.Response)
		}
	}
	if got := keepName(slices.Repeat([]string{"x"}, maxItems), "y"); len(got) != maxItems {
		t.Errorf("%d names", len(got))
	}
	raw, err := proto.Marshal(r)
	must.OK(t, err)
	for text, decoded := range map[string]bool{"": true, base64.StdEncoding.EncodeToString(raw): true,
		base64.StdEncoding.EncodeToString(raw[:len(raw)-1]): false, "*": false} {
		if got := (&Entry{}).decode(text, keepGPU); got != decoded {
			t.Errorf("%.40q: decoded %v", text, got)
		}
	}
}

// The bounds of texts: a single one that is too long is left out, more than may be kept together are not kept at all.
func TestBoundsOfTexts(t *testing.T) {
	texts := func(n, key, value int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("%0*d", key, i)] = strings.Repeat("v", value)
		}
		return all
	}
	for _, c := range []struct {
		name string
		all  map[string]string
		want int
	}{
		{"none", nil, 0},
		{"the longest name", texts(1, maxName, 1), 1},
		{"a longer one", texts(1, maxName+1, 1), 0},
		{"the longest text", texts(1, 1, maxText), 1},
		{"a longer one", texts(1, 1, maxText+1), 0},
		{"as many as may be", texts(maxItems, 4, 1), maxItems},
		{"one more", texts(maxItems+1, 4, 1), 0},
		{"as many bytes as may be", texts(8, 4, maxTexts/8-4), 8}, // 64 KiB
		{"more", texts(8, 5, maxTexts/8-4), 0},
	} {
		got := keepTexts(c.all, func(string) bool { return true })
		if len(got) != c.want || (got == nil) != (c.want == 0) {
			t.Errorf("%s: %d texts, want %d", c.name, len(got), c.want)
		}
		for k, v := range got {
			if c.all[k] != v {
				t.Errorf("%s: %q is %q", c.name, k, v)
			}
		}
	}
	mixed := texts(maxItems, 4, 1)
	mixed["long"], mixed["unwanted"] = strings.Repeat("v", maxText+1), strings.Repeat("v", maxText)
	if got := keepTexts(mixed, func(name string) bool { return name != "unwanted" }); len(got) != maxItems {
		t.Errorf("%d texts beside those that are not kept", len(got))
	}
}

// The links of elastic-gpu are replaced by what they lead to; one that cannot be followed names no GPU.
func TestFollowedLinks(t *testing.T) {
	dev := t.TempDir()
	const link, broken = "elastic-gpu-0123abcd-0", "elastic-gpu-0123abcd-255"
	must.OK(t, os.Symlink("/dev/nvidia3", filepath.Join(dev, link)))
	if err := os.WriteFile(filepath.Join(dev, "elastic-gpu-0123abcd-7"), nil, 0o600); err != nil { // not a link
		t.Fatal(err)
	}
	for _, c := range []struct{ nodes, want []string }{
		{[]string{"/dev/nvidiactl", "/dev/" + link, "/dev/nvidia-uvm"}, []string{"/dev/nvidiactl", "/dev/nvidia3", "/dev/nvidia-uvm"}},
		{[]string{"/dev/" + broken, "/dev/nvidiactl"}, []string{"/dev/nvidiactl"}},
		{[]string{"/dev/elastic-gpu-0123abcd-7"}, nil},
		{[]string{"/dev/" + link, "/dev/" + broken}, []string{"/dev/nvidia3"}},
		{[]string{"/dev/elastic-gpu-0123abc-0", "/dev/elastic-gpu-0123abcd-0000", "/dev/elastic-gpu-0123abcd-0/x", "/x/dev/" + link},
			[]string{"/dev/elastic-gpu-0123abc-0", "/dev/elastic-gpu-0123abcd-0000", "/dev/elastic-gpu-0123abcd-0/x", "/x/dev/" + link}},
		{nil, nil},
	} {
		e := &Entry{UID: "u", EntryKey: EntryKey{Container: "c"}, Response: Response{Nodes: slices.Clone(c.nodes), CDI: []string{"x"}}}
		got := e.Followed(dev)
		if !slices.Equal(got.Nodes, c.want) || got.UID != "u" || got.Container != "c" || len(got.CDI) != 1 {
			t.Errorf("%q: %+v, want %q", c.nodes, got, c.want)
		}
		if !slices.Equal(e.Nodes, c.nodes) || slices.Equal(c.nodes, c.want) != (got == e) {
			t.Errorf("%q: the entry was changed, or copied without need", c.nodes)
		}
	}
}
