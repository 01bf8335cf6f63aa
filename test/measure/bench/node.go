package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// node is a simulated node: files of testdata, or generated with so many H100 GPUs, pods spread over the whole GPUs,
// and GPUs divided into seven MIG devices with a pod in each.
type node struct {
	name           string
	scenario, pods string // names in testdata; empty: generated

	gpus, podCount, mig int
	at                  int // position on its curve
}

// busiest is the node of the budgets.
const busiest = "shared"

// nodes are those of the budgets: 8 H100 without pods, with a pod each, and shared by 80 pods.
func nodes() []node {
	return []node{
		{name: "empty", scenario: "8xh100-loaded"},
		{name: "exclusive", scenario: "demo", pods: "demo"},
		{name: busiest, scenario: "8xh100-shared", pods: "8xh100-shared"},
	}
}

// curves are nodes that grow in one thing.
func curves() map[string][]node {
	out := map[string][]node{}
	add := func(of string, node func(at int) node, at ...int) {
		for _, at := range at {
			n := node(at)
			n.name, n.at = fmt.Sprintf("%s=%d", of, at), at
			out[of] = append(out[of], n)
		}
	}
	add("gpus", func(n int) node { return node{gpus: n, podCount: n} }, 1, 4, 16)
	add("pods", func(n int) node { return node{gpus: 8, podCount: n} }, 8, 80, 200, 1000)
	add("mig", func(n int) node { return node{gpus: 8, mig: n / 7} }, 0, 14, 56)
	return out
}

func gpuUUID(i int) string { return fmt.Sprintf("GPU-5a0e11%02x-8c1d-4e6b-9d10-%012x", i, i) }
func migUUID(gpu, i int) string {
	return fmt.Sprintf("MIG-5a0e3%03x-1d11-5a01-8b00-%012x", gpu*16+i, gpu*16+i)
}

// files returns the paths of scenario and pods; those of a generated node are written to dir.
func (n node) files(root, dir string) (scenario, pods string, err error) {
	if n.scenario != "" {
		if n.pods != "" {
			pods = filepath.Join(root, "testdata", "kubelet", n.pods+".pods")
		}
		return filepath.Join(root, "testdata", "scenarios", n.scenario+".scenario"), pods, nil
	}
	board, err := os.ReadFile(filepath.Join(root, "testdata", "scenarios", "boards", "h100-sxm.scenario"))
	s, p := n.generate()
	scenario, pods = filepath.Join(dir, "node.scenario"), filepath.Join(dir, "node.pods")
	return scenario, pods, errors.Join(err, os.WriteFile(filepath.Join(dir, "board.scenario"), board, 0o644),
		os.WriteFile(scenario, []byte(s), 0o644), os.WriteFile(pods, []byte(p), 0o644))
}

func (n node) generate() (scenario, pods string) {
	var s, p strings.Builder
	s.WriteString("scenario 1\ntitle \"benchmark node\"\nsymbols R580\nsystem DriverVersion = \"580.105.08\"\n" +
		"system NVMLVersion = \"13.580.105.08\"\nsystem CudaDriverVersion = 13000\ninclude board.scenario\n\n")
	for g := range n.gpus {
		fmt.Fprintf(&s, "gpu %d board=h100 pci=0000:%02x:00.0 minor=%d uuid=%s serial=16500000%05d\n", g, 0x10+4*g, g, gpuUUID(g), g)
	}
	pid := 20000
	pod := func(resource, device string, gpu int, more string, busy float64) {
		fmt.Fprintf(&p, "pod team-%d/inference-6f9d8c7b5-%05d container server %s=%s pids=%d\n", pid%7, pid, resource, device, pid)
		fmt.Fprintf(&s, "process gpu=%d pid=%d%s memory=256MiB busy=%.1f%% period=%dms\n", gpu, pid, more, busy, 1100+pid%17*200)
		pid++
	}
	for g := range n.mig {
		const resource = "nvidia.com/mig-1g.10gb"
		var layout []string
		for i := range 7 {
			layout = append(layout, fmt.Sprintf("gi=%d profile=1g.10gb start=%d size=1 uuid=%s", 7+i, i, migUUID(g, i)))
		}
		fmt.Fprintf(&s, "mig gpu=%d layout=\"%s\"\n", g, strings.Join(layout, " ; "))
		for i := range 7 {
			fmt.Fprintf(&p, "allocatable %s %s\n", resource, migUUID(g, i))
			pod(resource, migUUID(g, i), g, fmt.Sprintf(" gi=%d", 7+i), 40)
		}
	}
	whole := n.gpus - n.mig
	if whole == 0 {
		return s.String(), p.String()
	}
	each := (n.podCount + whole - 1) / whole
	for i := range whole * max(1, each) {
		g := n.mig + i/max(1, each)
		id := gpuUUID(g)
		if each > 1 {
			id += fmt.Sprintf("::%d", i%each)
		}
		fmt.Fprintf(&p, "allocatable nvidia.com/gpu %s\n", id)
		if i < n.podCount {
			pod("nvidia.com/gpu", id, g, "", min(40, 80/float64(each)))
		}
	}
	return s.String(), p.String()
}
