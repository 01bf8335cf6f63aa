package podmap

import (
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// maxIDLength bounds the ids that are looked at. The longest that any scheme writes is under 100 bytes.
const maxIDLength = 512

// uuidLength is the length of 8-4-4-4-12 hexadecimal digits with their dashes.
const uuidLength = 36

// naming is the way in which an id names a GPU.
type naming int

const (
	byNothing  naming = iota // the id is honest and names nothing that the inventory could know: an mdev
	byUUID                   // GPU by NVML UUID
	byMIG                    // MIG device by NVML UUID
	byParts                  // MIG device by GPU UUID, GPU instance and compute instance
	byMinor                  // GPU by minor number, and GPU instance where gi is not negative
	byProfile                // MIG instance by minor, profile id and placement
	byPCI                    // GPU by PCI address
	byAll                    // every GPU: the one device that stands for all of them
	bySole                   // the only GPU of a machine that has but one
	byDetached               // a GPU that was given away to a virtual machine: no GPU of NVML's
	byIndex                  // GPU by NVML index, in minor
	byMIGIndex               // MIG device by NVML index of the GPU, in minor, and its own there, in ci
	byNumber                 // GPU by a number of which it is not known whether it is an index or a minor
)

// ref is what one device id says. The zero ref names nothing.
type ref struct {
	by   naming
	uuid gpu.UUID // byUUID, byMIG, and the GPU of byParts
	// full is the whole name of a MIG device in the old spelling: what old drivers call its UUID.
	full  gpu.UUID
	minor int
	// gi and ci are ids of instances, -1 where the id names none.
	gi, ci int
	// profile, start and size place a MIG instance; size is -1 where the id does not tell.
	profile, start, size int
	pci                  gpu.PCIAddress
	// replica is true where the id is one of several for the same GPU or instance; base is then what
	// they have in common.
	replica bool
	base    string
	// perhapsForeign marks an id that is a GPU's only if the inventory knows it: a PCI address under a
	// resource name that may as well be a network GPU's.
	perhapsForeign bool
	// memory is what one such id grants, 0 where the scheme grants no memory.
	memory gpu.Bytes
}

// cutNumber splits "head<sep>digits" at the last sep. The number has to be plain decimal.
func cutNumber(id, sep string) (head string, number int, ok bool) {
	i := strings.LastIndex(id, sep)
	if i < 0 {
		return "", 0, false
	}
	number, ok = decimal(id[i+len(sep):])
	return id[:i], number, ok
}

// decimal reads a plain decimal number of at most nine digits: no sign, no space, no leading zeros.
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

// isUUID reports whether s is 8-4-4-4-12 hexadecimal digits. The characters are counted: the "-0" that
// some plugins append is easily mistaken for part of a UUID.
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

// readNVML reads the names that NVML gives: GPU-<uuid>, MIG-<uuid>, and MIG-GPU-<uuid>/<gi>/<ci> of
// drivers before 470. The longest form is tried first.
func readNVML(id string) (ref, bool) {
	if rest, ok := strings.CutPrefix(id, "MIG-GPU-"); ok {
		uuid, place, ok := strings.Cut(rest, "/")
		if !ok || !isUUID(uuid) {
			return ref{}, false
		}
		g, c, ok := strings.Cut(place, "/")
		gi, okG := decimal(g)
		ci, okC := decimal(c)
		if !ok || !okG || !okC {
			return ref{}, false
		}
		return ref{by: byParts, uuid: gpu.UUID("GPU-" + uuid), full: gpu.UUID(id), gi: gi, ci: ci}, true
	}
	switch {
	case prefixedUUID(id, "MIG-"):
		return ref{by: byMIG, uuid: gpu.UUID(id), gi: -1, ci: -1}, true
	case prefixedUUID(id, "GPU-"):
		return ref{by: byUUID, uuid: gpu.UUID(id), gi: -1, ci: -1}, true
	}
	return ref{}, false
}

// readReplica reads an id of which the part before sep is an NVML name and the part behind it the number
// of a replica.
func readReplica(id, sep string) (ref, bool) {
	head, _, ok := cutNumber(id, sep)
	if !ok {
		return ref{}, false
	}
	r, ok := readNVML(head)
	r.replica, r.base = true, head
	return r, ok
}

// readUUIDReplica is readReplica for the schemes that know whole GPUs alone.
func readUUIDReplica(id, sep string) (ref, bool) {
	r, ok := readReplica(id, sep)
	return r, ok && r.by == byUUID
}

// readPCI reads a PCI address in the full Linux spelling, nothing shorter: "0000:41:00.0".
func readPCI(id string) (ref, bool) {
	if len(id) < len("0000:41:00.0") || len(id) > len("00000000:41:00.0") || strings.Count(id, ":") != 2 || !strings.Contains(id, ".") {
		return ref{}, false
	}
	address, err := gpu.ParsePCIAddress(id)
	if err != nil {
		return ref{}, false
	}
	return ref{by: byPCI, pci: address, gi: -1, ci: -1}, true
}

// namesGPU reports whether an id looks like the name of a GPU, whoever may have written it.
func namesGPU(id string) bool {
	if len(id) > maxIDLength {
		return false
	}
	for _, prefix := range []string{"GPU-", "MIG-GPU-", "MIG-"} {
		if rest, ok := strings.CutPrefix(id, prefix); ok && len(rest) >= uuidLength && isUUID(rest[:uuidLength]) {
			return true
		}
	}
	_, ok := readMinor(id)
	return ok
}

// shapeOf describes an id of an unknown kind without its particulars, so that a thousand ids of one kind
// are one line in the log: words stay, numbers and hexadecimal runs become "#".
func shapeOf(id string) string {
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
