package kmsg

import (
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// xidLine is an XID of the kernel log.
type xidLine struct {
	pci gpu.PCIAddress
	xid int
	// uptime is the kernel's clock at the line, since boot; absent where the line has no record header.
	uptime gpu.Opt[time.Duration]
}

// parseRecord reads one line of /dev/kmsg, "4,1234,567890123,-;NVRM: Xid (PCI:0000:18:00): 79, …": syslog
// priority, sequence number, microseconds since boot and flags, then the text. It returns false for a line that
// is no XID of a GPU, and for one that a program wrote: only the kernel's own lines count. A line without the header is
// read as text.
func parseRecord(line string) (xidLine, bool) {
	text := line
	var uptime gpu.Opt[time.Duration]
	if header, rest, ok := strings.Cut(line, ";"); ok {
		fields := strings.Split(header, ",")
		if len(fields) >= 3 {
			priority, err1 := strconv.ParseUint(fields[0], 10, 32)
			micros, err2 := strconv.ParseInt(fields[2], 10, 64)
			if err1 == nil && err2 == nil {
				const facility = 3 // the bits above are who wrote; 0 is the kernel
				if priority>>facility != 0 || micros < 0 || micros > int64(maxUptime/time.Microsecond) {
					return xidLine{}, false
				}
				uptime = gpu.Some(time.Duration(micros) * time.Microsecond)
				text = rest
			}
		}
	}
	pci, xid, ok := parseXID(text)
	return xidLine{pci: pci, xid: xid, uptime: uptime}, ok
}

// maxUptime keeps the kernel's clock within what a Duration holds.
const maxUptime = 200 * 365 * 24 * time.Hour

// parseXID reads the driver's message. Its forms over the years:
//
//	NVRM: Xid (PCI:0000:18:00): 79, pid=1234, GPU has fallen off the bus.
//	NVRM: Xid (PCI:0000:18:00): 31, pid='<unknown>', name=<unknown>, Ch 00000010, …
//	NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). …
//	NVRM: Xid (0000:18:00): 13, 0003 00000000 …
//	NVRM: GPU0 Xid (PCI:0000:18:00): 79, …
//
// SXid is an error of an NVSwitch, not of a GPU.
func parseXID(text string) (gpu.PCIAddress, int, bool) {
	text = strings.TrimLeft(text, " \t")
	rest, ok := strings.CutPrefix(text, "NVRM: ")
	if !ok {
		return "", 0, false
	}
	before, rest, ok := strings.Cut(rest, "Xid (")
	if !ok || strings.ContainsAny(before, ":(") || strings.HasSuffix(before, "S") {
		return "", 0, false
	}
	where, rest, ok := strings.Cut(rest, "):")
	if !ok {
		return "", 0, false
	}
	where = strings.TrimPrefix(strings.TrimSpace(where), "PCI:")
	where, _, _ = strings.Cut(where, " ") // a MIG GPU instance may follow
	pci, err := gpu.ParsePCIAddress(where)
	if err != nil {
		return "", 0, false
	}
	rest = strings.TrimLeft(rest, " ")
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	// What follows the number is a comma or the end; anything else is another message.
	if end == 0 || end > 5 || end < len(rest) && !strings.ContainsRune(", \r\n", rune(rest[end])) {
		return "", 0, false
	}
	xid, err := strconv.Atoi(rest[:end])
	if err != nil || xid == 0 {
		return "", 0, false
	}
	return pci, xid, true
}
