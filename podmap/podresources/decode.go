package podresources

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Responses are decoded entry by entry: here, but for claims, which the generated code of k8s.io/kubelet decodes.
// Plugins that offer a GPU's memory as devices, one ID per MiB, make responses of hundreds of thousands of IDs; as one
// generated message such a response takes 200 MB.
//
// The field numbers are those of k8s.io/kubelet/pkg/apis/podresources; v1 and v1alpha1 share them.

const (
	fieldPods = 1 // ListPodResourcesResponse

	fieldPodName       = 1 // PodResources
	fieldPodNamespace  = 2
	fieldPodContainers = 3

	fieldContainerName    = 1 // ContainerResources
	fieldContainerDevices = 2
	fieldContainerClaims  = 5

	fieldResourceName = 1 // ContainerDevices
	fieldDeviceIDs    = 2

	fieldAllocatable = 1 // AllocatableResourcesResponse

	maxCDI = 16 // CDI names of one device of a claim
)

var errWire = errors.New("not a protobuf message")

// wire reads nested messages from the buffers of the transport. Offsets count from the start of the response; each
// message ends after its length.
type wire struct {
	r      *mem.Reader
	at     int
	end    int    // of the message that is read
	buffer []byte // of the entry that is decoded
}

// ReadByte implements io.ByteReader within the current message.
func (w *wire) ReadByte() (byte, error) {
	if w.at >= w.end {
		return 0, io.ErrUnexpectedEOF
	}
	w.at++
	return w.r.ReadByte()
}

// decode calls visit for each length-delimited field of a response.
func decode(data mem.BufferSlice, visit func(w *wire, number protowire.Number, end int) error) error {
	w := &wire{r: data.Reader(), end: data.Len()}
	defer w.r.Close()
	return w.fields(data.Len(), func(number protowire.Number, end int) error { return visit(w, number, end) })
}

// fields calls visit for each length-delimited field of the message that ends at end, with the field's own end. What
// visit leaves unread is skipped.
func (w *wire) fields(end int, visit func(number protowire.Number, end int) error) error {
	defer func(outer int) { w.end = outer }(w.end)
	for w.at < end {
		w.end = end
		tag, err := binary.ReadUvarint(w)
		if err != nil {
			return err
		}
		number, kind := protowire.DecodeTag(tag)
		if !number.IsValid() {
			return errWire
		}
		length := uint64(0)
		switch kind {
		case protowire.VarintType:
			_, err = binary.ReadUvarint(w)
		case protowire.Fixed64Type:
			length = 8
		case protowire.Fixed32Type:
			length = 4
		case protowire.BytesType:
			length, err = binary.ReadUvarint(w)
		default: // groups, which no message here has
			return errWire
		}
		if err != nil {
			return err
		}
		if length > uint64(end-w.at) {
			return io.ErrUnexpectedEOF
		}
		next := w.at + int(length)
		if kind == protowire.BytesType {
			if err := visit(number, next); err != nil {
				return err
			}
		}
		n, err := w.r.Discard(next - w.at)
		w.at += n
		if err != nil {
			return err
		}
	}
	return nil
}

// bytes returns the field that ends at end. They are valid until the next call.
func (w *wire) bytes(end int) ([]byte, error) {
	n := end - w.at
	w.buffer = slices.Grow(w.buffer[:0], n)[:n]
	read, err := io.ReadFull(w.r, w.buffer)
	w.at += read
	return w.buffer, err
}

func (w *wire) message(end int, m proto.Message) error {
	b, err := w.bytes(end)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return refusal{err}
	}
	return nil
}

func (w *wire) name(end int) (string, error) {
	if n := end - w.at; n > MaxIDLength {
		return "", refusal{fmt.Errorf("a name of %d bytes", n)}
	}
	return w.text(end)
}

func (w *wire) text(end int) (string, error) {
	b, err := w.bytes(end)
	if err == nil && !utf8.Valid(b) {
		err = refusal{errors.New("a name is not UTF-8")}
	}
	return string(b), err
}

// Decode reads a List response into l.
func (l *List) Decode(data mem.BufferSlice) error {
	return decode(data, func(w *wire, number protowire.Number, end int) error {
		if number != fieldPods {
			return nil
		}
		if l.Pods++; l.Pods > maxPods {
			return tooMany("pods", maxPods)
		}
		var pod gpu.PodName
		before := *l.shared
		err := l.pod(w, end, &pod)
		if err == nil && l.Refused[pod] == "" {
			return nil
		}
		if one := (refusal{}); err != nil && !errors.As(err, &one) {
			return err
		}
		l.shared.ids, l.shared.containers, l.shared.claims = before.ids, before.containers, before.claims
		l.refuse(pod, cmp.Or(err, errors.New(l.Refused[pod])))
		return nil
	})
}

func (l *List) pod(w *wire, end int, pod *gpu.PodName) error {
	var names []string
	var containers []*Container
	err := w.fields(end, func(number protowire.Number, end int) (err error) {
		switch number {
		case fieldPodName:
			pod.Pod, err = w.name(end)
		case fieldPodNamespace:
			pod.Namespace, err = w.name(end)
		case fieldPodContainers:
			if l.shared.containers++; l.shared.containers > maxContainers {
				return tooMany("containers", maxContainers)
			}
			if len(containers) >= maxContainersPerPod {
				return tooMany("containers in one pod", maxContainersPerPod)
			}
			c := &Container{Devices: Devices{shared: l.shared}}
			var name string
			name, err = c.decode(w, end)
			names, containers = append(names, name), append(containers, c)
		}
		return err
	})
	// The names may follow what they name.
	for i, c := range containers {
		if err == nil {
			err = l.add(gpu.Container{Namespace: pod.Namespace, Pod: pod.Pod, Name: names[i]}, c)
		}
	}
	return err
}

func (c *Container) decode(w *wire, end int) (name string, err error) {
	err = w.fields(end, func(number protowire.Number, end int) (err error) {
		switch number {
		case fieldContainerName:
			name, err = w.name(end)
		case fieldContainerDevices:
			err = c.devices(w, end)
		case fieldContainerClaims:
			err = c.claim(w, end)
		}
		return err
	})
	return name, err
}

// devices reads a ContainerDevices: usually one ID, in the same message as its resource. The generated code takes several
// times as long, most of it for the topology.
func (d *Devices) devices(w *wire, end int) error {
	var resource string
	var found []string
	err := w.fields(end, func(number protowire.Number, end int) (err error) {
		switch number {
		case fieldResourceName:
			resource, err = w.name(end)
		case fieldDeviceIDs:
			if d.shared.ids++; d.shared.ids > maxIDs {
				return tooMany("device IDs", maxIDs)
			}
			var id string
			id, err = w.text(end)
			found = append(found, id)
		}
		return err
	})
	if err != nil || len(found) == 0 {
		return err
	}
	ids, err := d.of(resource)
	if err != nil {
		return err
	}
	for _, id := range found {
		ids.add(id, d.shared.Hash)
	}
	return nil
}

// claim reads a DynamicResource. The kubelet repeats in the CDI names of a device those of the driver's devices before
// it; what is left are its own.
func (c *Container) claim(w *wire, end int) error {
	var m podresources.DynamicResource
	if err := w.message(end, &m); err != nil {
		return err
	}
	if c.shared.claims += len(m.ClaimResources); c.shared.claims > maxClaimDevices {
		return tooMany("devices of claims", maxClaimDevices)
	}
	before := map[[2]string]bool{} // by driver and CDI name
	for _, d := range m.ClaimResources {
		if len(d.DriverName) > MaxIDLength || len(d.DeviceName) > MaxIDLength || len(d.PoolName) > MaxIDLength {
			return refusal{fmt.Errorf("a device of claim %.64q has a name of more than %d bytes", m.ClaimName, MaxIDLength)}
		}
		var own []string
		for _, cdi := range d.CdiDevices {
			key := [2]string{d.DriverName, cdi.Name}
			if !before[key] && len(cdi.Name) <= MaxIDLength && len(own) < maxCDI {
				own = append(own, cdi.Name)
			}
			before[key] = true
		}
		c.Claims = append(c.Claims, ClaimDevice{Driver: d.DriverName, Claim: [2]string{m.ClaimNamespace, m.ClaimName},
			Pool: d.PoolName, Name: d.DeviceName, Part: d.ShareId != nil, CDI: strings.Join(own, ",")})
	}
	return nil
}

// Decode reads a GetAllocatableResources response into d.
func (d *Devices) Decode(data mem.BufferSlice) error {
	return decode(data, func(w *wire, number protowire.Number, end int) error {
		if number != fieldAllocatable {
			return nil
		}
		return d.devices(w, end)
	})
}
