package nvml

import (
	"math"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/journal"
)

// fabricInfo are the members of both versions of NVML's structure that are written. Cluster is a number in place of the
// cluster's UUID.
type fabricInfo struct {
	State       uint8  `json:"state"`
	Status      uint32 `json:"status"`
	Clique      uint32 `json:"clique"`
	Mask        uint32 `json:"health_mask"`
	HealthState uint8  `json:"health_summary"`
	Cluster     uint8  `json:"cluster"`
}

func (f fabricInfo) masked(cluster [16]uint8) masked {
	return func(m *journal.Mask) any {
		if cluster != [16]uint8{} {
			f.Cluster = m.Byte(string(cluster[:]))
		}
		return f
	}
}

// journaled returns what the journal contains of a call's value; of is a pointer to what go-nvml returned. Of
// handles that is nothing.
func journaled(id callID, of any) any {
	switch v := of.(type) {
	case *nvml.Device, *nvml.GpuInstance, *nvml.GpmSample, *nvml.EventSet:
		return nil
	case *string:
		switch id {
		case callUUID:
			return masked(func(m *journal.Mask) any { return m.UUID(*v) })
		case callSerial:
			return masked(func(m *journal.Mask) any { return m.Serial(*v) })
		}
	case *[]nvml.ProcessInfo:
		return maskedPIDs(*v, func(p *nvml.ProcessInfo) *uint32 { return &p.Pid })
	case *[]nvml.ProcessUtilizationSample:
		return maskedPIDs(*v, func(p *nvml.ProcessUtilizationSample) *uint32 { return &p.Pid })
	case *[]uint32:
		return maskedPIDs(*v, func(pid *uint32) *uint32 { return pid })
	case *nvml.MemoryLimits_v1: // without the path, which names pod and container
		return map[string]uint64{"softlimit": v.SoftLimit, "hardlimit": v.HardLimit, "currentused": v.CurrentUsed}
	case *nvml.AccountingStats_v2:
		return masked(func(m *journal.Mask) any {
			s := *v
			s.Pid = m.PID(s.Pid)
			return s
		})
	case *[]nvml.FieldValue:
		return journaledFields(*v)
	case *pair[nvml.ValueType, []nvml.Sample]:
		list := []journal.Sample{}
		for _, s := range v.second {
			if n, ok := (value{kind: v.first, raw: s.SampleValue}).number(); ok {
				list = append(list, journal.Sample{Time: s.TimeStamp, Value: n})
			}
		}
		return list
	case *[]nvml.GpmMetric:
		list := make([]journal.Metric, len(*v))
		for i, m := range *v {
			list[i] = journal.Metric{ID: m.MetricId, Code: codeName(nvml.Return(m.NvmlReturn))}
			if !math.IsNaN(m.Value) && !math.IsInf(m.Value, 0) {
				list[i].Value = &m.Value
			}
		}
		return list
	case *nvml.GpuFabricInfo_v3:
		return fabricInfo{v.State, v.Status, v.CliqueId, v.HealthMask, v.HealthSummary, 0}.masked(v.ClusterUuid)
	case *nvml.GpuFabricInfo_v2:
		return fabricInfo{v.State, v.Status, v.CliqueId, v.HealthMask, 0, 0}.masked(v.ClusterUuid)
	case *nvml.PlatformInfo:
		return masked(func(m *journal.Mask) any {
			serial, _ := strconv.ParseUint(m.Serial(text(v.ChassisSerialNumber[:])), 10, 64)
			return map[string]uint64{"chassisserialnumber": serial, "slotnumber": uint64(v.SlotNumber),
				"trayindex": uint64(v.TrayIndex), "hostid": uint64(v.HostId), "peertype": uint64(v.PeerType),
				"moduleid": uint64(v.ModuleId)}
		})
	case *nvml.PciInfo:
		return map[string]uint32{"domain": v.Domain, "bus": v.Bus, "slot": v.Device,
			"device": v.PciDeviceId, "subsystem": v.PciSubSystemId}
	case *nvml.GpuInstanceInfo:
		return map[string]uint32{"profile": v.ProfileId, "start": v.Placement.Start, "size": v.Placement.Size}
	case *nvml.Temperature:
		return v.Temperature
	case *nvml.MarginTemperature:
		return v.MarginTemperature
	case *nvml.GpmSupport:
		return v.IsSupportedDevice
	case *nvml.BAR1Memory:
		return map[string]uint64{"total": v.Bar1Total, "used": v.Bar1Used, "free": v.Bar1Free}
	}
	return of
}

func journaledFields(batch []nvml.FieldValue) []journal.Field {
	list := make([]journal.Field, len(batch))
	for i, f := range batch {
		list[i] = journal.Field{ID: f.FieldId, Scope: f.ScopeId, Code: codeName(nvml.Return(f.NvmlReturn)),
			Time: f.Timestamp}
		v := value{kind: nvml.ValueType(f.ValueType), raw: f.Value}
		if nvml.Return(f.NvmlReturn) == nvml.SUCCESS && f.Timestamp != 0 {
			list[i].Type, list[i].Value = v.spell()
		}
	}
	return list
}

// maskedPIDs is a copy of a list in which every PID is masked.
func maskedPIDs[T any](list []T, pid func(*T) *uint32) masked {
	return func(m *journal.Mask) any {
		list := append([]T{}, list...)
		for i := range list {
			*pid(&list[i]) = m.PID(*pid(&list[i]))
		}
		return list
	}
}
