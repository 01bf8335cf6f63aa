package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The newest schemes on one node of eight GPUs, with the minor numbers in another order than the indices: NvFractions by
// records with MPS v3 namespaces and a reservation, NvFractions by annotations, extended resources that a claim serves,
// consumable shares, consumable memory, and the device plugin. Every series of a container has a GPU that the container
// has; the one GPU that none has is unallocated; and it is no longer known to be as soon as one record may mean it. The
// formats are those of testdata/sharing: nvfractions-map, nvfractions, dra-extended and dra.
func TestNewestSchemesOnOneNode(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	minors := []int{3, 4, 5, 6, 0, 1, 2, 7}
	var text strings.Builder
	text.WriteString("scenario 1\ntitle \"newest\"\ninclude boards/h100-sxm.scenario\nsymbols R620\nsystem DriverVersion = \"620.70.06\"\n")
	id := func(gpu int) string { return fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", gpu) }
	for i, minor := range minors {
		fmt.Fprintf(&text, "gpu %d board=h100 uuid=%s pci=0000:%02x:00.0 minor=%d\n", i, id(i), 0x10+i, minor)
	}
	// What each container has, how its GPU is divided, and the memory of its process in GiB.
	type owned struct {
		gpu, memory  int
		ratio, limit float64 // 0: not exported
		compute      float64
		list         string
	}
	const served = "claim=train-extended-resources-x7k2p driver=gpu.nvidia.com pool=node device="
	device := func(name, share string) string {
		return "claim=of-" + share + " driver=gpu.nvidia.com pool=node device=" + name + " share=" + share
	}
	has := map[string]owned{
		"team/frac-a/main":   {gpu: 0, memory: 10, ratio: 20480. / 81559, limit: 20 * gib, compute: 0.25},
		"team/frac-b/main":   {gpu: 0, memory: 5, ratio: 10240. / 81559, limit: 10 * gib, compute: 0.75},
		"team/noted/main":    {gpu: 1, memory: 3, ratio: 20480. / 81559, limit: 20 * gib, compute: 0.5},
		"team/train/first":   {gpu: 3, memory: 30, ratio: 1, list: served + "gpu-5\npod team/train container first " + served + "gpu-6"},
		"team/train/second":  {gpu: 2, memory: 20, ratio: 1, list: served + "gpu-5\npod team/train container second " + served + "gpu-6"},
		"team/share-1/main":  {gpu: 4, memory: 1, ratio: 0.25, list: device("gpu-0", "s1")},
		"team/share-3/main":  {gpu: 4, memory: 2, ratio: 0.75, list: device("gpu-0", "s2")},
		"team/part-20/main":  {gpu: 5, memory: 7, ratio: 20480. / 81559, limit: 20 * gib, list: device("gpu-1", "s3")},
		"team/part-40/main":  {gpu: 5, memory: 8, ratio: 40960. / 81559, limit: 40 * gib, list: device("gpu-1", "s4")},
		"team/plugged/main":  {gpu: 7, memory: 40, ratio: 1, list: "nvidia.com/gpu=" + id(7)},
		"team/odd/main":      {gpu: -1},
		"team/unrelated/web": {gpu: -1},
	}
	pods := "allocatable nvidia.com/gpu " + id(0) + " " + id(7) + "\n" +
		"pod kai-resource-reservation/gpu-reservation-n1-x container reserve nvidia.com/gpu=" + id(0) + "\n"
	names := slices.Sorted(maps.Keys(has))
	for i, name := range names {
		parts, c := strings.Split(name, "/"), has[name]
		pods += fmt.Sprintf("pod %s/%s container %s %s\n", parts[0], parts[1], parts[2], c.list)
		if c.gpu >= 0 {
			pods += fmt.Sprintf("pod %s/%s container %s pids=%d\n", parts[0], parts[1], parts[2], 5000+i)
			fmt.Fprintf(&text, "process gpu=%d pid=%d memory=%dGiB busy=20%% period=1s phase=%dms\n", c.gpu, 5000+i, c.memory, 250*(i%4))
		}
	}
	m := node(t, text.String(), pods)

	result := func(request, device, share string, consumed map[string]string) string {
		raw, _ := json.Marshal(map[string]any{"request": request, "driver": "gpu.nvidia.com", "pool": "node", "device": device,
			"shareID": share, "consumedCapacity": consumed})
		return string(raw)
	}
	prepared := func(claim string, results ...string) string {
		return fmt.Sprintf(`"uid-%[1]s":{"namespace":"team","name":"%[1]s","status":{"allocation":{"devices":{"results":[%s]}}}}`,
			claim, strings.Join(results, ","))
	}
	record := func(pod, device string, mib int) string {
		return fmt.Sprintf(`{"schemaVersion":1,"pod":"%s","namespace":"team","podUID":"uid-%[1]s",`+
			`"gpuDevices":[%s],"requestedMemoryMiB":%d}`,
			pod, device, mib)
	}
	records := filepath.Join(m.Dir, "map")
	write := func(path, text string) {
		t.Helper()
		must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)))
	}
	write(filepath.Join(records, "c1.json"), record("frac-a", `{"index":0,"minorNumber":3}`, 20480))
	write(filepath.Join(records, "c2.json"), record("frac-b", `{"index":3}`, 10240)) // by an older agent
	write(filepath.Join(m.Dir, "leases.json"), `{"leases":[{"containerId":"c1","activeThreadPercent":25},`+
		`{"containerId":"c2","activeThreadPercent":75}]}`)
	checkpoint := filepath.Join(m.Dir, "gpu.nvidia.com", "checkpoint.json")
	write(checkpoint, `{"v2":{"preparedClaims":{`+strings.Join([]string{
		prepared("train-extended-resources-x7k2p", result("container-1-request-0", "gpu-6", "", nil),
			result("container-2-request-0", "gpu-5", "", nil)),
		prepared("of-s1", result("r", "gpu-0", "s1", map[string]string{"memory": "0", "shares": "1"})),
		prepared("of-s2", result("r", "gpu-0", "s2", map[string]string{"memory": "0", "shares": "3"})),
		prepared("of-s3", result("r", "gpu-1", "s3", map[string]string{"memory": "20Gi"})),
		prepared("of-s4", result("r", "gpu-1", "s4", map[string]string{"memory": "40Gi"})),
	}, ",")+`}}}`)
	managed := json.RawMessage(`[{"fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"first\"}":{"f:resources":{"f:limits":{"f:cpu":{},` +
		`"f:nvidia.com/gpu":{}}}},"k:{\"name\":\"second\"}":{"f:resources":{"f:limits":{"f:nvidia.com/gpu":{}}}}}}}}]`)
	flags := append(apiServer(t, m, []any{
		map[string]any{"metadata": map[string]any{"name": "noted", "namespace": "team", "uid": "uid-noted",
			"annotations": map[string]string{"nvidia.com/container.main.gpus.devices": id(1),
				"nvidia.com/container.main.gpu-memory.limit": "20Gi", "nvidia.com/container.main.gpu-compute.portion": "0.5"}}},
		map[string]any{"metadata": map[string]any{"name": "train", "namespace": "team", "uid": "uid-train", "managedFields": managed}}},
		map[string]any{"spec": map[string]any{"driver": "gpu.nvidia.com", "pool": map[string]any{"name": "node", "generation": 1},
			"devices": []any{map[string]any{"name": "gpu-0", "attributes": map[string]any{"uuid": map[string]string{"string": id(4)}},
				"capacity": map[string]any{"memory": map[string]string{"value": "80Gi"}, "shares": map[string]string{"value": "4"}}}}}}),
		"--kubernetes.resource-slices", "--gpu-fractioning.map-dir="+records,
		"--gpu-fractioning.namespaces="+filepath.Join(m.Dir, "leases.json"),
		"--kubelet.dra-checkpoint="+checkpoint)
	p := m.start(flags...)

	of := regexp.MustCompile(`^(gpu_container_\w+)\{.*?container="([^"]*)".*?namespace="([^"]*)".*?pod="([^"]*)".*?uuid="([^"]*)"`)
	// named fails at once where a series has a GPU that its container has not.
	named := func(s series) int {
		t.Helper()
		n := 0
		for text := range s {
			if match := of.FindStringSubmatch(text); match != nil {
				n++
				c, ok := has[match[3]+"/"+match[4]+"/"+match[2]]
				if !ok || c.gpu < 0 || id(c.gpu) != match[5] {
					t.Fatalf("not the container's GPU: %s", text)
				}
			}
		}
		return n
	}
	uuid := func(gpu int) string { return `uuid="` + id(gpu) + `"` }
	near := func(s series, want float64, family string, labels ...string) error {
		if want == 0 {
			return s.none(family, labels...)
		}
		got, err := s.one(family, labels...)
		if err == nil && math.Abs(got/want-1) > 0.001 {
			err = fmt.Errorf("%s%v is %g, want %g", family, labels, got, want)
		}
		return err
	}
	owners := func(s series) error {
		var errs []error
		for name, c := range has {
			parts := strings.Split(name, "/")
			labels := []string{`pod="` + parts[1] + `"`, `container="` + parts[2] + `"`}
			if c.gpu < 0 {
				errs = append(errs, s.none("gpu_container_allocation_ratio", labels...))
				continue
			}
			labels = append(labels, uuid(c.gpu))
			errs = append(errs, near(s, c.ratio, "gpu_container_allocation_ratio", labels...),
				near(s, c.limit, "gpu_container_memory_limit_bytes", labels...),
				near(s, c.compute, "gpu_container_compute_limit_ratio", labels...),
				s.is(float64(c.memory)*gib, "gpu_container_memory_used_bytes", labels...))
			if parts[1] == "train" || parts[1] == "plugged" { // by a claim, by the device plugin
				errs = append(errs, s.is(1, "gpu_container_allocation_ratio", append(labels, `resource="nvidia_com_gpu"`)...))
			}
		}
		return all(errs...)
	}
	s := p.until(t, "every container has its GPU, and one GPU is unallocated", func(s series) error {
		named(s)
		errs := []error{owners(s), s.none("gpu_container_unresolved_devices")}
		for i := range minors {
			v, err := s.one("gpu_allocation_ratio", uuid(i))
			if err == nil && (v == 0) != (i == 6) {
				err = fmt.Errorf("GPU %d is allocated by %g", i, v)
			}
			errs = append(errs, err)
		}
		return all(errs...)
	})
	if n := named(s); n < 50 {
		t.Errorf("only %d series were compared", n)
	}
	// A record that no agent writes may mean GPU 4, of minor number 0, or GPU 0, of 3: neither is named, and GPU 6, which
	// may be meant in another way, is not known to be unallocated.
	write(filepath.Join(records, "c3.json"), record("odd", `{"index":3,"minorNumber":0}`, 2048))
	p.until(t, "the record is unresolved", func(s series) error {
		named(s)
		return all(owners(s), s.is(1, "gpu_container_unresolved_devices", `pod="odd"`), s.none("gpu_allocation_ratio", uuid(6)))
	})
	// Its agent restarts, and writes what later ones write.
	write(filepath.Join(records, "c3.json"), record("odd", `{"index":0,"minorNumber":2}`, 2048))
	has["team/odd/main"] = owned{gpu: 6}
	p.until(t, "the last GPU is its", func(s series) error {
		named(s)
		return all(near(s, 2048./81559, "gpu_container_allocation_ratio", `pod="odd"`, uuid(6)), s.none("gpu_container_unresolved_devices"))
	})
}
