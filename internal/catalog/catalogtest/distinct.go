package catalogtest

import (
	"fmt"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// keys are those of the maps by reading: a family reads the keys that it knows.
var keys = map[reflect.Type]any{
	reflect.TypeFor[gpu.PollGroup](): gpu.DevicePollGroups, reflect.TypeFor[gpu.TimeState](): gpu.TimeStates,
	reflect.TypeFor[gpu.Engine](): gpu.Engines, reflect.TypeFor[gpu.Clock](): gpu.Clocks, reflect.TypeFor[gpu.Pipe](): gpu.Pipes,
	reflect.TypeFor[gpu.LimitReason](): gpu.LimitReasons, reflect.TypeFor[gpu.BankAvailability](): gpu.BankAvailabilities,
	reflect.TypeFor[gpu.NVLinkError](): gpu.NVLinkErrors, reflect.TypeFor[gpu.FabricFault](): gpu.FabricFaults,
	reflect.TypeFor[gpu.DeviceState](): gpu.DeviceStates,
	reflect.TypeFor[gpu.RemapCause](): []gpu.RemapCause{gpu.CauseCorrected, gpu.CauseUncorrected, gpu.CauseSingleBit,
		gpu.CauseDoubleBit},
	reflect.TypeFor[string](): []string{"parity", "secded", "l2", "sm", "pcie", "mcu", "other", "module min", "module max",
		"memory max_operating", "gpu slowdown"},
}

// DistinctView returns a View in which every value is present and of its own, two of each list: what is read from another
// field than its family's shows.
func DistinctView() *gpu.View {
	v := &gpu.View{}
	f := filler{}
	f.fill(reflect.ValueOf(v).Elem(), 0)
	v.At = At.Add(24 * time.Hour)
	for i := range v.GPUs {
		c := &v.GPUs[i]
		c.State, c.Recovery = gpu.DeviceUp, gpu.Some(gpu.RecoveryActions[i+1])
		s := c.Slow.Or(nil)
		s.ComputeMode = gpu.Some(gpu.ComputeModes[i])
		fabric := s.Fabric.Or(gpu.Fabric{})
		fabric.State, fabric.Health = gpu.FabricStates[i+1], gpu.FabricHealths[i+1]
		s.Fabric = gpu.Some(fabric)
		m := c.Medium.Or(nil)
		m.ClockEvents, m.ECC, s.TemperatureLimits = gpu.Some(1<<(2*i)), nil, nil
		for _, severity := range []gpu.ECCSeverity{gpu.ECCCorrected, gpu.ECCUncorrected} {
			for _, memory := range []gpu.ECCMemory{gpu.ECCAll, gpu.ECCDRAM, gpu.ECCSRAM, gpu.ECCL1, gpu.ECCL2, gpu.ECCRegisterFile,
				gpu.ECCTextureMemory, gpu.ECCTextureShared, gpu.ECCCBU} {
				e := gpu.ECCCount{}
				f.fill(reflect.ValueOf(&e).Elem(), 0)
				e.Severity, e.Memory = severity, memory
				m.ECC = append(m.ECC, e)
			}
		}
		for _, limit := range []gpu.TemperatureLimit{gpu.LimitSlowdown, gpu.LimitShutdown, gpu.LimitMaxOperating} {
			for _, sensor := range []gpu.Sensor{gpu.SensorGPU, gpu.SensorMemory} {
				f.n++
				s.TemperatureLimits = append(s.TemperatureLimits,
					gpu.TemperatureThreshold{Sensor: sensor, Limit: limit, Value: gpu.Celsius(f.n)})
			}
		}
	}
	v.Containers[1].Ended = true // its counters stay, its gauges do not
	for i := range v.Features {
		v.Features[i].State = gpu.FeatureStates[i]
	}
	for i := range v.PollGroups {
		v.PollGroups[i].PollGroup = gpu.DevicePollGroups[i]
	}
	return v
}

type filler struct{ n int }

func (f *filler) fill(v reflect.Value, depth int) {
	f.n++
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(At.Add(time.Duration(f.n) * time.Second)))
			return
		}
		for i := range v.NumField() {
			field := v.Field(i)
			if !field.CanSet() {
				field = reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
			}
			f.fill(field, depth+1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		of, ok := keys[v.Type().Key()]
		if !ok {
			return
		}
		for i := range reflect.ValueOf(of).Len() {
			value := reflect.New(v.Type().Elem()).Elem()
			f.fill(value, depth+1)
			v.SetMapIndex(reflect.ValueOf(of).Index(i), value)
		}
	case reflect.String:
		text := fmt.Sprintf("%s%d", strings.ToLower(v.Type().Name()), f.n)
		if of, ok := keys[v.Type()]; ok && v.Type().Kind() == reflect.String && v.Type().Name() != "string" {
			list := reflect.ValueOf(of)
			text = list.Index(f.n % list.Len()).String()
		}
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n) % 251)
		if v.Kind() != reflect.Uint8 {
			v.SetUint(uint64(f.n))
		}
	case reflect.Float64:
		v.SetFloat(float64(f.n))
	default:
		panic(fmt.Sprint("a View has a ", v.Type()))
	}
}
