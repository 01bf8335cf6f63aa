package nvml

import (
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// thresholds are the temperature limits: the type for the older call, and the field with the same limit as a distance
// on Ada, Hopper and newer. That of the memory is a distance to a margin that NVML does not report, so it cannot be
// made absolute.
var thresholds = []struct {
	name   string
	sensor gpu.Sensor
	limit  gpu.TemperatureLimit
	kind   nvml.TemperatureThresholds
	margin bool // the limit follows from its margin
}{
	{"slowdown", gpu.SensorGPU, gpu.LimitSlowdown, nvml.TEMPERATURE_THRESHOLD_SLOWDOWN, true},
	{"shutdown", gpu.SensorGPU, gpu.LimitShutdown, nvml.TEMPERATURE_THRESHOLD_SHUTDOWN, true},
	{"max_operating", gpu.SensorGPU, gpu.LimitMaxOperating, nvml.TEMPERATURE_THRESHOLD_GPU_MAX, true},
	{"memory_max_operating", gpu.SensorMemory, gpu.LimitMaxOperating, nvml.TEMPERATURE_THRESHOLD_MEM_MAX, false},
}

// plausibleLimit reports whether a value can be a limit in degrees Celsius. Newer GPUs return a distance from the older
// call, which is far below, or negative and thus far above.
func plausibleLimit(t float64) bool { return t >= 50 && t <= 150 }

// thresholdRows are the limits in degrees: from the older call where it has them, otherwise derived.
//
// The derivation: the driver reports the margin, the degrees that are left before it slows down, and each limit as an
// offset of that margin: slowdown -2 is reached when the margin is -2. So with T the temperature and M the margin at
// one time, the margin is used up at R = T + M, and a limit with offset o is R - o. (H100: 42 C with a margin of 45 is
// R = 87; slowdown -2 is 89, shutdown -8 is 95.)
func thresholdRows() []row[gpu.Slow] {
	var rows []row[gpu.Slow]
	for _, t := range thresholds {
		reading := "temperature_limit_" + t.name
		add := func(to *gpu.Slow, v float64) {
			to.TemperatureLimits = append(to.TemperatureLimits,
				gpu.TemperatureThreshold{Sensor: t.sensor, Limit: t.limit, Value: gpu.Celsius(v)})
		}
		rows = append(rows, row[gpu.Slow]{reading: reading,
			read: func(c *GPU, to *gpu.Slow) nvml.Return {
				v, ret := get(c, callTemperatureThreshold,
					func() (uint32, nvml.Return) { return c.handle().GetTemperatureThreshold(t.kind) }, int(t.kind))
				if ret != nvml.SUCCESS {
					return ret
				}
				if !plausibleLimit(float64(v)) {
					return nvml.ERROR_NOT_SUPPORTED
				}
				add(to, float64(v))
				return ret
			}})
		if !t.margin {
			continue
		}
		rows = append(rows, row[gpu.Slow]{reading: reading, rank: 1,
			read: func(c *GPU, to *gpu.Slow) nvml.Return {
				end, ret := c.marginEnd()
				if ret != nvml.SUCCESS {
					return ret
				}
				offset, ok := to.MarginLimits[string(t.sensor)+" "+string(t.limit)]
				limit := end - float64(offset)
				if !ok || !plausibleLimit(limit) { // its field may have failed this time alone
					return nvml.ERROR_NO_DATA
				}
				add(to, limit)
				return ret
			}})
	}
	return rows
}

// marginEnd returns the temperature at which the margin is used up, once per read. Temperature and margin are two
// rounded values, so the sum varies: it stays the same while it moves by 2 or less.
func (c *GPU) marginEnd() (float64, nvml.Return) {
	m := &c.margin
	if !m.fresh {
		m.fresh = true
		m.code = c.readMarginEnd(&m.at)
	}
	if m.code != nvml.SUCCESS {
		return 0, m.code
	}
	return m.at.Or(0), nvml.SUCCESS
}

func (c *GPU) readMarginEnd(at *gpu.Opt[float64]) nvml.Return {
	margin, ret := get(c, callMarginTemperature, c.handle().GetMarginTemperature)
	if ret != nvml.SUCCESS {
		return ret
	}
	var medium gpu.Medium
	ret = readTemperatureV(c, &medium)
	if notOffered(ret) {
		ret = readTemperature(c, &medium)
	}
	if ret != nvml.SUCCESS {
		return ret
	}
	end := float64(medium.Temperature.Or(0)) + float64(margin.MarginTemperature)
	if before, ok := at.Get(); !ok || math.Abs(end-before) > 2 {
		*at = gpu.Some(end)
	}
	return nvml.SUCCESS
}

// readTemperatureV and readTemperature read the GPU's temperature by the newer and the older call.
func readTemperatureV(c *GPU, to *gpu.Medium) nvml.Return {
	t, ret := get(c, callTemperatureV, func() (nvml.Temperature, nvml.Return) { return c.handle().GetTemperatureV().V1() })
	if ret == nvml.SUCCESS {
		value := gpu.Celsius(t.Temperature)
		if t.Temperature == nvml.VALUE_NOT_AVAILABLE {
			// All ones are no temperature. The older call returns 4294967295 for them: as that they are rejected and
			// counted.
			value = math.MaxUint32
		}
		to.Temperature = gpu.Some(value)
	}
	return ret
}

func readTemperature(c *GPU, to *gpu.Medium) nvml.Return {
	t, ret := get(c, callTemperature, func() (uint32, nvml.Return) { return c.handle().GetTemperature(nvml.TEMPERATURE_GPU) },
		int(nvml.TEMPERATURE_GPU))
	if ret == nvml.SUCCESS {
		to.Temperature = gpu.Some(gpu.Celsius(t))
	}
	return ret
}
