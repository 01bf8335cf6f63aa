package deviceid

import (
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// maxIDLength bounds the IDs that are parsed. The longest that any scheme writes is under 100 bytes.
const maxIDLength = 512

// uuidLength is the length of 8-4-4-4-12 hexadecimal digits with their dashes.
const uuidLength = 36

// naming is how a Ref names a GPU.
type naming int

const (
	byNothing    naming = iota // no GPU that the inventory could have: an mdev, or an unknown GPU
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
	if s == "" || len(s) > 9 || (len(s) > 1 && s[0] == '0') {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

// isUUID reports whether s is 8-4-4-4-12 hexadecimal digits. The "-0" that some plugins append must not pass for part
// of a UUID.
func isUUID(s string) bool {
	if len(s) != uuidLength {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
		default:
			return false
		}
	}
	return true
}

// prefixedUUID reports whether s is prefix and a UUID, and nothing else.
func prefixedUUID(s, prefix string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	return ok && isUUID(rest)
}

// ParseNVML parses the names that NVML uses: GPU-<uuid>, MIG-<uuid>, and MIG-GPU-<uuid>/<gi>/<ci> of drivers before 470.
func ParseNVML(id string) (Ref, bool) {
	if rest, ok := strings.CutPrefix(id, "MIG-GPU-"); ok {
		uuid, place, ok := strings.Cut(rest, "/")
		if !ok || !isUUID(uuid) {
			return Ref{}, false
		}
		g, c, ok := strings.Cut(place, "/")
		gi, okG := decimal(g)
		ci, okC := decimal(c)
		if !ok || !okG || !okC {
			return Ref{}, false
		}
		return Ref{by: byParts, uuid: gpu.UUID("GPU-" + uuid), full: gpu.UUID(id), gi: gi, ci: ci}, true
	}
	switch {
	case prefixedUUID(id, "MIG-"):
		return Ref{by: byMIG, uuid: gpu.UUID(id)}, true
	case prefixedUUID(id, "GPU-"):
		return Ref{by: byUUID, uuid: gpu.UUID(id)}, true
	}
	return Ref{}, false
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

// parsePCI parses a PCI address in the full Linux spelling, nothing shorter: "0000:41:00.0".
func parsePCI(id string) (Ref, bool) {
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
func parseIndices(text string) ([]Ref, bool) {
	var out []Ref
	for field := range strings.SplitSeq(text, ",") {
		n, ok := decimal(strings.TrimSpace(field))
		if !ok || len(out) >= maxRefs {
			return nil, false
		}
		out = append(out, indexRef(n))
	}
	return out, true
}

// maxRefs bounds the GPUs of one allocation.
const maxRefs = 256

// looksLikeGPU reports whether an ID has the form of a GPU's name, under whatever resource.
func looksLikeGPU(id string) bool {
	if len(id) > maxIDLength {
		return false
	}
	for _, prefix := range []string{"GPU-", "MIG-GPU-", "MIG-"} {
		if rest, ok := strings.CutPrefix(id, prefix); ok && len(rest) >= uuidLength && isUUID(rest[:uuidLength]) {
			return true
		}
	}
	_, ok := parseMinor(id)
	return ok
}

// Shape replaces the numbers and hexadecimal runs of an ID by "#", so that a thousand unknown IDs of one form are one
// line in the log.
func Shape(id string) string {
	const longest = 80
	var b strings.Builder
	for i := 0; i < len(id) && b.Len() < longest; {
		j := i
		digit, hex := false, true
		for j < len(id) && isAlphanumeric(id[j]) {
			c := id[j] | 0x20 // lower case of a letter, itself for a digit
			digit = digit || c <= '9'
			hex = hex && (c <= '9' || c <= 'f')
			j++
		}
		switch {
		case j == i:
			c := id[i]
			if c < ' ' || c >= 0x7f {
				c = '?'
			}
			b.WriteByte(c)
			j++
		case digit || (hex && j-i >= 4):
			b.WriteByte('#')
		default:
			b.WriteString(id[i:min(j, i+longest)])
		}
		i = j
	}
	return b.String()
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
