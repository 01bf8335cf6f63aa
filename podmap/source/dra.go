package source

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// maxDRACheckpoint bounds a DRA driver's checkpoint in bytes: it has some kilobytes per claim of this node.
const maxDRACheckpoint = 16 << 20

// PreparedClaims are the claims that a DRA driver has prepared on this node, by namespace and name, and their devices. It
// is immutable.
type PreparedClaims map[[2]string]map[draKey]*PreparedDevice

type draKey struct{ driver, device string }

// PreparedDevice is what the driver made of one device of a claim, and what the scheduler allocated of it.
type PreparedDevice struct {
	UUID    string         // of the GPU or MIG device, as NVML writes it; empty: not recorded
	Admin   bool           // administrator access by every request, which allocates nothing
	Results []DeviceResult // one for each request that the device was allocated for
}

// DeviceResult is what the scheduler allocated of a device for one request of a claim.
type DeviceResult struct {
	Request  string
	Consumed map[string]string // of a shared device, as quantities: "memory", "cores"
}

// Device returns a device of a claim; nil without.
func (p PreparedClaims) Device(claim [2]string, driver, device string) *PreparedDevice {
	return p[claim][draKey{driver, device}]
}

// NewDRA returns a DRA driver's checkpoint at path: NVIDIA's, or another one in the same envelope. The directory has the
// name of the driver.
func NewDRA(path string, o Options) *File[PreparedClaims] {
	return newFile(o, path, gpu.SourceDRA, "DRA driver checkpoint", func(r io.Reader) (*PreparedClaims, int, error) {
		claims, err := ReadPreparedClaims(r, filepath.Base(filepath.Dir(path)))
		return claims, 0, err
	})
}

// draCheckpoint is the file, as far as it is read. The driver writes keys in lower camel case; matching ignores case,
// so those of the kubelet's own types are accepted too.
type draCheckpoint struct {
	V2 *struct {
		PreparedClaims map[string]struct {
			Namespace, Name string
			Status          struct {
				Allocation *struct {
					Devices struct {
						Results []struct {
							Request, Driver, Device string
							AdminAccess             *bool
							ConsumedCapacity        map[string]string
						}
					}
				}
			}
			// A device is below the name of its kind, "gpu", "mig", "hami-gpu" or "vgpu", beside other data.
			PreparedDevices []struct{ Devices []map[string]json.RawMessage }
		}
	}
}

type draDevice struct {
	Info     struct{ UUID string }
	Concrete struct{ MIGUUID string }
	Device   struct {
		DeviceName string
		Snake      string `json:"device_name"`
	}
}

func ReadPreparedClaims(r io.Reader, driver string) (*PreparedClaims, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxDRACheckpoint+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxDRACheckpoint {
		return nil, fmt.Errorf("larger than %d MiB", maxDRACheckpoint>>20)
	}
	var file draCheckpoint
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	if file.V2 == nil {
		return nil, errors.New("no claims of version 2: NVIDIA's driver is older than v25.12, or it is no DRA driver's checkpoint")
	}
	out := PreparedClaims{}
	for _, c := range file.V2.PreparedClaims {
		if c.Name == "" || c.Namespace == "" {
			continue
		}
		devices := map[draKey]*PreparedDevice{}
		drivers := map[string][]string{} // by device
		if c.Status.Allocation != nil {
			for _, d := range c.Status.Allocation.Devices.Results {
				key := draKey{d.Driver, d.Device}
				if devices[key] == nil {
					devices[key] = &PreparedDevice{Admin: true}
					drivers[d.Device] = append(drivers[d.Device], d.Driver)
				}
				p, result := devices[key], DeviceResult{d.Request, map[string]string{}}
				p.Admin = p.Admin && d.AdminAccess != nil && *d.AdminAccess
				for key, quantity := range d.ConsumedCapacity {
					result.Consumed[key[strings.LastIndexByte(key, '/')+1:]] = quantity
				}
				p.Results = append(p.Results, result)
			}
		}
		for _, group := range c.PreparedDevices {
			for _, kinds := range group.Devices {
				for _, raw := range kinds {
					var d draDevice
					err := json.Unmarshal(raw, &d)
					key := draKey{driver, cmp.Or(d.Device.DeviceName, d.Device.Snake)}
					if err != nil || key.device == "" {
						continue
					}
					if devices[key] == nil && len(drivers[key.device]) == 1 {
						key.driver = drivers[key.device][0]
					}
					if devices[key] == nil {
						devices[key] = &PreparedDevice{}
					}
					devices[key].UUID = cmp.Or(d.Concrete.MIGUUID, d.Info.UUID)
				}
			}
		}
		out[[2]string{c.Namespace, c.Name}] = devices
	}
	return &out, nil
}
