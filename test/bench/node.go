package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// node is one of the nodes that are measured: of files of the repository, or of generated ones.
type node struct {
	title          string
	scenario, pods string // names under testdata
	made           *made
	at             int // on a curve: of how many
}

// made is a generated node of H100 GPUs.
type made struct {
	devs int
	pods int // spread over the whole GPUs
	mig  int // how many of the GPUs are divided into seven, with a pod in each instance
}

// nodes are those that the budgets speak of; the last is the one with the figures.
func nodes() []node {
	return []node{
		{title: "8 x H100, no pods", scenario: "8xh100-loaded"},
		{title: "8 x H100, 8 pods", scenario: "demo", pods: "demo"},
		{title: "8 x H100, 80 pods share them", scenario: "8xh100-shared", pods: "8xh100-shared"},
	}
}

// curve is a row of nodes that grow in one thing.
type curve struct {
	title, of string
	nodes     []node
}

func curves() []curve {
	var out []curve
	add := func(title, of string, make func(n int) made, at ...int) {
		c := curve{title: title, of: of}
		for _, n := range at {
			m := make(n)
			c.nodes = append(c.nodes, node{title: fmt.Sprintf("%d %s", n, of), made: &m, at: n})
		}
		out = append(out, c)
	}
	add("GPUs, each with a pod of its own", "gpus", func(n int) made { return made{devs: n, pods: n} }, 1, 2, 4, 8, 16)
	add("Pods that share eight GPUs", "pods", func(n int) made { return made{devs: 8, pods: n} }, 1, 8, 80, 200, 500, 1000)
	add("MIG instances on eight GPUs, each with a pod of its own", "instances", func(n int) made { return made{devs: 8, mig: n / 7} }, 0, 7, 14, 28, 56)
	return out
}

func GPUUUID(i int) string { return fmt.Sprintf("GPU-5a0e11%02x-8c1d-4e6b-9d10-%012x", i, i) }
func instanceUUID(dev, i int) string {
	return fmt.Sprintf("MIG-5a0e3%03x-1d11-5a01-8b00-%012x", dev*16+i, dev*16+i)
}

// write puts the files of a generated node into a folder, whose boards are those of the repository.
func (m *made) write(root, dir string) (scenario, pods string, err error) {
	boards, err := os.ReadFile(filepath.Join(root, "testdata", "scenarios", "boards", "h100-sxm.scenario"))
	if err != nil {
		return "", "", err
	}
	var s, p strings.Builder
	s.WriteString("scenario 1\ntitle \"a node of the benchmark\"\nsymbols R580\nsystem DriverVersion = \"580.105.08\"\nsystem NVMLVersion = \"13.580.105.08\"\nsystem CudaDriverVersion = 13000\ninclude board.scenario\n\n")
	for c := range m.devs {
		fmt.Fprintf(&s, "gpu %d board=h100 pci=0000:%02x:00.0 minor=%d uuid=%s serial=16500000%05d\n", c, 0x10+4*c, c, GPUUUID(c), c)
	}
	pod := func(resource, device string, dev, pid int, more string, busy float64) {
		fmt.Fprintf(&p, "pod team-%d/inference-6f9d8c7b5-%05d container server %s=%s pids=%d\n", pid%7, pid, resource, device, pid)
		fmt.Fprintf(&s, "process gpu=%d pid=%d%s memory=256MiB busy=%.1f%% period=%dms\n", dev, pid, more, busy, 1100+pid%17*200)
	}
	pid := 20000
	for c := range m.mig {
		var layout []string
		for i := range 7 {
			layout = append(layout, fmt.Sprintf("gi=%d profile=1g.10gb start=%d size=1 uuid=%s", 7+i, i, instanceUUID(c, i)))
		}
		fmt.Fprintf(&s, "mig gpu=%d layout=\"%s\"\n", c, strings.Join(layout, " ; "))
		for i := range 7 {
			fmt.Fprintf(&p, "allocatable nvidia.com/mig-1g.10gb %s\n", instanceUUID(c, i))
			pod("nvidia.com/mig-1g.10gb", instanceUUID(c, i), c, pid, fmt.Sprintf(" gi=%d", 7+i), 40)
			pid++
		}
	}
	if whole := m.devs - m.mig; whole > 0 {
		each := (m.pods + whole - 1) / whole
		for c := m.mig; c < m.devs; c++ {
			suffix := func(i int) string {
				if each > 1 {
					return fmt.Sprintf("::%d", i)
				}
				return ""
			}
			for i := range max(1, each) {
				fmt.Fprintf(&p, "allocatable nvidia.com/gpu %s%s\n", GPUUUID(c), suffix(i))
			}
			for i := range each {
				if n := (c-m.mig)*each + i; n < m.pods {
					pod("nvidia.com/gpu", GPUUUID(c)+suffix(i), c, pid, "", min(40, 80/float64(each)))
					pid++
				}
			}
		}
	}
	scenario, pods = filepath.Join(dir, "made.scenario"), filepath.Join(dir, "made.pods")
	for path, text := range map[string]string{filepath.Join(dir, "board.scenario"): string(boards), scenario: s.String(), pods: p.String()} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", "", err
		}
	}
	return scenario, pods, nil
}
