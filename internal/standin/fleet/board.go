package fleet

import "github.com/gpu-exporter/gpu-exporter/internal/gpu"

const mib = gpu.Bytes(1 << 20)

// board is a model of GPU: what it offers and in which sizes. The figures are those of the boards in
// testdata/scenarios/boards, which name their sources.
type board struct {
	key                            string // as Pool.Model names it
	model, brand, architecture     string
	capability, boardPart, vbios   string
	memory, reserved, bar1         gpu.Bytes
	idleWatts, busyWatts           float64
	limit, limitMin                gpu.Watts
	idleCelsius, busyCelsius       float64
	memoryIdle, memoryBusy         float64 // memory temperature; 0: no sensor
	thresholds                     []gpu.TemperatureThreshold
	graphics, memoryClock, video   gpu.Hertz
	generation, width              int
	nvlinks                        int
	nvlinkRate, pcieRate           float64 // bytes per busy second
	nvlinkErrors                   []gpu.NVLinkError
	fabric, profiled               bool // NVSwitch fabric; GPM
	hopperLimits                   bool // the driver counts the three newer limit reasons
	ecc                            []gpu.ECCMemory
	remapBanks                     uint64 // 0: pages are retired instead
	engines                        []gpu.Engine
	instantOnly                    bool // no average power
	slices                         int  // compute slices; 0: no MIG
	profiles                       []profile
	gpmSM, gpmOccupancy, gpmTensor float64
	gpmDRAM                        float64
}

// profile is a MIG profile.
type profile struct {
	name                     string
	id, slices, memorySlices int
	sms                      int
	memory                   gpu.Bytes
}

func sensorLimits(shutdown, slowdown, operating, memory gpu.Celsius) []gpu.TemperatureThreshold {
	out := []gpu.TemperatureThreshold{
		{Sensor: gpu.SensorGPU, Limit: gpu.LimitSlowdown, Value: slowdown},
		{Sensor: gpu.SensorGPU, Limit: gpu.LimitShutdown, Value: shutdown},
		{Sensor: gpu.SensorGPU, Limit: gpu.LimitMaxOperating, Value: operating},
	}
	if memory > 0 {
		out = append(out, gpu.TemperatureThreshold{Sensor: gpu.SensorMemory, Limit: gpu.LimitMaxOperating, Value: memory})
	}
	return out
}

// boards is the table of models.
func boards() []board {
	simple := []gpu.ECCMemory{gpu.ECCDRAM, gpu.ECCSRAM}
	return []board{
		{key: "h100", model: "NVIDIA H100 80GB HBM3", brand: "NVIDIA", architecture: "Hopper", capability: "9.0",
			boardPart: "692-2G520-0200-000", vbios: "96.00.99.00.01",
			memory: 81559 * mib, reserved: 479 * mib, bar1: 131072 * mib, idleWatts: 69, busyWatts: 680, limit: 700,
			limitMin:    200,
			idleCelsius: 29, busyCelsius: 64, memoryIdle: 37, memoryBusy: 77, thresholds: sensorLimits(95, 89, 87, 0),
			graphics: 1980e6, memoryClock: 2619e6, video: 1545e6, generation: 5, width: 16, nvlinks: 18,
			nvlinkRate: 1.1e11, pcieRate: 1.2e9,
			nvlinkErrors: []gpu.NVLinkError{gpu.NVLinkCRCFlit, gpu.NVLinkCRCData, gpu.NVLinkReplay, gpu.NVLinkRecovery,
				gpu.NVLinkECC},
			fabric: true, profiled: true, hopperLimits: true, ecc: simple, remapBanks: 2560, engines: gpu.Engines,
			slices: 7,
			profiles: []profile{{"1g.10gb", 19, 1, 1, 16, 9984 * mib}, {"1g.20gb", 15, 1, 2, 26, 20096 * mib},
				{"2g.20gb", 14, 2, 2, 32, 20096 * mib},
				{"3g.40gb", 9, 3, 4, 60, 40448 * mib}, {"4g.40gb", 5, 4, 4, 64, 40448 * mib},
				{"7g.80gb", 0, 7, 8, 132, 81024 * mib}},
			gpmSM: 0.91, gpmOccupancy: 0.42, gpmTensor: 0.38, gpmDRAM: 0.36},
		{key: "h200", model: "NVIDIA H200", brand: "NVIDIA", architecture: "Hopper", capability: "9.0",
			boardPart: "695-2G520-0280-001", vbios: "96.00.BC.00.01",
			memory: 143771 * mib, reserved: 623 * mib, bar1: 262144 * mib, idleWatts: 76, busyWatts: 690, limit: 700,
			limitMin:    200,
			idleCelsius: 30, busyCelsius: 66, memoryIdle: 36, memoryBusy: 78, thresholds: sensorLimits(95, 89, 87, 0),
			graphics: 1980e6, memoryClock: 3201e6, video: 1545e6, generation: 5, width: 16, nvlinks: 18,
			nvlinkRate: 1.2e11, pcieRate: 1.2e9,
			nvlinkErrors: []gpu.NVLinkError{gpu.NVLinkCRCFlit, gpu.NVLinkCRCData, gpu.NVLinkReplay},
			fabric:       true, profiled: true, hopperLimits: true, ecc: simple, remapBanks: 3072, engines: gpu.Engines,
			slices: 7,
			profiles: []profile{{"1g.18gb", 19, 1, 1, 16, 16384 * mib}, {"1g.35gb", 15, 1, 2, 26, 33280 * mib},
				{"2g.35gb", 14, 2, 2, 32, 33280 * mib},
				{"3g.71gb", 9, 3, 4, 60, 71168 * mib}, {"4g.71gb", 5, 4, 4, 64, 71168 * mib},
				{"7g.141gb", 0, 7, 8, 132, 143104 * mib}},
			gpmSM: 0.93, gpmOccupancy: 0.40, gpmTensor: 0.41, gpmDRAM: 0.32},
		{key: "b200", model: "NVIDIA B200", brand: "NVIDIA", architecture: "Blackwell", capability: "10.0",
			boardPart: "692-2G525-0220-500", vbios: "97.00.FA.00.09",
			memory: 183359 * mib, reserved: 728 * mib, bar1: 262144 * mib, idleWatts: 196, busyWatts: 960, limit: 1000,
			limitMin:    200,
			idleCelsius: 39, busyCelsius: 68, memoryIdle: 39, memoryBusy: 73, thresholds: sensorLimits(93, 91, 88, 0),
			graphics: 1965e6, memoryClock: 3996e6, video: 1965e6, generation: 5, width: 16, nvlinks: 18,
			nvlinkRate: 2e11, pcieRate: 1.5e9,
			nvlinkErrors: []gpu.NVLinkError{gpu.NVLinkRecovery, gpu.NVLinkSymbol},
			fabric:       true, profiled: true, hopperLimits: true, ecc: simple, remapBanks: 3840, engines: gpu.Engines,
			slices: 7,
			profiles: []profile{{"1g.23gb", 19, 1, 1, 18, 21504 * mib}, {"1g.45gb", 15, 1, 2, 30, 43520 * mib},
				{"2g.45gb", 14, 2, 2, 36, 43520 * mib},
				{"3g.90gb", 9, 3, 4, 70, 91136 * mib}, {"4g.90gb", 5, 4, 4, 74, 91136 * mib},
				{"7g.180gb", 0, 7, 8, 148, 182272 * mib}},
			gpmSM: 0.92, gpmOccupancy: 0.36, gpmTensor: 0.44, gpmDRAM: 0.34},
		{key: "a100-40gb", model: "NVIDIA A100-SXM4-40GB", brand: "NVIDIA", architecture: "Ampere", capability: "8.0",
			boardPart: "692-2G506-0200-003", vbios: "92.00.45.00.03",
			memory: 40960 * mib, reserved: 605 * mib, bar1: 65536 * mib, idleWatts: 67, busyWatts: 380, limit: 400,
			limitMin:    100,
			idleCelsius: 36, busyCelsius: 62, memoryIdle: 44, memoryBusy: 74, thresholds: sensorLimits(92, 89, 85, 95),
			graphics: 1410e6, memoryClock: 1215e6, video: 1290e6, generation: 4, width: 16, nvlinks: 12,
			nvlinkRate:   5e10,
			nvlinkErrors: []gpu.NVLinkError{gpu.NVLinkCRCFlit, gpu.NVLinkCRCData, gpu.NVLinkReplay, gpu.NVLinkRecovery},
			ecc:          simple, remapBanks: 640,
			engines: []gpu.Engine{gpu.EngineDecoder, gpu.EngineJPEG, gpu.EngineOFA}, slices: 7,
			profiles: []profile{{"1g.5gb", 19, 1, 1, 14, 4864 * mib}, {"1g.10gb", 15, 1, 2, 14, 9856 * mib},
				{"2g.10gb", 14, 2, 2, 28, 9856 * mib},
				{"3g.20gb", 9, 3, 4, 42, 19968 * mib}, {"4g.20gb", 5, 4, 4, 56, 19968 * mib},
				{"7g.40gb", 0, 7, 8, 98, 40192 * mib}}},
		{key: "l40s", model: "NVIDIA L40S", brand: "NVIDIA", architecture: "Ada Lovelace", capability: "8.9",
			boardPart: "900-2G133-A880-000", vbios: "95.02.66.00.15",
			memory: 46068 * mib, reserved: 609 * mib, bar1: 65536 * mib, idleWatts: 34, busyWatts: 330, limit: 350,
			limitMin:    100,
			idleCelsius: 29, busyCelsius: 66, thresholds: sensorLimits(93, 90, 88, 0),
			graphics: 2520e6, memoryClock: 9001e6, video: 1965e6, generation: 4, width: 16,
			hopperLimits: true, ecc: simple, remapBanks: 192, engines: gpu.Engines},
		{key: "t4", model: "Tesla T4", brand: "Tesla", architecture: "Turing", capability: "7.5",
			boardPart: "900-2G183-A800-001", vbios: "90.04.96.00.02",
			memory: 15360 * mib, reserved: 448 * mib, bar1: 256 * mib, idleWatts: 10, busyWatts: 69, limit: 70,
			limitMin:    60,
			idleCelsius: 33, busyCelsius: 76, thresholds: sensorLimits(96, 93, 85, 0),
			graphics: 1590e6, memoryClock: 5001e6, video: 1470e6, generation: 3, width: 16,
			hopperLimits: true, ecc: []gpu.ECCMemory{gpu.ECCDRAM, gpu.ECCL1, gpu.ECCL2, gpu.ECCRegisterFile},
			engines: []gpu.Engine{gpu.EngineEncoder, gpu.EngineDecoder}, instantOnly: true},
	}
}

// release is a driver release.
type release struct {
	system gpu.System
	// recovery: it reports the recovery action (R570).
	recovery bool
}

// releases is the table of drivers, newest first.
func releases() []release {
	return []release{
		{gpu.System{DriverVersion: "580.105.08", CUDAVersion: "13.0", NVMLVersion: "13.580.105.08"}, true},
		{gpu.System{DriverVersion: "570.195.03", CUDAVersion: "12.8", NVMLVersion: "12.570.195.03"}, true},
		{gpu.System{DriverVersion: "535.183.01", CUDAVersion: "12.2", NVMLVersion: "12.535.183.01"}, false},
	}
}
