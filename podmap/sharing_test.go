package podmap

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

const sharingDir = "../testdata/sharing"

// sharing is the test cases of a scheme: see testdata/sharing/README.md.
type sharing struct {
	file, name, source string
	about              []string
	plain              bool
	cases              []*sharingCase
}

type sharingCase struct {
	name              string
	lists, able       []string
	entries           []checkpointEntry
	pods              []map[string]any
	links             map[string]string
	dra               string
	slices            []string
	maps              map[string]string // records of the GPU fractioning operator by file
	leases            string
	logs              []string            // names of container logs
	want              map[string][]string // by mode
	labels, annotated map[string]string   // of the last pod
}

// checkpointEntry is an entry as the kubelet writes it.
type checkpointEntry struct {
	PodUID, ContainerName, ResourceName string
	DeviceIDs                           any
	AllocResp                           []byte
	response                            *deviceplugin.ContainerAllocateResponse
}

// sharingNode is the node of the fixtures.
func sharingNode(plain bool) *gpu.Inventory {
	inv := node()
	for i := range inv.GPUs {
		inv.GPUs[i].Memory = gpu.Some[gpu.Bytes](40 << 30)
		if plain {
			inv.GPUs[i].Minor = gpu.Some(i)
		}
	}
	return inv
}

var (
	macros = strings.NewReplacer("{A}", GPUA, "{B}", GPUB, "{C}", GPUC, "{D}", GPUD, "{D3}", migD3, "{D7}", migD7)
	shorts = strings.NewReplacer(GPUA, "A", GPUB, "B", GPUC, "C", GPUD, "D", migD3, "D3", migD7, "D7")
)

// expand writes out the ids of a word "resource=x*3,y".
func expand(word string) string {
	resource, list, ok := strings.Cut(word, "=")
	if !ok {
		return word
	}
	var out []string
	for id := range strings.SplitSeq(list, ",") {
		head, count, many := strings.Cut(id, "*")
		if !many {
			out = append(out, id)
			continue
		}
		count, offset, _ := strings.Cut(count, "+")
		n, err := strconv.Atoi(count)
		if err != nil {
			panic(word)
		}
		from, _ := strconv.Atoi(offset)
		for i := range n {
			out = append(out, head+strconv.Itoa(from+i))
		}
	}
	return resource + "=" + strings.Join(out, ",")
}

func readSharing(t testing.TB, path string) *sharing {
	t.Helper()
	f, err := os.Open(path)
	must.OK(t, err)
	defer f.Close()
	s := &sharing{file: filepath.Base(path)}
	var c *sharingCase
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		word, rest, _ := strings.Cut(strings.TrimSpace(macros.Replace(lines.Text())), " ")
		fields := strings.Fields(rest)
		for i := range fields {
			if word == "list" || word == "alloc" || word == "allocatable" {
				fields[i] = expand(fields[i])
			}
		}
		key, value, _ := strings.Cut(rest, "=")
		switch word {
		case "":
		case "scheme":
			s.name = rest
		case "source":
			s.source = rest
		case "revision", "ran":
		case "about":
			s.about = append(s.about, rest)
		case "node":
			s.plain = rest == "plain"
		case "case":
			c = &sharingCase{name: rest, links: map[string]string{}, want: map[string][]string{}}
			s.cases = append(s.cases, c)
		case "list":
			c.lists = append(c.lists, strings.Join(fields, " "))
		case "allocatable":
			c.able = append(c.able, fields...)
		case "alloc":
			resource, ids, _ := strings.Cut(fields[2], "=")
			c.entries = append(c.entries, checkpointEntry{PodUID: fields[0], ContainerName: fields[1], ResourceName: resource,
				DeviceIDs: map[string][]string{"-1": strings.Split(ids, ",")},
				response:  &deviceplugin.ContainerAllocateResponse{Envs: map[string]string{}, Annotations: map[string]string{}}})
			c.labels, c.annotated = nil, c.entries[len(c.entries)-1].response.Annotations
		case "env":
			c.entries[len(c.entries)-1].response.Envs[key] = value
		case "device":
			a := c.entries[len(c.entries)-1].response
			a.Devices = append(a.Devices, &deviceplugin.DeviceSpec{HostPath: rest, ContainerPath: rest, Permissions: "rw"})
		case "cdi":
			a := c.entries[len(c.entries)-1].response
			a.CdiDevices = append(a.CdiDevices, &deviceplugin.CDIDevice{Name: rest})
		case "mount":
			a := c.entries[len(c.entries)-1].response
			a.Mounts = append(a.Mounts, &deviceplugin.Mount{HostPath: "/dev/null", ContainerPath: rest})
		case "pod":
			c.labels, c.annotated = map[string]string{}, map[string]string{}
			namespace, name, _ := strings.Cut(fields[0], "/")
			c.pods = append(c.pods, map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name, "uid": fields[1],
				"labels": c.labels, "annotations": c.annotated}})
		case "managed":
			c.pods[len(c.pods)-1]["metadata"].(map[string]any)["managedFields"] = rest
		case "label":
			c.labels[key] = value
		case "annotation":
			c.annotated[key] = value
		case "link":
			c.links[fields[0]] = fields[1]
		case "dra":
			c.dra += rest + "\n"
		case "slice":
			if !strings.HasPrefix(rest, `{"driver`) {
				c.slices[len(c.slices)-1] += rest
				continue
			}
			c.slices = append(c.slices, rest)
		case "jobs": // of rooms/slurm
		case "map":
			if c.maps == nil {
				c.maps = map[string]string{}
			}
			c.maps[fields[0]] = strings.Join(fields[1:], " ")
		case "leases":
			c.leases += rest
		case "log":
			c.logs = append(c.logs, rest)
		case "want":
			mode, line, _ := strings.Cut(rest, " ")
			c.want[mode] = append(c.want[mode], shorts.Replace(line))
		default:
			t.Fatalf("%s:%d: what is %q?", path, n, word)
		}
	}
	if lines.Err() != nil || s.name == "" || s.source == "" || len(s.cases) == 0 {
		t.Fatalf("%s: %v, or it lacks a name, a source or cases", path, lines.Err())
	}
	return s
}

// checkpointFile renders entries as the kubelet's file.
func checkpointFile(t testing.TB, entries []checkpointEntry) []byte {
	t.Helper()
	entries = slices.Clone(entries)
	for i := range entries {
		if entries[i].response != nil {
			raw, err := proto.Marshal(entries[i].response)
			must.OK(t, err)
			entries[i].AllocResp = raw
		}
	}
	out, err := json.Marshal(map[string]any{"Checksum": uint64(18446744073709551615), "Data": map[string]any{
		"PodDeviceEntries": entries, "RegisteredDevices": map[string][]string{"nvidia.com/gpu": {GPUA, GPUB}}}})
	must.OK(t, err)
	return out
}

// list merges the lines of one pod into one entry, as the kubelet has it.
func (c *sharingCase) list() *podresources.ListPodResourcesResponse {
	all := pods(c.lists...)
	out := &podresources.ListPodResourcesResponse{}
	for _, p := range all.PodResources {
		if n := len(out.PodResources); n > 0 && out.PodResources[n-1].Name == p.Name && out.PodResources[n-1].Namespace == p.Namespace {
			out.PodResources[n-1].Containers = append(out.PodResources[n-1].Containers, p.Containers...)
			continue
		}
		out.PodResources = append(out.PodResources, p)
	}
	return out
}

// setUp makes a Map that has the sources of a mode.
func (c *sharingCase) setUp(t testing.TB, mode string, now *clock) (*Map, *fakeKubelet) {
	t.Helper()
	dir := t.TempDir()
	o := Options{Clock: now.time, Socket: "/run/k.sock", Dev: dir}
	for name, to := range c.links {
		must.OK(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	if mode == "checkpoint" || mode == "both" {
		o.Checkpoint = filepath.Join(dir, "kubelet_internal_checkpoint")
		must.OK(t, os.WriteFile(o.Checkpoint, checkpointFile(t, c.entries), 0o600))
	}
	if mode == "dra" || mode == "slices" && c.dra != "" {
		driver := filepath.Join(dir, strings.Fields(c.lists[0])[1][:strings.IndexByte(strings.Fields(c.lists[0])[1], ':')])
		o.DRACheckpoint = filepath.Join(driver, "checkpoint.json")
		must.OK(t, os.Mkdir(driver, 0o700))
		if err := os.WriteFile(o.DRACheckpoint, []byte(c.dra), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c.maps != nil && (mode == "map" || mode == "both") {
		o.Fractions, o.Leases, o.ContainerLogs = dir+"/map", dir+"/leases.json", dir+"/logs"
		files := map[string]string{o.Leases: c.leases}
		for name, text := range c.maps {
			files[filepath.Join(o.Fractions, name)] = text
		}
		for _, name := range c.logs {
			files[filepath.Join(o.ContainerLogs, name)] = ""
		}
		for path, text := range files {
			must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)))
		}
	}
	k := &fakeKubelet{pods: c.list(), devices: ids(c.able...)}
	m := newMap(o, k)
	if mode == "slices" {
		list, err := source.ReadSlices(strings.NewReader(`{"items":[{"spec":` + strings.Join(c.slices, `},{"spec":`) + `}]}`))
		must.OK(t, err)
		m.slices = fakeSlices{list}
	}
	if mode == "annotation" || mode == "both" {
		m.watch = &fakeWatch{podsOf(c.pods)}
	}
	return m, k
}

// podsOf are the pods as a watch keeps them.
func podsOf(pods []map[string]any) *source.Pods {
	out := map[gpu.PodName]*source.Pod{}
	for _, p := range pods {
		meta := p["metadata"].(map[string]any)
		pod := &source.Pod{UID: meta["uid"].(string), Annotations: map[string]string{}}
		pod.Labels, _ = meta["labels"].(map[string]string)
		if managed, ok := meta["managedFields"].(string); ok {
			pod.Requests = source.ReadRequests([]byte(managed))
		}
		for key, value := range meta["annotations"].(map[string]string) {
			if deviceid.WantsAnnotation(key) {
				pod.Annotations[key] = value
			}
		}
		out[gpu.PodName{Namespace: meta["namespace"].(string), Pod: meta["name"].(string)}] = pod
	}
	return source.NewPods(out)
}

// sharingLines renders allocations in the format of the fixtures.
func sharingLines(h gpu.Allocations) []string {
	var out []string
	for _, x := range h.List {
		s := fmt.Sprintf("%s/%s/%s %s %s", x.Container.Namespace, x.Container.Pod, x.Container.Name, x.Resource, x.GPU)
		if x.Instance != "" {
			s += " " + string(x.Instance)
		}
		if share, ok := x.Share.Get(); ok {
			s += fmt.Sprintf(" %.3g", float64(share))
		} else {
			s += " ?"
		}
		if x.Shared {
			s += " shared"
		}
		if b, ok := x.MemoryLimit.Get(); ok {
			s += fmt.Sprintf(" %dMiB", b>>20)
		}
		if b, ok := x.MemoryGuaranteed.Get(); ok {
			s += fmt.Sprintf(" guaranteed %dMiB", b>>20)
		}
		if c, ok := x.ComputeLimit.Get(); ok {
			s += fmt.Sprintf(" %.3g%%", float64(c)*100)
		}
		out = append(out, shorts.Replace(s+" "+x.Source))
	}
	for _, u := range h.Unresolved {
		out = append(out, fmt.Sprintf("%s/%s/%s %s unresolved %d", u.Container.Namespace, u.Container.Pod, u.Container.Name, u.Resource,
			u.Devices))
	}
	if out == nil {
		out = []string{"none"}
	}
	return out
}

var sharingModes = []string{"socket", "checkpoint", "annotation", "both", "dra", "slices", "map"}

// wanted is the result of a mode.
func (c *sharingCase) wanted(mode string) []string {
	for _, from := range map[string][]string{"both": {"both", "map", "checkpoint", "annotation"}}[mode] {
		if c.want[from] != nil {
			return c.want[from]
		}
	}
	if c.want[mode] != nil {
		return c.want[mode]
	}
	return c.want["socket"]
}

func allSharing(t testing.TB) []*sharing {
	t.Helper()
	files, err := filepath.Glob(sharingDir + "/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no fixtures", err)
	}
	var out []*sharing
	for _, file := range files {
		out = append(out, readSharing(t, file))
	}
	return out
}

// TestEverySharingScheme tests every scheme with each source alone and with both, then restarts the kubelet and the
// containers: no allocation may change with that.
func TestEverySharingScheme(t *testing.T) {
	for _, s := range allSharing(t) {
		t.Run(strings.TrimSuffix(s.file, ".txt"), func(t *testing.T) {
			for _, c := range s.cases {
				if c.want["socket"] == nil {
					t.Errorf("%s: nothing is wanted of the socket", c.name)
				}
				for _, mode := range sharingModes {
					if mode == "dra" && c.dra == "" || mode == "slices" && c.slices == nil ||
						mode == "map" && c.maps == nil {
						continue
					}
					inv, now := sharingNode(s.plain), newClock()
					m, k := c.setUp(t, mode, now)
					check := func(when string) gpu.Allocations {
						t.Helper()
						must.OK(t, m.Poll(t.Context()))
						h := m.Allocations(inv)
						if got, want := sharingLines(h), c.wanted(mode); !slices.Equal(got, want) {
							t.Errorf("%s, %s, %s:\n\t%s\nwant\n\t%s", c.name, mode, when, strings.Join(got, "\n\t"),
								strings.Join(want, "\n\t"))
						}
						list := slices.DeleteFunc(m.Unrecognized(), func(u Unrecognized) bool { return u.Ignored })
						if len(list) > 0 && len(h.Unresolved) == 0 {
							t.Errorf("%s, %s: all is resolved, unrecognized are %+v", c.name, mode, list)
						}
						sound(t, inv, c, h)
						for _, src := range h.Sources {
							if !src.Up || src.Errors != 0 {
								t.Errorf("%s, %s: source %+v", c.name, mode, src)
							}
						}
						return h
					}
					before := check("at first")
					now.advance(time.Minute)
					check("again")
					// Containers that restart keep their devices; the kubelet's first response after its own restart is
					// empty.
					full := k.pods
					k.pods = &podresources.ListPodResourcesResponse{}
					must.OK(t, m.Poll(t.Context()))
					k.pods = full
					now.advance(time.Minute)
					after := check("after a restart")
					for i := range min(len(before.List), len(after.List)) {
						if before.List[i] != after.List[i] {
							t.Errorf("%s, %s: %+v became %+v", c.name, mode, before.List[i], after.List[i])
						}
					}
				}
			}
		})
	}
}

// sound checks all allocations of any sources: no GPU and no instance that the node lacks, no pod that the kubelet does
// not list, and no GPU allocated more than once.
func sound(t testing.TB, inv *gpu.Inventory, c *sharingCase, h gpu.Allocations) {
	t.Helper()
	listed := map[string]bool{}
	for _, line := range c.lists {
		listed[strings.Fields(line)[0]] = true
	}
	sums := map[gpu.UUID]float64{}
	for _, x := range h.List {
		dev, ok := inv.ByUUID(x.GPU)
		if !ok {
			t.Errorf("GPU %s is not there", x.GPU)
		}
		if on, _, ok := inv.ByInstance(x.Instance); x.Instance != "" && (!ok || on != dev) {
			t.Errorf("instance %s is not on %s", x.Instance, x.GPU)
		}
		if name := x.Container.Namespace + "/" + x.Container.Pod + "/" + x.Container.Name; !listed[name] {
			t.Errorf("%s is not listed", name)
		}
		sums[x.GPU+x.Instance] += float64(x.Share.Or(0))
		if x.Share.Or(0) < 0 || x.ComputeLimit.Or(0) < 0 || x.ComputeLimit.Or(0) > 1 {
			t.Errorf("share %v, compute %v", x.Share, x.ComputeLimit)
		}
	}
	for at, sum := range sums {
		if sum > 1+1e-9 {
			t.Errorf("%s is allocated %v times", at, sum)
		}
	}
}

// Every opaque row of the table, and every scheme without a plugin, has a fixture.
func TestEveryRowHasAFixture(t *testing.T) {
	text := ""
	for _, s := range allSharing(t) {
		for _, c := range s.cases {
			text += strings.Join(c.lists, "\n") + "\n"
			for _, mode := range append(sharingModes, "jobs") {
				text += strings.Join(c.want[mode], "\n") + "\n"
			}
		}
	}
	resources := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		if resource, _, _ := strings.Cut(word, "="); strings.Contains(resource, "/") && !strings.HasPrefix(resource, "team/") {
			resources[resource] = true
		}
	}
	for _, s := range deviceid.OpaqueSchemes() {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(resources)), s.Matches) {
			t.Errorf("%s has no fixture", s.Name)
		}
	}
	for _, s := range deviceid.PodSchemes() {
		if s.Resource != "" && !resources[s.Resource] {
			t.Errorf("%s has no fixture", s.Name)
		}
	}
}
