package hwcheck

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// xmlFields are the fields of nvidia-smi --query-gpu by their place in nvidia-smi -q -x, below <gpu>: the second list
// of
// the same values. The names are those of NVIDIA/k8s-test-infra 3b2b865d91b1844baa9feeca2820d2fab65414c7,
// tests/e2e/go/assertions/nvidiasmi/testdata/hardware (drivers 580 and 595).
var xmlFields = map[string]string{
	"uuid": "uuid", "product_name": "name", "serial": "serial", "vbios_version": "vbios_version",
	"pci/pci_bus_id": "pci.bus_id", "persistence_mode": "persistence_mode",
	"mig_mode/current_mig": "mig.mode.current", "mig_mode/pending_mig": "mig.mode.pending",
	"inforom_version/img_version": "inforom.img", "inforom_version/ecc_object": "inforom.ecc",
	"gpu_recovery_action":                              "gpu_recovery_action",
	"pci/pci_gpu_link_info/pcie_gen/current_link_gen":  "pcie.link.gen.current",
	"pci/pci_gpu_link_info/pcie_gen/max_link_gen":      "pcie.link.gen.max",
	"pci/pci_gpu_link_info/link_widths/max_link_width": "pcie.link.width.max",
	"fan_speed":                                         "fan.speed",
	"performance_state":                                 "pstate",
	"fb_memory_usage/total":                             "memory.total",
	"fb_memory_usage/reserved":                          "memory.reserved",
	"fb_memory_usage/used":                              "memory.used",
	"fb_memory_usage/free":                              "memory.free",
	"compute_mode":                                      "compute_mode",
	"utilization/gpu_util":                              "utilization.gpu",
	"ecc_mode/current_ecc":                              "ecc.mode.current",
	"ecc_errors/volatile/dram_uncorrectable":            "ecc.errors.uncorrected.volatile.dram",
	"ecc_errors/aggregate/dram_uncorrectable":           "ecc.errors.uncorrected.aggregate.dram",
	"remapped_rows/remapped_row_corr":                   "remapped_rows.correctable",
	"remapped_rows/remapped_row_unc":                    "remapped_rows.uncorrectable",
	"remapped_rows/remapped_row_pending":                "remapped_rows.pending",
	"remapped_rows/remapped_row_failure":                "remapped_rows.failure",
	"temperature/gpu_temp":                              "temperature.gpu",
	"temperature/gpu_temp_tlimit":                       "temperature.gpu.tlimit",
	"temperature/memory_temp":                           "temperature.memory",
	"gpu_power_readings/average_power_draw":             "power.draw.average",
	"gpu_power_readings/instant_power_draw":             "power.draw.instant",
	"gpu_power_readings/current_power_limit":            "enforced.power.limit",
	"gpu_power_readings/default_power_limit":            "power.default_limit",
	"gpu_power_readings/max_power_limit":                "power.max_limit",
	"clocks/graphics_clock":                             "clocks.current.graphics",
	"clocks/sm_clock":                                   "clocks.current.sm",
	"clocks/mem_clock":                                  "clocks.current.memory",
	"max_clocks/sm_clock":                               "clocks.max.sm",
	"fabric/state":                                      "fabric.state",
	"fabric/status":                                     "fabric.status",
	"retired_pages/double_bit_retirement/retired_count": "retired_pages.double_bit.count",
}

// parseXML reads nvidia-smi -q -x: each GPU's values by the names of --query-gpu, without their units.
func parseXML(text string) ([]device, error) {
	d := xml.NewDecoder(strings.NewReader(text))
	d.Strict = false // the document has a DTD
	var out []device
	var path []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(out) > 0 {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parse the output of nvidia-smi -q -x: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if path = append(path, t.Name.Local); t.Name.Local == "gpu" && len(path) == 2 {
				out = append(out, device{})
			}
		case xml.EndElement:
			path = path[:max(0, len(path)-1)]
		case xml.CharData:
			if len(path) < 3 || len(out) == 0 {
				continue
			}
			if name := xmlFields[strings.Join(path[2:], "/")]; name != "" {
				out[len(out)-1][name] = strings.TrimSuffix(strings.TrimSpace(string(t)), "x")
			}
		}
	}
}

var (
	smiGPU = regexp.MustCompile(`^GPU \d+: .*\(UUID: (GPU-[^)]+)\)`)
	// GPU, name, profile, instance, start:size.
	smiInstance = regexp.MustCompile(`^\|\s+(\d+)\s+MIG\s+(\S+)\s+\d+\s+(\d+)\s+(\d+:\d+)\s+\|`)
)

// parseNVLink reads nvidia-smi nvlink -s: the links of each GPU that are up and not, by UUID.
func parseNVLink(text string) map[string][2]int {
	out := map[string][2]int{}
	uuid := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := smiGPU.FindStringSubmatch(line); m != nil {
			uuid = m[1]
			out[uuid] = [2]int{}
		} else if strings.HasPrefix(line, "Link ") {
			n := out[uuid]
			if strings.HasSuffix(line, "<inactive>") {
				n[1]++
			} else {
				n[0]++
			}
			out[uuid] = n
		}
	}
	return out
}

// parseInstances reads nvidia-smi mig -lgi: "gi profile placement" of each instance, by GPU index.
func parseInstances(text string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(text) {
		if m := smiInstance.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			out[m[1]] = append(out[m[1]], m[3]+" "+m[2]+" "+m[4])
		}
	}
	for _, list := range out {
		slices.Sort(list)
	}
	return out
}

// parsePmon reads nvidia-smi pmon -c 1: the number of processes by kind, by GPU index. A process of type C+G is both. A
// GPU with a process of another type (no public capture shows one of MPS) is left out.
func parsePmon(text string) map[string]map[string]int {
	out, other := map[string]map[string]int{}, map[string]bool{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] == "#" {
			continue
		}
		if out[f[0]] == nil {
			out[f[0]] = map[string]int{"compute": 0, "graphics": 0}
		}
		for letter := range strings.SplitSeq(f[2], "+") {
			switch letter {
			case "C":
				out[f[0]]["compute"]++
			case "G":
				out[f[0]]["graphics"]++
			case "-":
			default:
				other[f[0]] = true
			}
		}
	}
	maps.DeleteFunc(out, func(index string, _ map[string]int) bool { return other[index] })
	return out
}

// compareListings compares the other outputs of nvidia-smi with one scrape.
func (r *run) compareListings(ctx context.Context, e *exporter) {
	for _, l := range []struct {
		name    string
		args    []string
		compare func(text string, s *scrape) (n int, differences []string)
	}{
		{"nvidia-smi nvlink -s", []string{"nvlink", "-s"}, r.compareNVLink},
		{"nvidia-smi mig -lgi", []string{"mig", "-lgi"}, r.compareInstances},
		{"nvidia-smi pmon -c 1", []string{"pmon", "-c", "1"}, r.comparePmon},
	} {
		c := Check{Name: l.name, Expected: "as /metrics"}
		text, err := r.smi.run(ctx, l.args...)
		s, scrapeErr := e.scrape(ctx)
		if scrapeErr != nil {
			r.add(c.incomplete("%v", scrapeErr))
			continue
		}
		n, differences := l.compare(text, s)
		if n == 0 && len(differences) == 0 {
			r.add(c.skipped("nothing is listed here: %s; %v", firstLine(text), err))
			continue
		}
		c.Measured = fmt.Sprintf("%d compared, %d differ", n, len(differences))
		r.add(c.judge(len(differences) == 0, "%s", strings.Join(differences, "; ")))
	}
}

func (r *run) compareNVLink(text string, s *scrape) (n int, differences []string) {
	links := parseNVLink(text)
	for _, uuid := range slices.Sorted(maps.Keys(links)) {
		if links[uuid] == [2]int{} {
			continue // no link is up: the output lists none
		}
		n++
		up, _ := s.sum("gpu_nvlink_links", equal("uuid", uuid), equal("state", "up"))
		down, _ := s.sum("gpu_nvlink_links", equal("uuid", uuid), equal("state", "down"))
		if ours := [2]int{int(up), int(down)}; ours != links[uuid] {
			differences = append(differences, fmt.Sprintf("links up and down: nvidia-smi %v, exporter %v", links[uuid], ours))
		}
	}
	return n, differences
}

func (r *run) compareInstances(text string, s *scrape) (n int, differences []string) {
	listed := parseInstances(text)
	for _, d := range r.devices {
		ours := instances(s, d["uuid"])
		n += len(listed[d["index"]])
		if !slices.Equal(ours, listed[d["index"]]) {
			differences = append(differences, fmt.Sprintf("instances of GPU %s: nvidia-smi %q, exporter %q", d["index"],
				listed[d["index"]], ours))
		}
	}
	return n, differences
}

// instances are "gi profile placement" of each MIG instance that is exported.
func instances(s *scrape, uuid string) (out []string) {
	for _, i := range s.find("gpu_mig_info", equal("uuid", uuid)) {
		out = append(out, i.Get("gi")+" "+i.Get("profile")+" "+i.Get("placement"))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *run) comparePmon(text string, s *scrape) (n int, differences []string) {
	listed := parsePmon(text)
	for _, d := range r.devices {
		for _, kind := range slices.Sorted(maps.Keys(listed[d["index"]])) {
			ours, ok := s.sum("gpu_processes", equal("uuid", d["uuid"]), equal("kind", kind))
			if !ok {
				continue
			}
			if n++; int(ours) != listed[d["index"]][kind] {
				differences = append(differences,
					fmt.Sprintf("%s processes of GPU %s: nvidia-smi %d, exporter %g", kind, d["index"], listed[d["index"]][kind], ours))
			}
		}
	}
	return n, differences
}
