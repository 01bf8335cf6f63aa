package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/host"
)

// SliceDevice is what a DRA driver publishes about one device of this node.
type SliceDevice struct {
	UUID, PCI string            // attributes uuid and pciBusID; empty: none
	Capacity  map[string]string // quantities: "memory", "shares"
	Taints    []gpu.Taint       // set by the driver; those of DeviceTaintRules are not in a slice
}

// Slices are the devices of this node's ResourceSlices, by driver and device name. It is immutable; nil is empty.
type Slices map[[2]string]*SliceDevice

// Device returns a device; nil without.
func (s *Slices) Device(driver, device string) *SliceDevice {
	if s == nil {
		return nil
	}
	return (*s)[[2]string{driver, device}]
}

// The drivers publish devices when they start or change them. maxDevices bounds those of a node.
const (
	slicesInterval = 5 * time.Minute
	maxDevices     = 1 << 14
)

// SliceLister lists this node's ResourceSlices. Its methods are safe for concurrent use, but for Run. It needs a
// ClusterRole with list on resourceslices.
type SliceLister struct {
	Options
	apiClient // only Run uses it
	version   string
	sleep     func(context.Context, time.Duration)
	table     host.Record[*Slices]
}

// NewSliceLister returns a SliceLister; it connects to nothing yet.
func NewSliceLister(api APIOptions, o Options) *SliceLister {
	return &SliceLister{Options: o, apiClient: newAPIClient(api, "list on resourceslices"), version: "v1", sleep: sleepUntil,
		table: host.Record[*Slices]{Name: gpu.SourceSlices, Pending: "no response from the API server yet",
			Failing: "cannot list resource slices", Again: "resource slices listed again", MaxAge: o.MaxAge + slicesInterval,
			Clock: o.Clock, Logger: o.Logger}}
}

// Run lists until ctx is done.
func (l *SliceLister) Run(ctx context.Context) {
	for ctx.Err() == nil {
		start, wait := l.Clock(), slicesInterval
		table, err := l.list(ctx)
		if err != nil {
			err = errors.New(l.explain(err))
		}
		if err = l.table.Set(ctx, start, table, err); ctx.Err() != nil {
			return
		}
		if err != nil {
			wait = Backoff(l.table.Failures(), firstRetry, maxRetry, l.api.Jitter)
		} else if l.api.Changed != nil {
			l.api.Changed()
		}
		l.sleep(ctx, wait)
	}
}

// Value is what was listed last; nil before the first list, and when it is too old.
func (l *SliceLister) Value() *Slices {
	if l.table.Failures() == 0 {
		return l.table.Last()
	}
	table, _ := l.table.Value()
	return table
}

// Source implements Source.
func (l *SliceLister) Source() gpu.Source { return l.table.Source() }

// list lists in the newest version of the group that the server has: v1 since Kubernetes 1.34.
func (l *SliceLister) list(ctx context.Context) (*Slices, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	for _, version := range slices.Compact([]string{l.version, "v1", "v1beta2", "v1beta1"}) {
		body, err := l.get(ctx, "/apis/resource.k8s.io/"+version+"/resourceslices", "application/json",
			url.Values{"fieldSelector": {"spec.nodeName=" + l.api.Node}, "resourceVersion": {"0"}})
		var status *statusError
		if errors.As(err, &status) && status.code == http.StatusNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		defer body.Close()
		table, err := ReadSlices(body)
		if err != nil {
			return nil, fmt.Errorf("read the list: %w", err)
		}
		l.version = version
		return table, nil
	}
	return nil, errors.New("the server has no resource slices: it is older than Kubernetes 1.32, or they are disabled")
}

type sliceDevice struct {
	Name       string
	Attributes map[string]struct{ String string }
	Capacity   map[string]struct{ Value string }
	Taints     []struct{ Key, Value, Effect string }
}

// ReadSlices reads a list of ResourceSlices. Of a pool only its newest generation counts, and of a name that two pools
// of a driver have none.
func ReadSlices(r io.Reader) (*Slices, error) {
	type pool struct{ driver, name string }
	newest := map[pool]int64{}
	devices := map[pool]map[string]*SliceDevice{}
	count := 0
	s := newJSONStream(&io.LimitedReader{R: r, N: maxList}, maxEvent)
	err := s.object(fields{"items": func() error {
		return s.array(func() error {
			var slice struct {
				Spec struct {
					Driver string
					Pool   struct {
						Name       string
						Generation int64
					}
					Devices []struct {
						sliceDevice
						Basic *sliceDevice // in v1beta1
					}
				}
			}
			if err := s.Decode(&slice); err != nil {
				return err
			}
			spec := &slice.Spec
			at := pool{spec.Driver, spec.Pool.Name}
			switch generation, known := newest[at]; {
			case known && spec.Pool.Generation < generation:
				return nil
			case !known || spec.Pool.Generation > generation:
				newest[at], devices[at] = spec.Pool.Generation, map[string]*SliceDevice{}
			}
			if count += len(spec.Devices); count > maxDevices {
				return fmt.Errorf("more than %d devices on one node", maxDevices)
			}
			for _, d := range spec.Devices {
				if d.Basic != nil {
					d.Taints = append(d.Taints, d.Basic.Taints...)
					d.Attributes, d.Capacity = d.Basic.Attributes, d.Basic.Capacity
				}
				devices[at][d.Name] = d.keep()
			}
			return nil
		})
	}})
	if err != nil {
		return nil, err
	}
	out := Slices{}
	for at, all := range devices {
		for name, d := range all {
			key := [2]string{at.driver, name}
			if out[key] != nil {
				d = &SliceDevice{}
			}
			out[key] = d
		}
	}
	return &out, nil
}

func (d *sliceDevice) keep() *SliceDevice {
	out := &SliceDevice{Capacity: map[string]string{}}
	for key, v := range d.Attributes {
		switch key[strings.LastIndexByte(key, '/')+1:] {
		case "uuid":
			out.UUID = v.String
		case "pciBusID", "pcieBusID": // the standard attribute, and that of drivers before it
			out.PCI = v.String
		}
	}
	// Kubernetes allows 16 taints per device.
	for _, t := range d.Taints[:min(len(d.Taints), 16)] {
		out.Taints = append(out.Taints, gpu.Taint{Key: gpu.Printable(t.Key), Value: gpu.Printable(t.Value),
			Effect: gpu.Printable(t.Effect)})
	}
	for key, v := range d.Capacity {
		out.Capacity[key[strings.LastIndexByte(key, '/')+1:]] = v.Value
	}
	return out
}
