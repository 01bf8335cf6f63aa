package source

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Fraction is a container that NVIDIA's GPU fractioning operator created: what its agents recorded on the node.
type Fraction struct {
	gpu.PodName
	UID       string
	Container string // empty: its name is not recorded
	UUIDs     []string
	Minors    []int // minor numbers; UnknownMinor is a GPU whose number is not certain
	MiB       int64 // limit of the memory; 0 without
	Percent   int   // limit of the threads of its MPS namespace; 0 without
}

// Fractions are the fractional containers of the node. It is immutable.
type Fractions struct {
	List []Fraction
	// Partial means that some records could not be decoded.
	Partial bool
}

// UnknownMinor is no minor number.
const UnknownMinor = -1

const (
	fractionSchema = 1
	// maxFractions bounds the records that are read, maxFraction the size of one in bytes, maxLeases that of all leases.
	maxFractions, maxFraction, maxLeases = 4096, 64 << 10, 4 << 20
)

// NewFractions returns the records of the GPU fractioning operator in a directory, with the MPS namespaces in a file
// and the containers' names in the directory of their logs; either may be missing. The formats are those of
// kai-scheduler/gpu-fractioning: fractioning-manager/common/mapping/fsstore/record.go at c449eff,
// common/mapping/store/container_store.go at 5440d2c (of kai-gpu-fractioning, its name before), and
// mpsd/internal/mpsns/state.go at ad0bc57.
func NewFractions(dir, leases, logs string, o Options) *File[Fractions] {
	f := newFile[Fractions](o, dir, gpu.SourceFractions, "GPU fractioning map", nil)
	f.load = func() (*Fractions, int, error) { return readFractions(dir, leases, logs) }
	return f
}

func readFractions(dir, leases, logs string) (*Fractions, int, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &Fractions{}, 0, nil // the operator is not installed, or has created no container yet
	}
	if err != nil {
		return nil, 0, err
	}
	if len(files) > maxFractions {
		return nil, 0, fmt.Errorf("%s has more than %d files", dir, maxFractions)
	}
	caps := readLeases(leases)
	names := map[string]string{} // of containers, by pod, namespace and ID
	links, _ := os.ReadDir(logs)
	for _, l := range links {
		if parts := strings.SplitN(strings.TrimSuffix(l.Name(), ".log"), "_", 3); len(parts) == 3 {
			if at := strings.LastIndexByte(parts[2], '-'); at > 0 {
				names[parts[0]+"_"+parts[1]+"_"+parts[2][at+1:]] = parts[2][:at]
			}
		}
	}
	var out Fractions
	undecoded := 0
	for _, file := range files {
		id, isRecord := strings.CutSuffix(file.Name(), ".json")
		if !isRecord {
			continue
		}
		var r struct {
			SchemaVersion          int
			Pod, Namespace, PodUID string
			GPUDevices             []fractionDevice
			RequestedMemoryMiB     int64
		}
		switch err := readJSON(filepath.Join(dir, file.Name()), maxFraction, &r); {
		case errors.Is(err, fs.ErrNotExist):
			continue // removed meanwhile
		case err != nil || r.SchemaVersion != fractionSchema || r.Pod == "" || r.Namespace == "":
			undecoded++
			continue
		}
		lease := caps[id]
		f := Fraction{PodName: gpu.PodName{Namespace: r.Namespace, Pod: r.Pod}, UID: r.PodUID, MiB: r.RequestedMemoryMiB,
			Container: names[r.Pod+"_"+r.Namespace+"_"+id], Percent: lease.ActiveThreadPercent}
		for _, d := range r.GPUDevices {
			if d.UUID != "" {
				f.UUIDs = append(f.UUIDs, d.UUID)
				continue
			}
			f.Minors = append(f.Minors, d.minor())
		}
		if len(r.GPUDevices) == 0 {
			f.UUIDs = lease.GPUUUIDs
		}
		out.List = append(out.List, f)
	}
	gpu.Sort(out.List, func(a, b Fraction) int {
		return cmp.Or(a.Compare(b.PodName), cmp.Compare(a.Container, b.Container))
	})
	out.Partial = undecoded > 0
	return &out, undecoded, nil
}

type fractionDevice struct {
	Index, MinorNumber *int
	UUID               string
}

// minor returns the minor number of a device. Versions of the operator before minorNumber wrote it as index; later ones
// write minorNumber and leave index 0 (fractiond/internal/gpudevices at c449eff). No version is known to write an index
// beside minorNumber 0: that may be either GPU.
func (d *fractionDevice) minor() int {
	switch n, index := d.MinorNumber, d.Index; {
	case n == nil && index != nil:
		return max(*index, UnknownMinor)
	case n != nil && (*n > 0 || *n == 0 && (index == nil || *index == 0)):
		return *n
	}
	return UnknownMinor
}

// lease is the MPS namespace of one container.
type lease struct {
	ContainerID         string
	ActiveThreadPercent int
	GPUUUIDs            []string
	ReleasedAt          *string
}

// readLeases reads the namespaces in use by container ID. Without the file there are no limits.
func readLeases(path string) map[string]lease {
	var state struct{ Leases []lease }
	out := map[string]lease{}
	if path == "" || readJSON(path, maxLeases, &state) != nil {
		return out
	}
	for _, l := range state.Leases {
		if l.ReleasedAt == nil && l.ActiveThreadPercent > 0 && l.ActiveThreadPercent <= 100 {
			out[l.ContainerID] = l
		}
	}
	return out
}

func readJSON(path string, limit int64, to any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewDecoder(io.LimitReader(f, limit)).Decode(to)
}
