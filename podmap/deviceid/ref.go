package deviceid

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// maxIDLength bounds the IDs that are parsed. The longest that any scheme writes is under 100 bytes.
const maxIDLength = 512

// naming is how a Ref names a GPU.
type naming int

const (
	byNothing    naming = iota // an unknown GPU
	byMediated                 // a mediated device of a GPU, by its own UUID
	byUUID                     // GPU by NVML UUID
	byMIG                      // MIG device by NVML UUID
	byParts                    // MIG device by GPU UUID, GPU instance and compute instance
	byMinor                    // GPU by minor number
	byMinorAndGI               // GPU instance by minor number and instance ID
	byProfile                  // MIG instance by minor, profile ID and placement
	byPCI                      // GPU by PCI address
	byAll                      // every GPU: the one device that stands for all of them
	bySole                     // the only GPU of a node that has just one
	byDetached                 // a GPU that is passed through to a virtual machine: not visible to NVML
	byIndex                    // GPU by NVML index
	byMIGIndex                 // MIG device by NVML index of the GPU, and its own there, in ci
	byNumber                   // GPU by a number that may be an index or a minor
)

// Ref is a reference to a GPU or MIG instance, in the terms of whoever wrote it. The zero Ref names nothing.
type Ref struct {
	by   naming
	uuid gpu.UUID // byUUID, byMIG, and the GPU of byParts
	// full is the UUID of a MIG device as drivers before 470 write it.
	full   gpu.UUID
	number int // minor or index
	gi, ci int
	// profile, start and size place a MIG instance.
	profile, start int
	size           gpu.Opt[int]
	pci            gpu.PCIAddress
	// Replica is true where the ID is one of several for the same GPU or instance; Base is then their common part.
	Replica bool
	Base    string
	// MaybeForeign marks an ID that is a GPU's only if the inventory has it: a PCI address under a resource name that
	// may as well be a network device's.
	MaybeForeign bool
	// Guessed marks a UUID found in a name of unknown form: it may be no GPU's at all.
	Guessed bool
	// Memory is the limit that comes with one such ID, 0 where the scheme has none.
	Memory gpu.Bytes
}

// indexRef refers to a GPU by its NVML index.
func indexRef(index int) Ref { return Ref{by: byIndex, number: index} }

func minorRef(minor int) Ref { return Ref{by: byMinor, number: minor} }

// cutNumber splits "head<sep>digits" at the last sep. The number must be plain decimal.
func cutNumber(id, sep string) (head string, number int, ok bool) {
	i := strings.LastIndex(id, sep)
	if i < 0 {
		return "", 0, false
	}
	number, ok = decimal(id[i+len(sep):])
	return id[:i], number, ok
}

// decimal parses a plain decimal number of at most nine digits: no sign, no space, no leading zeros.
func decimal(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0 && n < 1e9 && strconv.Itoa(n) == s
}

const uuidPattern = `[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`

var gpuLike = regexp.MustCompile(`^(?:GPU|MIG|MIG-GPU)-` + uuidPattern)

// isUUID reports whether all of s is a UUID of NVML, as uuidPattern has it: every ID is asked at every poll.
func isUUID(s string) bool {
	const form = "00000000-0000-0000-0000-000000000000"
	if len(s) != len(form) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		hex := '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
		if form[i] == '-' && c != '-' || form[i] == '0' && !hex {
			return false
		}
	}
	return true
}

// ParseNVML parses the names that NVML uses: GPU-<uuid>, MIG-<uuid>, and MIG-GPU-<uuid>/<gi>/<ci> of drivers before
// 470. The "-0" that some plugins append must not pass for part of a UUID.
func ParseNVML(id string) (Ref, bool) {
	kind, rest, _ := strings.Cut(id, "-")
	switch {
	case kind == "GPU" && isUUID(rest):
		return Ref{by: byUUID, uuid: gpu.UUID(id)}, true
	case kind != "MIG":
		return Ref{}, false
	case isUUID(rest):
		return Ref{by: byMIG, uuid: gpu.UUID(id)}, true
	}
	parent, instances, _ := strings.Cut(rest, "/")
	uuid, ok := strings.CutPrefix(parent, "GPU-")
	if !ok || !isUUID(uuid) {
		return Ref{}, false
	}
	first, second, _ := strings.Cut(instances, "/")
	gi, okGI := decimal(first)
	ci, okCI := decimal(second)
	return Ref{by: byParts, uuid: gpu.UUID(parent), full: gpu.UUID(id), gi: gi, ci: ci}, okGI && okCI
}

// parseReplica parses an ID that is an NVML name, sep, and the number of a replica.
func parseReplica(id, sep string) (Ref, bool) {
	head, _, ok := cutNumber(id, sep)
	if !ok {
		return Ref{}, false
	}
	r, ok := ParseNVML(head)
	r.Replica, r.Base = true, head
	return r, ok
}

// parseUUIDReplica is parseReplica for schemes that only have whole GPUs.
func parseUUIDReplica(id, sep string) (Ref, bool) {
	r, ok := parseReplica(id, sep)
	return r, ok && r.by == byUUID
}

// parseMinor parses nvidia<minor>[/gi<g>][/vgpu<k>], the device names of GKE.
func parseMinor(id string) (Ref, bool) {
	rest, ok := strings.CutPrefix(id, "nvidia")
	if !ok {
		return Ref{}, false
	}
	r := Ref{by: byMinor}
	if head, _, ok := cutNumber(rest, "/vgpu"); ok {
		rest, r.Replica, r.Base = head, true, "nvidia"+head
	}
	if head, gi, ok := cutNumber(rest, "/gi"); ok {
		rest, r.by, r.gi = head, byMinorAndGI, gi
	}
	r.number, ok = decimal(rest)
	return r, ok
}

// ParsePCI parses a PCI address in the full Linux spelling, nothing shorter: "0000:41:00.0".
func ParsePCI(id string) (Ref, bool) {
	if len(id) < len("0000:41:00.0") || len(id) > len("00000000:41:00.0") || strings.Count(id, ":") != 2 ||
		!strings.Contains(id, ".") {
		return Ref{}, false
	}
	address, err := gpu.ParsePCIAddress(id)
	if err != nil {
		return Ref{}, false
	}
	return Ref{by: byPCI, pci: address}, true
}

// parseIndex parses an NVML index, "1", or the index of a MIG device on its GPU, "0:1".
func parseIndex(text string) (Ref, bool) {
	dev, mig, isMIG := strings.Cut(text, ":")
	index, ok := decimal(dev)
	if !ok {
		return Ref{}, false
	}
	r := indexRef(index)
	if isMIG {
		r.by = byMIGIndex
		r.ci, ok = decimal(mig)
	}
	return r, ok
}

// parseIndices parses a list of plain numbers, "0,1".
func parseIndices(text string) []Ref {
	var out []Ref
	for field := range strings.SplitSeq(text, ",") {
		n, ok := decimal(strings.TrimSpace(field))
		if !ok || len(out) >= maxRefs {
			return nil
		}
		out = append(out, indexRef(n))
	}
	return out
}

// maxRefs bounds the GPUs of one allocation.
const maxRefs = 256

// looksLikeGPU reports whether an ID has the form of a GPU's name, under whatever resource.
func looksLikeGPU(id string) bool {
	_, minor := parseMinor(id)
	return len(id) <= maxIDLength && (minor || gpuLike.MatchString(id))
}

var alphanumeric = regexp.MustCompile(`[0-9A-Za-z]+|[^ -~]`)

// Shape replaces the numbers and hexadecimal runs of an ID by "#", so that a thousand unknown IDs of one form are one
// line in the log.
func Shape(id string) string {
	const longest = 80
	s := alphanumeric.ReplaceAllStringFunc(id[:min(len(id), 2*longest)], func(run string) string {
		switch {
		case run[0] < '0' || run[0] > 'z':
			return strings.Repeat("?", len(run))
		case strings.ContainsAny(run, "0123456789"), len(run) >= 4 && strings.Trim(run, "abcdefABCDEF") == "":
			return "#"
		}
		return run
	})
	return s[:min(len(s), longest)]
}
