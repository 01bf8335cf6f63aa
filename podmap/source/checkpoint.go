package source

import (
	"encoding/base64"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// maxCheckpoint bounds what is read of a checkpoint, in bytes.
	maxCheckpoint = 64 << 20
	// maxValue bounds one value in it: the longest is a plugin's response, of some kilobytes.
	maxValue = 1 << 20
	// maxIDs bounds the IDs of one entry: a container has at most one per MiB of a node's GPUs.
	maxIDs = 1 << 20
	// maxEntries bounds the entries that are kept.
	maxEntries = 1 << 16
	// maxText bounds one environment variable or annotation that is kept, maxTexts all of one container or pod.
	maxText  = 16 << 10
	maxTexts = 64 << 10
	// maxItems bounds the device nodes, CDI names, mounts, variables and annotations of one entry.
	maxItems = 256
	// volumeDevices is where the container runtime looks for device names that are given as mounts.
	volumeDevices = "/var/run/nvidia-container-devices"
)

// Response is what a plugin returned to the kubelet for one container and resource, as far as it is kept.
type Response struct {
	Env         map[string]string
	Annotations map[string]string // of the container
	Nodes       []string          // device nodes, with the paths of the host
	CDI         []string          // qualified CDI names
	Mounts      []string          // device names that the container runtime reads from mounts
}

// Entry is one entry of the kubelet's checkpoint: what one container has of one resource. It is immutable.
type Entry struct {
	UID string // of the pod
	EntryKey
	Response
}

// EntryKey is what PodResources lists too: it has no pod UID.
type EntryKey struct {
	Container, Resource string
	IDs                 IDSet
}

// Checkpoint is the kubelet's device checkpoint: a file in which the kubelet keeps, per pod UID, container and
// resource, the device IDs and the plugin's response, which has what the container really gets. It is no stable
// interface, and the entries of deleted pods remain in it: an entry counts only for an allocation that the kubelet
// lists now.
type Checkpoint struct {
	Entries   map[EntryKey][]*Entry
	undecoded int
}

// Of returns the entries of a key; none of a nil checkpoint.
func (c *Checkpoint) Of(key EntryKey) []*Entry {
	if c == nil {
		return nil
	}
	return c.Entries[key]
}

// Keep selects what is kept of a plugin's response: other variables may be secrets.
type Keep struct{ Env, Annotation func(name string) bool }

// NewCheckpoint returns the kubelet's device checkpoint at path. IDs are hashed with seed.
func NewCheckpoint(path string, seed maphash.Seed, keep Keep, o Options) *File[Checkpoint] {
	return newFile(o, path, gpu.SourceCheckpoint, "kubelet device checkpoint", func(r io.Reader) (*Checkpoint, int, error) {
		c, err := readCheckpoint(r, seed, keep)
		if err != nil {
			return nil, 0, err
		}
		return c, c.undecoded, nil
	})
}

// readCheckpoint decodes a checkpoint, as a whole or not at all.
func readCheckpoint(r io.Reader, seed maphash.Seed, keep Keep) (*Checkpoint, error) {
	limited := &io.LimitedReader{R: r, N: maxCheckpoint + 1}
	s := newJSONStream(limited, maxValue)
	out := &Checkpoint{Entries: map[EntryKey][]*Entry{}}
	kept, found := 0, false
	entry := func() error {
		e, decoded, err := s.entry(seed, keep)
		if err != nil || e.UID == "" || e.Container == "" || e.Resource == "" {
			return err
		}
		if kept++; kept > maxEntries {
			return fmt.Errorf("more than %d entries", maxEntries)
		}
		if !decoded {
			out.undecoded++
		}
		out.Entries[e.EntryKey] = append(out.Entries[e.EntryKey], e)
		return nil
	}
	err := s.object(fields{"Data": func() error {
		return s.object(fields{"PodDeviceEntries": func() error {
			found = true
			return s.array(entry)
		}})
	}})
	switch {
	case limited.N <= 0:
		return nil, fmt.Errorf("larger than %d MiB", maxCheckpoint>>20)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("truncated")
	case err != nil:
		return nil, err
	case !found:
		return nil, errors.New("no device entries: not a kubelet's device checkpoint")
	}
	return out, nil
}

// entry reads one entry. Decoded is false where the plugin's response is there but cannot be decoded.
func (s jsonStream) entry(seed maphash.Seed, keep Keep) (e *Entry, decoded bool, err error) {
	e, decoded = &Entry{}, true
	err = s.object(fields{
		"PodUID": s.name(&e.UID), "ContainerName": s.name(&e.Container), "ResourceName": s.name(&e.Resource),
		"DeviceIDs": func() (err error) {
			e.IDs, err = s.ids(seed)
			return err
		},
		"AllocResp": func() error {
			text, err := s.text()
			decoded = e.decode(text, keep)
			return err
		},
	})
	return e, decoded, err
}

// ids reads the IDs of an entry: a list per NUMA node, or with kubelets before 1.20 one list.
func (s jsonStream) ids(seed maphash.Seed) (IDSet, error) {
	var hashes []uint64
	list := func() error {
		id, err := s.text()
		if hashes = append(hashes, Hash(seed, id)); len(hashes) > maxIDs {
			return fmt.Errorf("more than %d IDs in one entry", maxIDs)
		}
		return err
	}
	err := s.value(func(string) error { return s.array(list) }, list)
	return NewIDSet(hashes), err
}

// decode reads a plugin's response to the kubelet, and reports whether it could.
func (e *Entry) decode(text string, keep Keep) bool {
	if text == "" {
		return true
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	var m deviceplugin.ContainerAllocateResponse
	if err := proto.Unmarshal(raw, &m); err != nil {
		return false
	}
	e.Env = keepTexts(m.Envs, keep.Env)
	e.Annotations = keepTexts(m.Annotations, keep.Annotation)
	for _, d := range m.Devices {
		e.Nodes = keepName(e.Nodes, d.GetHostPath())
	}
	for _, d := range m.CdiDevices {
		e.CDI = keepName(e.CDI, d.GetName())
	}
	for _, v := range m.Mounts {
		if name, ok := strings.CutPrefix(v.GetContainerPath(), volumeDevices+"/"); ok {
			e.Mounts = keepName(e.Mounts, name)
		}
	}
	return true
}

func keepName(names []string, name string) []string {
	if name == "" || len(name) > maxName || len(names) >= maxItems {
		return names
	}
	return append(names, strings.Clone(name))
}

// keepTexts copies what is wanted. More than maxTexts is not kept at all: a part could be misread.
func keepTexts(all map[string]string, wanted func(string) bool) map[string]string {
	var out map[string]string
	size := 0
	for k, v := range all {
		if !wanted(k) || len(k) > maxName || len(v) > maxText {
			continue
		}
		if size += len(k) + len(v); size > maxTexts || len(out) >= maxItems {
			return nil
		}
		if out == nil {
			out = map[string]string{}
		}
		out[strings.Clone(k)] = strings.Clone(v)
	}
	return out
}

// elasticLink is the name of a device node that is a link for one container, of the scheme elastic-gpu.
var elasticLink = regexp.MustCompile(`^/dev/(elastic-gpu-[0-9a-f]{8}-[0-9]{1,3})$`)

// Followed returns the entry with the links among its device nodes replaced by their targets: the agent that creates
// them does so between the response and the start of the container. Dev is the directory of the host's device nodes.
func (e *Entry) Followed(dev string) *Entry {
	if !slices.ContainsFunc(e.Nodes, elasticLink.MatchString) {
		return e
	}
	out := *e
	out.Nodes = nil
	for _, node := range e.Nodes {
		if m := elasticLink.FindStringSubmatch(node); m != nil {
			target, err := os.Readlink(filepath.Join(dev, m[1]))
			if err != nil {
				continue
			}
			node = target
		}
		out.Nodes = append(out.Nodes, node)
	}
	return &out
}
