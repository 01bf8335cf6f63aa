package podmap

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
	"syscall"

	"google.golang.org/protobuf/proto"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// The kubelet keeps what it handed out in a file of its own, so that it can go on after a restart: per pod UID,
// container and resource the ids, and the plugin's raw answer, which says what the container really gets. A
// scheme that invents its ids cannot invent that. The file is no stable interface, and the entries of dead pods
// linger in it; an entry is therefore believed only beside a holder that the kubelet lists now.

const (
	// mostCheckpointBytes bounds what is read of a checkpoint.
	mostCheckpointBytes = 64 << 20
	// mostValueBytes bounds one value in it: the longest is a plugin's answer, of some kilobytes.
	mostValueBytes = 1 << 20
	// mostIDs bounds the ids of one entry: a container has at most one per MiB of a node's GPUs.
	mostIDs = 1 << 20
	// mostAllotments bounds the entries that are kept.
	mostAllotments = 1 << 16
	// longestValue bounds one environment variable or annotation that is kept, longestValues all of one container
	// or pod.
	longestValue  = 16 << 10
	longestValues = 64 << 10
	// mostNames bounds the device nodes, CDI names and mounts of one entry.
	mostNames = 256
)

// idSet stands for a set of device ids: equal sets are equal, and it is small however many there are.
type idSet struct {
	sum   uint64
	count int
}

// newIDSet makes a set of the hashes of ids. It sorts and shortens what it is given.
func newIDSet(hashes []uint64) idSet {
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	s := idSet{count: len(hashes)}
	for _, h := range hashes {
		s.sum ^= h
	}
	return s
}

// hashID is the hash by which an id is compared; one too long to be an id is compared by its beginning.
func hashID(seed maphash.Seed, id string) uint64 {
	if len(id) > maxIDLength {
		id = id[:maxIDLength+1]
	}
	return maphash.String(seed, id)
}

// allotment is one entry: what one container got for one resource. It is never changed once it is read.
type allotment struct {
	uid, container, resource string
	ids                      idSet
	// What the plugin answered, as far as a scheme can make use of it.
	env         map[string]string
	annotations map[string]string
	nodes       []string // device nodes, as the host calls them
	cdi         []string // qualified CDI names
	volumes     []string // names that the container runtime reads from mounts
	beside      *beside
}

// beside counts the ids that one container holds, per resource: amounts stand beside devices.
type beside struct{ devices map[string]int }

// allotments is a checkpoint that was read. It is immutable.
type allotments struct {
	entries map[allotmentKey][]*allotment
	// unread counts the entries of which the plugin's answer could not be decoded.
	unread int
}

// allotmentKey is by what an entry is found: PodResources has no pod UID.
type allotmentKey struct {
	container, resource string
	ids                 idSet
}

// readCheckpoint reads a kubelet's device checkpoint, which is whole or an error.
func readCheckpoint(r io.Reader, seed maphash.Seed) (*allotments, error) {
	limited := &io.LimitedReader{R: r, N: mostCheckpointBytes + 1}
	s := newJSONStream(limited, mostValueBytes)
	out := &allotments{entries: map[allotmentKey][]*allotment{}}
	held := map[[2]string]*beside{}
	kept, found := 0, false
	err := s.object(func(key string) error {
		if key != "Data" {
			return s.skip()
		}
		return s.object(func(key string) error {
			if key != "PodDeviceEntries" {
				return s.skip()
			}
			found = true
			return s.array(func() error {
				a, decoded, err := s.allotment(seed)
				if err != nil || a.uid == "" || a.container == "" || a.resource == "" {
					return err
				}
				if kept++; kept > mostAllotments {
					return fmt.Errorf("more than %d entries", mostAllotments)
				}
				if !decoded {
					out.unread++
				}
				place := [2]string{a.uid, a.container}
				if held[place] == nil {
					held[place] = &beside{map[string]int{}}
				}
				a.beside = held[place]
				a.beside.devices[a.resource] = a.ids.count
				k := allotmentKey{a.container, a.resource, a.ids}
				out.entries[k] = append(out.entries[k], a)
				return nil
			})
		})
	})
	switch {
	case limited.N <= 0:
		return nil, fmt.Errorf("larger than %d MiB", mostCheckpointBytes>>20)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("it ends in the middle")
	case err != nil:
		return nil, err
	case !found:
		return nil, errors.New("it has no device entries: not a kubelet's device checkpoint")
	}
	return out, nil
}

// allotment reads one entry. Decoded is false where the plugin's answer is there and makes no sense.
func (s jsonStream) allotment(seed maphash.Seed) (a *allotment, decoded bool, err error) {
	a, decoded = &allotment{}, true
	err = s.object(func(key string) error {
		var err error
		switch key {
		case "PodUID":
			a.uid, err = s.name()
		case "ContainerName":
			a.container, err = s.name()
		case "ResourceName":
			a.resource, err = s.name()
		case "DeviceIDs":
			a.ids, err = s.ids(seed)
		case "AllocResp":
			var text string
			if text, err = s.text(); err == nil {
				decoded = a.answer(text)
			}
		default:
			err = s.skip()
		}
		return err
	})
	return a, decoded, err
}

// ids reads the ids of an entry: a list per NUMA node, or in the form of kubelets before 1.20 one list.
func (s jsonStream) ids(seed maphash.Seed) (idSet, error) {
	var hashes []uint64
	list := func() error {
		id, err := s.text()
		if hashes = append(hashes, hashID(seed, id)); len(hashes) > mostIDs {
			return fmt.Errorf("more than %d ids in one entry", mostIDs)
		}
		return err
	}
	err := s.value(
		func(string) error { return s.array(list) },
		list,
	)
	return newIDSet(hashes), err
}

// answer reads a plugin's answer to the kubelet, and reports whether it could.
func (a *allotment) answer(text string) bool {
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
	a.env = keep(m.Envs, wantedEnv)
	a.annotations = keep(m.Annotations, wantedContainerAnnotation)
	for _, d := range m.Devices {
		a.nodes = keepName(a.nodes, d.GetHostPath())
	}
	for _, d := range m.CdiDevices {
		a.cdi = keepName(a.cdi, d.GetName())
	}
	for _, v := range m.Mounts {
		if name, ok := strings.CutPrefix(v.GetContainerPath(), volumeDevices+"/"); ok {
			a.volumes = keepName(a.volumes, name)
		}
	}
	return true
}

func keepName(names []string, name string) []string {
	if name == "" || len(name) > maxIDLength || len(names) >= mostNames {
		return names
	}
	return append(names, strings.Clone(name))
}

// keep copies what is wanted. What comes to more than anybody writes is not kept at all: of a half, one thing
// would be taken for another.
func keep(all map[string]string, wanted func(string) bool) map[string]string {
	var out map[string]string
	size := 0
	for k, v := range all {
		if !wanted(k) || len(k) > maxIDLength || len(v) > longestValue {
			continue
		}
		if size += len(k) + len(v); size > longestValues || len(out) >= mostNames {
			return nil
		}
		if out == nil {
			out = map[string]string{}
		}
		out[strings.Clone(k)] = strings.Clone(v)
	}
	return out
}

// wantedEnv tells which variables some scheme reads. The others may be secrets, and are not kept.
func wantedEnv(name string) bool {
	for _, prefix := range []string{"NVIDIA_VISIBLE_DEVICES", "ALIYUN_COM_GPU_", "VOLCANO_GPU_", "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT",
		"CUDA_MEM_LIMIT", "CUDA_CORE_LIMIT", "MANAGER_VISIBLE_DEVICE", "CUDA_MPS_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// wantedContainerAnnotation tells the same of what a plugin has the container annotated with.
func wantedContainerAnnotation(name string) bool {
	return strings.HasPrefix(name, "cdi.k8s.io/") || strings.HasPrefix(name, tencentVCUDA)
}

// fileState tells one state of a file from the next.
type fileState struct {
	socketFile
	size     int64
	modified int64
}

// errUnchanged says that a file is what it was.
var errUnchanged = errors.New("unchanged")

// readChanged opens a file and has it read, unless it is as it was. The state is that of what was read.
func readChanged(path string, before fileState, read func(io.Reader) error) (fileState, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileState{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fileState{}, err
	}
	if !info.Mode().IsRegular() {
		return fileState{}, fmt.Errorf("%s is not a file", path)
	}
	now := fileState{size: info.Size(), modified: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		now.socketFile = socketFile{device: stat.Dev, inode: stat.Ino, changed: stat.Ctim}
	}
	if now == before {
		return now, errUnchanged
	}
	return now, read(f)
}

// elasticLink is the name of a device node that is a link made for one container.
var elasticLink = regexp.MustCompile(`^/dev/(elastic-gpu-[0-9a-f]{8}-[0-9]{1,3})$`)

// followed returns the entry with the links among its device nodes replaced by where they lead: the agent that
// makes them does so between the answer and the start of the container. Dev is the folder of the host's nodes.
func (a *allotment) followed(dev string) *allotment {
	if !slices.ContainsFunc(a.nodes, elasticLink.MatchString) {
		return a
	}
	b := *a
	b.nodes = nil
	for _, node := range a.nodes {
		if m := elasticLink.FindStringSubmatch(node); m != nil {
			to, err := os.Readlink(filepath.Join(dev, m[1]))
			if err != nil {
				continue
			}
			node = to
		}
		b.nodes = append(b.nodes, node)
	}
	return &b
}
