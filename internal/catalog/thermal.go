package catalog

import (
	"strconv"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

func thermal() Group {
	return Group{
		Name:  "temperature",
		Title: "Temperature",
		Rows: []Family{
			{Name: "gpu_temperature_celsius", Scope: ScopeGPU,
				Help:    "Temperature, by sensor.",
				Source:  "nvmlDeviceGetTemperatureV, else nvmlDeviceGetTemperature; NVML field 82 for memory",
				Offered: "memory: data-center GPUs with HBM",
				Labels:  []string{"sensor"},
				Read: availableGPUs(func(c *gpu.GPU, emit gpuEmit) {
					if m, ok := c.Medium.Get(); ok {
						opt(emit, m.Temperature, string(gpu.SensorGPU))
					}
					if f, ok := c.Fast.Get(); ok {
						opt(emit, f.MemoryTemperature, string(gpu.SensorMemory))
					}
				})},
			{Name: "gpu_temperature_limit_celsius", Scope: ScopeGPU,
				Help:   "Temperature limits for slowdown, shutdown and maximum operation, by sensor.",
				Source: "nvmlDeviceGetTemperatureThreshold, NVML fields 193 to 196",
				Labels: []string{"sensor", "limit"}, Values: names([]gpu.TemperatureLimit{gpu.LimitSlowdown,
					gpu.LimitMaxOperating}),
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					for _, t := range s.TemperatureLimits {
						emit(float64(t.Value), string(t.Sensor), string(t.Limit))
					}
				})},
			{Name: "gpu_temperature_margin_celsius", Scope: ScopeGPU,
				Help:   "Degrees until the GPU slows down (T.Limit).",
				Source: "nvmlDeviceGetMarginTemperature", Offered: "Ada and newer",
				Read: medium(func(m *gpu.Medium) gpu.Opt[gpu.Celsius] { return m.Margin })},
			{Name: "gpu_temperature_margin_limit_celsius", Scope: ScopeGPU,
				Help:   "Margins (T.Limit) at which slowdown, shutdown and reduced clocks begin, by sensor.",
				Source: "NVML fields 193 to 196", Offered: "Ada and newer", Labels: []string{"sensor", "limit"},
				Read: slowGPU(func(s *gpu.Slow, emit gpuEmit) {
					for _, sensor := range []gpu.Sensor{gpu.SensorGPU, gpu.SensorMemory} {
						for _, limit := range []gpu.TemperatureLimit{gpu.LimitSlowdown, gpu.LimitShutdown, gpu.LimitMaxOperating} {
							if v, ok := s.MarginLimits[string(sensor)+" "+string(limit)]; ok {
								emit(float64(v), string(sensor), string(limit))
							}
						}
					}
				})},
			{Name: "gpu_fan_speed_ratio", Scope: ScopeGPU,
				Help:   "Target fan speed as a fraction of its maximum; may exceed 1.",
				Source: "nvmlDeviceGetFanSpeed_v2", Offered: "GPUs with fans",
				Labels: []string{"fan"},
				Read: mediumGPU(func(m *gpu.Medium, emit gpuEmit) {
					for i, r := range m.Fans {
						opt(emit, r, strconv.Itoa(i))
					}
				})},
		},
	}
}
