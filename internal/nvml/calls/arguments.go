package calls

import (
	"fmt"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The arguments of calls, in the order of NVML's enumerations.
var (
	sensors    = Arg{Names: []string{"gpu", "gpu_max"}}
	thresholds = Arg{Names: []string{"shutdown", "slowdown", "mem_max", "gpu_max", "acoustic_min", "acoustic_curr",
		"acoustic_max", "gps_curr"}}
	clocks     = Arg{Names: []string{"graphics", "sm", "mem", "video"}}
	severities = Arg{Names: []string{"corrected", "uncorrected"}}
	counters   = Arg{Names: []string{"volatile", "aggregate"}}
	locations  = Arg{Names: []string{"l1_cache", "l2_cache", "dram", "register_file", "texture_memory", "texture_shm", "cbu", "sram"}}
	causes     = Arg{Names: []string{"single_bit", "double_bit"}}
	links      = Arg{Limit: 36}
	linkErrors = Arg{Names: []string{"replay", "recovery", "crc_flit", "crc_data", "ecc_data"}}
	fans       = Arg{Limit: 16}
	inforom    = Arg{Names: []string{"oem", "ecc", "power"}}
	samples    = Arg{Names: []string{"power", "gpu", "memory", "encoder", "decoder", "processor_clock", "memory_clock",
		"module_power", "jpeg", "ofa"}}
)

var (
	value       = []string{"value"}
	mode        = []string{"current", "pending"}
	utilization = []string{"utilization", "period"}
	memory      = []string{"total", "used", "free"}
)

const (
	u32    = "unsigned int"
	u64    = "unsigned long long"
	enable = "nvmlEnableState_t"
)

func args(list ...Arg) []Arg             { return list }
func names(list ...string) []string      { return list }
func readings(list ...Reading) []Reading { return list }

// clockReadings are the clocks of domains, by NVML's numbers.
func clockReadings(group func(name, doc string, unit Unit, to ...string) Reading, name, doc, to string, domains ...int) []Reading {
	var list []Reading
	for _, d := range domains {
		clock := gpu.Clocks[d]
		list = append(list, group(name+"_"+string(clock), doc+" of the domain.", Megahertz,
			fmt.Sprintf("%s[%q]", to, clock)).
			arg("CLOCK_"+strings.ToUpper(clocks.Names[d])).rejected(name))
	}
	return list
}

const (
	perLink  = "everyLink"
	allLinks = "allLinks"
)
