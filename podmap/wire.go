package podmap

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The kubelet's answers are decoded entry by entry, in passing: the outer messages here, the entries by the
// generated code of k8s.io/kubelet. Plugins that sell a GPU's memory as devices, one id per MiB, make answers
// of hundreds of thousands of ids; as one generated message such an answer takes 200 MB, which is more than a
// node's exporter may use. Read entry by entry it takes what is kept: names, the ids that name GPUs, and a
// hash of each that does not.
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

	fieldAllocatable = 1 // AllocatableResourcesResponse
)

// The wire types of protobuf. Groups (3 and 4) are not used by anyone.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

var errWire = errors.New("not a protobuf message")

// wire reads nested messages from a stream. Offsets count from the beginning of the stream; each message
// ends where the length before it says.
type wire struct {
	r      *mem.Reader
	at     int
	buffer []byte // of the entry that is decoded
}

// field is one field of a message: its number and, for a length-delimited one, where it ends.
type field struct {
	number int
	bytes  bool
	end    int
}

// fields calls visit for each field of the message that ends at end. What visit leaves of a
// length-delimited field is skipped.
func (w *wire) fields(end int, visit func(field) error) error {
	for w.at < end {
		key, err := w.varint(end)
		if err != nil {
			return err
		}
		f := field{number: int(key >> 3)}
		if key>>3 == 0 || key>>3 > 1<<29-1 {
			return errWire
		}
		switch key & 7 {
		case wireVarint:
			if _, err := w.varint(end); err != nil {
				return err
			}
			f.end = w.at
		case wire64:
			f.end = w.at + 8
		case wire32:
			f.end = w.at + 4
		case wireBytes:
			length, err := w.varint(end)
			if err != nil {
				return err
			}
			if length > uint64(end-w.at) {
				return io.ErrUnexpectedEOF
			}
			f.bytes, f.end = true, w.at+int(length)
		default:
			return errWire
		}
		if f.end > end {
			return io.ErrUnexpectedEOF
		}
		if f.bytes {
			if err := visit(f); err != nil {
				return err
			}
		}
		if err := w.discard(f.end - w.at); err != nil {
			return err
		}
	}
	return nil
}

func (w *wire) discard(n int) error {
	if n < 0 {
		return errWire
	}
	m, err := w.r.Discard(n)
	w.at += m
	return err
}

func (w *wire) varint(end int) (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		if w.at >= end {
			return 0, io.ErrUnexpectedEOF
		}
		b, err := w.r.ReadByte()
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		w.at++
		if shift == 63 && b > 1 {
			return 0, errWire
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errWire
}

// name returns the content of a field as text.
func (w *wire) name(f field) (string, error) {
	n := f.end - w.at
	if n > maxIDLength {
		return "", fmt.Errorf("a name of %d bytes", n)
	}
	w.buffer = slices.Grow(w.buffer[:0], n)[:n]
	read, err := io.ReadFull(w.r, w.buffer)
	w.at += read
	if err != nil {
		return "", err
	}
	if !utf8.Valid(w.buffer) {
		return "", errors.New("a name is not UTF-8")
	}
	return string(w.buffer), nil
}

// decode reads a List into l.
func (l *listing) decode(data mem.BufferSlice) error {
	w := &wire{r: data.Reader()}
	defer w.r.Close()
	return w.fields(data.Len(), func(f field) error {
		if f.number != fieldPods {
			return nil
		}
		l.pods++
		return l.pod(w, f.end)
	})
}

func (l *listing) pod(w *wire, end int) error {
	var namespace, name string
	type part struct {
		name string
		*container
	}
	var parts []part
	err := w.fields(end, func(f field) (err error) {
		switch f.number {
		case fieldPodName:
			name, err = w.name(f)
		case fieldPodNamespace:
			namespace, err = w.name(f)
		case fieldPodContainers:
			p := part{container: &container{}}
			p.name, err = l.container(w, f.end, p.container)
			parts = append(parts, p)
		}
		return err
	})
	// The names may come after what they name.
	for _, p := range parts {
		l.add(gpu.Container{Namespace: namespace, Pod: name, Name: p.name}, p.container)
	}
	return err
}

func (l *listing) container(w *wire, end int, c *container) (name string, err error) {
	err = w.fields(end, func(f field) (err error) {
		switch f.number {
		case fieldContainerName:
			name, err = w.name(f)
		case fieldContainerDevices:
			err = l.devices(w, f, &c.hauls)
		case fieldContainerClaims:
			err = c.claim(w, f)
		}
		return err
	})
	return name, err
}

// message decodes the content of a field into a message of the kubelet's API.
func (w *wire) message(f field, m proto.Message) error {
	n := f.end - w.at
	w.buffer = slices.Grow(w.buffer[:0], n)[:n]
	read, err := io.ReadFull(w.r, w.buffer)
	w.at += read
	if err != nil {
		return err
	}
	return proto.Unmarshal(w.buffer, m)
}

// devices reads a ContainerDevices: as a rule one id, in the same message as its resource.
func (s *sieve) devices(w *wire, f field, to *hauls) error {
	var m podresources.ContainerDevices
	if err := w.message(f, &m); err != nil {
		return err
	}
	if len(m.ResourceName) > maxIDLength {
		return fmt.Errorf("a resource name of %d bytes", len(m.ResourceName))
	}
	if len(m.DeviceIds) == 0 {
		return nil
	}
	h := to.of(s.lens(m.ResourceName))
	for _, id := range m.DeviceIds {
		h.add(id)
	}
	return nil
}

// claim reads a DynamicResource. The list of a claim's CDI names grows from device to device: the device's
// own name is the key.
func (c *container) claim(w *wire, f field) error {
	var m podresources.DynamicResource
	if err := w.message(f, &m); err != nil {
		return err
	}
	for _, d := range m.ClaimResources {
		if len(d.DriverName) > maxIDLength || len(d.DeviceName) > maxIDLength {
			return fmt.Errorf("a device of claim %.64q has a name of more than %d bytes", m.ClaimName, maxIDLength)
		}
		c.devices = append(c.devices, device{
			driver: d.DriverName, name: d.DeviceName, part: d.ShareId != nil,
			claim: m.ClaimNamespace + claimPart + m.ClaimName,
		})
	}
	return nil
}

// decode reads a GetAllocatableResources into a.
func (a *allocatable) decode(data mem.BufferSlice) error {
	w := &wire{r: data.Reader()}
	defer w.r.Close()
	return w.fields(data.Len(), func(f field) error {
		if f.number != fieldAllocatable {
			return nil
		}
		return a.devices(w, f, &a.hauls)
	})
}
