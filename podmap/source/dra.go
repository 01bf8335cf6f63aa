package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// maxDRACheckpoint bounds the DRA driver's checkpoint in bytes: it has some kilobytes per claim of this node.
const maxDRACheckpoint = 16 << 20

// draGPUDriver is the name of NVIDIA's DRA driver for GPUs.
const draGPUDriver = "gpu.nvidia.com"

// PreparedClaims are the claims that NVIDIA's DRA driver has prepared on this node, by namespace and name. It is
// immutable.
type PreparedClaims map[[2]string]*PreparedClaim

// PreparedClaim is one claim, by device name: what the driver made of it, and what the scheduler allocated.
type PreparedClaim struct {
	UUIDs  map[string]string // of GPUs and MIG devices, as NVML writes them
	Admin  map[string]bool   // administrator access, which allocates nothing
	Memory map[string]string // consumed of a shared device, as a quantity
}

// NewDRA returns the DRA driver's checkpoint at path.
func NewDRA(path string, o Options) *File[PreparedClaims] {
	return &File[PreparedClaims]{Options: o, path: path, name: gpu.SourceDRA, what: "DRA driver checkpoint",
		read: func(r io.Reader) (*PreparedClaims, int, error) {
			claims, err := readPreparedClaims(r)
			return claims, 0, err
		}}
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
							Driver, Device   string
							AdminAccess      *bool
							ConsumedCapacity map[string]string
						}
					}
				}
			}
			PreparedDevices []struct {
				Devices []struct {
					GPU *struct {
						Info   struct{ UUID string }
						Device draDevice
					}
					MIG *struct {
						Concrete struct {
							MIGUUID, ParentUUID string
							GIID, CIID          *int
						}
						Device draDevice
					}
				}
			}
		}
	}
}

type draDevice struct {
	DeviceName string
	Snake      string `json:"device_name"`
}

func (d draDevice) name() string {
	if d.DeviceName != "" {
		return d.DeviceName
	}
	return d.Snake
}

func readPreparedClaims(r io.Reader) (*PreparedClaims, error) {
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
		return nil, errors.New("no claims of version 2: the driver is older than v25.12")
	}
	out := PreparedClaims{}
	for _, c := range file.V2.PreparedClaims {
		if c.Name == "" || c.Namespace == "" {
			continue
		}
		p := &PreparedClaim{UUIDs: map[string]string{}, Admin: map[string]bool{}, Memory: map[string]string{}}
		if c.Status.Allocation != nil {
			for _, d := range c.Status.Allocation.Devices.Results {
				if d.Driver != draGPUDriver {
					continue
				}
				if d.AdminAccess != nil && *d.AdminAccess {
					p.Admin[d.Device] = true
				}
				for key, quantity := range d.ConsumedCapacity {
					if key == "memory" || strings.HasSuffix(key, "/memory") {
						p.Memory[d.Device] = quantity
					}
				}
			}
		}
		for _, group := range c.PreparedDevices {
			for _, d := range group.Devices {
				if d.GPU != nil {
					p.add(d.GPU.Device.name(), d.GPU.Info.UUID, "GPU-")
				}
				if d.MIG != nil {
					p.add(d.MIG.Device.name(), d.MIG.Concrete.MIGUUID, "MIG-")
				}
			}
		}
		out[[2]string{c.Namespace, c.Name}] = p
	}
	return &out, nil
}

func (p *PreparedClaim) add(device, uuid, prefix string) {
	if device != "" && strings.HasPrefix(uuid, prefix) {
		p.UUIDs[device] = uuid
	}
}
