package podmap

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	client "github.com/gpu-exporter/gpu-exporter/podmap/podresources"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

var cases = flag.Int("cases", 12_000, "number of random cases of a property")

// A world is a random node: containers that have GPUs of plugins, drivers and schedulers that are known or not, and
// what each data source reports of that.
type world struct {
	*rand.Rand
	inv     *gpu.Inventory
	lines   []string // of the List response
	entries map[source.EntryKey][]*source.Entry
	claims  map[string]any // of the DRA checkpoint, by UID
	slices  source.Slices
	pods    map[gpu.PodName]*source.Pod
	has     map[gpu.Container]map[gpu.UUID]bool
	seed    maphash.Seed
	ids     int
	// maybe are the containers whose resource nothing marks as one of GPUs, unless its response is known.
	maybe map[gpu.Container]bool
	exact map[gpu.Container]bool // what the socket alone must resolve
	newest
}

func (w *world) pick(from ...string) string { return from[w.IntN(len(from))] }

// devices are some GPUs, at random, of which several containers may have the same.
func (w *world) devices() (out []*gpu.InventoryGPU) {
	for _, i := range w.Perm(len(w.inv.GPUs))[:1+w.IntN(2)] {
		out = append(out, &w.inv.GPUs[i])
	}
	return out
}

// add gives a container GPUs by a kind of plugin that is drawn.
func (w *world) add(c gpu.Container) {
	devs := w.devices()
	var uuids, minors, wrong []string
	w.has[c] = map[gpu.UUID]bool{}
	for i, d := range devs {
		w.has[c][d.UUID] = true
		uuids = append(uuids, string(d.UUID))
		minors = append(minors, fmt.Sprint(d.Minor.Or(-1)))
		other := &w.inv.GPUs[w.IntN(len(w.inv.GPUs))] // what the kubelet picked
		wrong = append(wrong, fmt.Sprintf("%s-%d", other.UUID, i+10*len(w.has)))
	}
	n := len(devs)
	each := func(format string, of []string) (out []string) {
		for _, x := range of {
			out = append(out, fmt.Sprintf(format, x))
		}
		return out
	}
	numbered := func(prefix string) (out []string) {
		for i := range n {
			w.ids++
			out = append(out, fmt.Sprintf("%s%012d", prefix, w.ids*10+i))
		}
		return out
	}
	shown := w.shown(devs)
	var annotations map[string]string
	list := func(resource string, ids []string, response *source.Response) {
		w.lines = append(w.lines, fmt.Sprintf("%s/%s/%s %s=%s", c.Namespace, c.Pod, c.Name, resource, strings.Join(ids, ",")))
		var hashes []uint64
		for _, id := range ids {
			hashes = append(hashes, source.Hash(w.seed, id))
		}
		key := source.EntryKey{Container: c.Name, Resource: resource, IDs: source.NewIDSet(hashes)}
		e := &source.Entry{UID: "uid-" + c.Pod, EntryKey: key}
		if response != nil {
			e.Response = *response
		}
		w.entries[key] = append(w.entries[key], e)
		if w.IntN(8) == 0 { // of a deleted pod that had the same IDs
			dead := *e
			dead.UID, dead.Response = "dead", *w.shown(w.devices())
			w.entries[key] = append(w.entries[key], &dead)
			if w.IntN(2) == 0 {
				slices.Reverse(w.entries[key])
			}
		}
	}
	claim := func(driver string, names []string, cdi func(i int) string, recorded bool) {
		var words []string
		var results, prepared []any
		for i, name := range names {
			word := name
			if w.IntN(2) == 0 {
				word += "@share" + fmt.Sprint(i)
			}
			if cdi != nil {
				word += "^" + cdi(i)
			}
			words = append(words, word)
			results = append(results, map[string]any{"driver": driver, "device": name})
			switch w.IntN(3) {
			case 0:
				w.slices[[2]string{driver, name}] = &source.SliceDevice{UUID: uuids[i]}
			case 1:
				w.slices[[2]string{driver, name}] = &source.SliceDevice{PCI: string(devs[i].PCI)}
			}
			if recorded {
				kind := w.pick("gpu", "hami-gpu", "anything")
				prepared = append(prepared, map[string]any{"request": "x", kind: map[string]any{"info": map[string]string{"uuid": uuids[i]},
					"device": map[string]string{"DeviceName": name}}})
			}
		}
		w.lines = append(w.lines, fmt.Sprintf("%s/%s/%s %s:claim-%s=%s", c.Namespace, c.Pod, c.Name, driver, c.Pod,
			strings.Join(words, ",")))
		w.claims["uid-"+c.Pod] = map[string]any{"namespace": c.Namespace, "name": "claim-" + c.Pod,
			"status":          map[string]any{"allocation": map[string]any{"devices": map[string]any{"results": results}}},
			"preparedDevices": []any{map[string]any{"devices": prepared}}}
	}
	var hami []string
	for _, u := range uuids {
		hami = append(hami, u+",NVIDIA,1024,10")
	}
	slots := strings.Join(hami, ":") + ":;"
	switch kind := w.IntN(14 + newestKinds); kind {
	default:
		annotations = w.addNewest(kind-14, c, devs)
	case 0:
		list("nvidia.com/gpu", uuids, shown)
		w.exact[c] = true
	case 1:
		list("nvidia.com/gpu.shared", each("%s::"+fmt.Sprint(w.IntN(9)), uuids), shown)
		w.exact[c] = true
	case 2:
		list("nvidia.com/gpu", each("nvidia%s", minors), shown)
		w.exact[c] = true
	case 3:
		list("nvidia.com/gpu", wrong, shown)
		annotations = map[string]string{"hami.io/vgpu-devices-allocated": slots}
	case 4:
		list("volcano.sh/vgpu-number", wrong, shown)
		annotations = map[string]string{"volcano.sh/vgpu-ids-new": slots}
	case 5:
		domain := w.pick("nvidia.com", "example.org")
		var text []string
		for i, u := range uuids {
			text = append(text, fmt.Sprintf("%d_%s_10_1024", devs[i].Index, u))
		}
		list(domain+"/vgpu-number", each("%s::0", wrong), shown)
		annotations = map[string]string{domain + "/real-allocated": c.Name + "[" + strings.Join(text, ",") + "]"}
	case 6: // a plugin that nobody knows, below a name that says GPU
		list(w.pick("example.com/gpu", "acme.io/vgpu", "nvidia.acme.io/shared", "nvidia.com/new-thing"),
			slices.Concat(numbered("x-")), shown)
	case 7: // its IDs have the form of a GPU's, and may be another's
		list(w.pick("example.com/gpu", "acme.io/accelerator"), each("GPU-%s", each("%s", cutGPU(wrong))), shown)
	case 8: // nothing but the response marks it
		list("acme.io/accelerator", numbered("unit"), shown)
		w.maybe[c] = true
	case 9:
		claim("gpu.nvidia.com", each("gpu-%s", minors), nil, w.IntN(2) == 0)
		w.exact[c] = true
	case 10:
		claim("hami-core-gpu.project-hami.io", each("hami-gpu-%s", minors), nil, w.IntN(2) == 0)
		w.exact[c] = true
	case 11: // a name may be a UUID, of something else
		claim(w.pick("gpu.example.com", "devices.acme.io"), numbered(w.pick("device-", "gpu-dab5ab50-d59a-42a6-af16-")), nil,
			w.IntN(2) == 0)
	case 12:
		claim(w.pick("gpu.example.com", "devices.acme.io"), numbered("device-"),
			func(i int) string {
				return w.pick("nvidia.com/gpu=", "acme.io/claim=1f2e-") + uuids[i]
			}, w.IntN(2) == 0)
		w.exact[c] = true
	case 13: // the scheduler alone knows
		w.lines = append(w.lines, fmt.Sprintf("%s/%s/%s", c.Namespace, c.Pod, c.Name))
		annotations = map[string]string{"sharedgpu/gpu_uuid": strings.Join(uuids, ",") + ","}
		if w.IntN(2) == 0 {
			annotations = map[string]string{"nvidia.com/container." + c.Name + ".gpus.devices": strings.Join(uuids, ","),
				"nvidia.com/container." + c.Name + ".gpu-memory.limit": "5Gi"}
		}
		w.maybe[c] = true
	}
	if w.IntN(4) > 0 || annotations != nil && (w.maybe[c] || w.noted[c]) {
		w.pods[c.PodName()] = &source.Pod{UID: "uid-" + c.Pod, Annotations: annotations}
	}
}

func cutGPU(ids []string) (out []string) {
	for _, id := range ids {
		out = append(out, strings.TrimPrefix(id, "GPU-"))
	}
	return out
}

// shown is how a container receives its GPUs; rarely nothing is recorded.
func (w *world) shown(devs []*gpu.InventoryGPU) *source.Response {
	r := &source.Response{Env: map[string]string{}, Annotations: map[string]string{}}
	var uuids []string
	for _, d := range devs {
		uuids = append(uuids, string(d.UUID))
	}
	switch w.IntN(7) {
	case 0:
		r.Env["NVIDIA_VISIBLE_DEVICES"] = strings.Join(uuids, ",")
	case 1:
		var indices []string
		for _, d := range devs {
			indices = append(indices, fmt.Sprint(d.Index))
		}
		r.Env["NVIDIA_VISIBLE_DEVICES"] = strings.Join(indices, ",")
	case 2:
		r.Nodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}
		for _, d := range devs {
			r.Nodes = append(r.Nodes, fmt.Sprint("/dev/nvidia", d.Minor.Or(-1)))
		}
	case 3:
		for _, u := range uuids {
			r.CDI = append(r.CDI, w.pick("k8s.device-plugin.nvidia.com", "acme.io")+"/gpu="+u)
		}
	case 4:
		r.Env["NVIDIA_VISIBLE_DEVICES"] = "/var/run/nvidia-container-devices"
		r.Mounts = uuids
	case 5:
		r.Env["NVIDIA_VISIBLE_DEVICES"] = "all" // and something else chooses
	case 6:
		r.Annotations["cdi.k8s.io/acme_1"] = "nvidia.com/gpu=" + strings.Join(uuids, ",nvidia.com/gpu=")
	}
	return r
}

// TestNoWrongNameAndNoFalseFree draws worlds and open sources: no container is reported for a GPU that it has not, no
// GPU is known to be unallocated that a container has, as far as any open source marks it as one, and what the kubelet's
// response identifies is resolved.
func TestNoWrongNameAndNoFalseFree(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 15))
	resolved, unresolved := 0, 0
	for range *cases / 4 {
		w := &world{Rand: random, inv: sharingNode(random.IntN(2) == 0), entries: map[source.EntryKey][]*source.Entry{},
			claims: map[string]any{}, slices: source.Slices{}, pods: map[gpu.PodName]*source.Pod{},
			has:   map[gpu.Container]map[gpu.UUID]bool{},
			maybe: map[gpu.Container]bool{}, exact: map[gpu.Container]bool{}, newest: newNewest(), seed: maphash.MakeSeed()}
		w.inv.GPUs[3].MIG, w.inv.GPUs[3].Instances = false, nil
		for i := range 1 + random.IntN(3) {
			w.add(gpu.Container{Namespace: "n", Pod: fmt.Sprint("p", i), Name: "c"})
		}
		if random.IntN(3) == 0 { // devices that are no GPUs
			w.lines = append(w.lines, "n/net/c rdma/hca=1,2 nvidia.com/hostdev=0000:af:00.2 dranet.example.com:z=eth0")
		}
		table := idTable{seed: w.seed}
		list := client.NewList(table.filter(true))
		must.OK(t, list.Decode(encode((&sharingCase{lists: w.lines}).list())))
		response := table.parse(list)
		// The sources: checkpoint, annotations, DRA checkpoint, ResourceSlices and fractional records, each open or not.
		draw := func() bool { return random.IntN(2) == 0 }
		for _, open := range [][5]bool{{}, {true, true, true, true, true}, {draw(), draw(), draw(), draw(), draw()},
			{draw(), draw(), draw(), draw(), draw()}} {
			s := &snapshot{response: response, schemes: deviceid.PodSchemes()}
			var checkpoint *source.Checkpoint
			if open[0] {
				checkpoint = &source.Checkpoint{Entries: w.entries}
				s.match(checkpoint, "/dev", nil)
			}
			var pods *source.Pods
			if open[1] {
				pods = source.NewPods(w.pods)
			}
			if open[2] && len(w.claims) > 0 {
				s.prepared = w.prepared(t)
			}
			if open[3] {
				s.slices = &w.slices
			}
			if open[4] {
				s.fractions = &w.records
			}
			s.addReceived(checkpoint, nil)
			h := s.allocations(w.inv, pods, podLabels{})
			got := map[gpu.Container]map[gpu.UUID]bool{}
			for _, a := range h.List {
				if !w.has[a.Container][a.GPU] && (open[2] || !w.served[a.Container][a.GPU]) {
					t.Fatalf("%v: %s is reported for %v\n%s", open, a.GPU, a.Container, w.text())
				}
				if got[a.Container] == nil {
					got[a.Container] = map[gpu.UUID]bool{}
				}
				got[a.Container][a.GPU] = true
				resolved++
			}
			unresolved += len(h.Unresolved)
			for c, has := range w.has {
				all, free := true, false
				for uuid := range has {
					all = all && got[c][uuid]
					free = free || !slices.ContainsFunc(h.List, func(a gpu.Allocation) bool { return a.GPU == uuid })
				}
				switch {
				case w.reserves[c] && open[4]: // it has the GPU for those that are recorded
				case w.recorded[c] && !open[4] && !(open[1] && w.noted[c]):
				case w.exact[c] && !all:
					t.Fatalf("%v: %v is not resolved\n%s", open, c, w.text())
				case w.maybe[c] && !open[0] && !open[1], w.maybe[c] && len(w.entriesOf(c)) == 0 && !open[1]:
				case w.maybe[c] && len(w.entriesOf(c)) > 0 && !open[0]: // nothing says that it is a GPU's
				case free && !h.Uncertain:
					t.Fatalf("%v: %v has %v of %v, and all else is unallocated\n%s", open, c, got[c], has, w.text())
				}
			}
		}
	}
	t.Logf("%d cases, %d GPUs resolved, %d containers with unresolved ones", *cases, resolved, unresolved)
}

func (w *world) prepared(t *testing.T) *source.PreparedClaims {
	t.Helper()
	text, err := json.Marshal(map[string]any{"v2": map[string]any{"preparedClaims": w.claims}})
	must.OK(t, err)
	claims, err := source.ReadPreparedClaims(strings.NewReader(string(text)), "gpu.nvidia.com")
	must.OK(t, err)
	return claims
}

func (w *world) entriesOf(c gpu.Container) (out []*source.Entry) {
	for _, all := range w.entries {
		for _, e := range all {
			if e.UID == "uid-"+c.Pod {
				out = append(out, e)
			}
		}
	}
	return out
}

// text describes the world in a failure.
func (w *world) text() string {
	out := strings.Join(w.lines, "\n") + "\n"
	for _, all := range w.entries {
		for _, e := range all {
			out += fmt.Sprintf("%+v\n", *e)
		}
	}
	for name, p := range w.pods {
		out += fmt.Sprintf("%v %v\n", name, p.Annotations)
	}
	return shorts.Replace(out + fmt.Sprint(w.claims))
}
