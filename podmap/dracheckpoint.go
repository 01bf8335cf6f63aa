package podmap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// mostDRABytes bounds the DRA driver's checkpoint: some kilobytes per claim of this node.
const mostDRABytes = 16 << 20

// preparedClaims is what NVIDIA's DRA driver has prepared on this node. It is immutable; nil knows nothing.
type preparedClaims struct {
	claims map[string]*preparedClaim // by namespace, claimPart and name
}

// preparedClaim is one claim: what the driver made of it, and what the scheduler granted.
type preparedClaim struct {
	devices map[string]ref
	admin   map[string]bool
	memory  map[string]gpu.Bytes // consumed of a device that many share
}

// draCheckpoint is the file, as far as it is of use. The driver spells keys in lower camel case; those of the
// kubelet's own types are accepted in theirs, for matching is without regard to case.
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

// readPreparedClaims reads the checkpoint of NVIDIA's DRA driver.
func readPreparedClaims(r io.Reader) (*preparedClaims, error) {
	data, err := io.ReadAll(io.LimitReader(r, mostDRABytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > mostDRABytes {
		return nil, fmt.Errorf("larger than %d MiB", mostDRABytes>>20)
	}
	var file draCheckpoint
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	if file.V2 == nil {
		return nil, errors.New("it has no claims of version 2: the driver is older than v25.12")
	}
	out := &preparedClaims{claims: map[string]*preparedClaim{}}
	for _, c := range file.V2.PreparedClaims {
		if c.Name == "" || c.Namespace == "" {
			continue
		}
		p := &preparedClaim{devices: map[string]ref{}, admin: map[string]bool{}, memory: map[string]gpu.Bytes{}}
		if c.Status.Allocation != nil {
			for _, d := range c.Status.Allocation.Devices.Results {
				if d.Driver != draGPUDriver {
					continue
				}
				if d.AdminAccess != nil && *d.AdminAccess {
					p.admin[d.Device] = true
				}
				for key, text := range d.ConsumedCapacity {
					if key != "memory" && !strings.HasSuffix(key, "/memory") {
						continue
					}
					if n, ok := parseQuantity(text); ok {
						if b, ok := bytesOf(n).Get(); ok {
							p.memory[d.Device] = b
						}
					}
				}
			}
		}
		for _, group := range c.PreparedDevices {
			for _, d := range group.Devices {
				if d.GPU != nil {
					if r, ok := readNVML(d.GPU.Info.UUID); ok && r.by == byUUID && d.GPU.Device.name() != "" {
						p.devices[d.GPU.Device.name()] = r
					}
				}
				if d.MIG != nil && d.MIG.Device.name() != "" {
					if r, ok := readNVML(d.MIG.Concrete.MIGUUID); ok && r.by == byMIG {
						p.devices[d.MIG.Device.name()] = r
					}
				}
			}
		}
		out.claims[c.Namespace+claimPart+c.Name] = p
	}
	return out, nil
}

// claim returns the prepared claim of a unit; nil where the unit is of no claim, or nothing tells of it.
func (p *preparedClaims) claim(u *unit) *preparedClaim {
	if p == nil || u.device == "" || u.resource != draGPUDriver {
		return nil
	}
	return p.claims[strings.TrimSuffix(u.id, claimPart+u.device)]
}

// holding are the units that hold: a claim with administrator access looks on, and holds nothing.
func (r *record) alloc() []unit {
	if r.prepared == nil {
		return r.answer.units
	}
	var out []unit
	for i := range r.answer.units {
		u := &r.answer.units[i]
		if c := r.prepared.claim(u); c == nil || !c.admin[u.device] {
			out = append(out, *u)
		}
	}
	return out
}

// locate resolves a unit. What the DRA driver itself recorded comes before the name of the device, which only
// numbers it.
func (r *record) locate(inv *gpu.Inventory, u *unit) (targets []target, elsewhere bool, source string) {
	targets, elsewhere = locate(inv, u.ref)
	c := r.prepared.claim(u)
	if c == nil {
		return targets, elsewhere, gpu.SourcePodResources
	}
	recorded, ok := c.devices[u.device]
	if !ok {
		return targets, elsewhere, gpu.SourcePodResources
	}
	better, away := locate(inv, recorded)
	if len(better) == 0 || len(targets) == 1 && len(better) == 1 && targets[0] == better[0] {
		return targets, elsewhere && (len(better) > 0 || away), gpu.SourcePodResources
	}
	return better, away, SourceDRA
}
