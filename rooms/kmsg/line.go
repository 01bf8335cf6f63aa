package kmsg

import (
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// xidLine is an XID of the kernel log.
type xidLine struct {
	pci   gpu.PCIAddress
	xid   int
	gi    gpu.Opt[int] // MIG GPU instance
	ci    gpu.Opt[int] // compute instance of it
	pid   int          // 0: unknown
	probe bool         // the message of the kernel module without a code
	// uptime is the kernel's clock at the line, since boot; absent where the line has no record header.
	uptime gpu.Opt[time.Duration]
}

// parseRecord reads one line of /dev/kmsg, "4,1234,567890123,-;NVRM: Xid (PCI:0000:18:00): 79, …": syslog
// priority, sequence number, microseconds since boot and flags, then the text. It returns false for a line that
// is no XID of a GPU, and for one that a program wrote: only the kernel's own lines count. A line without the header is
// read as text.
func (p *parser) parseRecord(line string) (xidLine, bool) {
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
	x, ok := parseXID(text)
	if !ok {
		x, ok = p.parseFallen(text)
	}
	x.uptime = uptime
	return x, ok
}

// parseFallen recognizes the message of a GPU that fell off the bus before it was initialized, which has no code. The
// kernel module writes it at once (open-gpu-kernel-modules, kernel-open/nvidia/nv-pci.c, nv_pci_probe), and the kernel
// returns it as one record with escaped line ends, or as three lines:
//
//	NVRM: The NVIDIA GPU 0000:b3:00.0
//	NVRM: (PCI ID: 10de:26b5) installed in this system has
//	NVRM: fallen off the bus and is not responding to commands.
//
// An older form has the first two lines in one.
func (p *parser) parseFallen(text string) (xidLine, bool) {
	for _, line := range strings.Split(text, `\x0a`) {
		line = strings.TrimLeft(line, " \t")
		if at, ok := strings.CutPrefix(line, "NVRM: The NVIDIA GPU "); ok {
			at, _, _ = strings.Cut(at, " ")
			p.fallen, _ = gpu.ParsePCIAddress(strings.TrimRight(at, "\r"))
			p.lines = 0
		}
		if p.fallen == "" {
			return xidLine{}, false
		}
		if p.lines++; p.lines > 3 {
			p.fallen = ""
		} else if strings.HasPrefix(line, "NVRM: ") && strings.Contains(line, "fallen off the bus and is not responding") {
			x := xidLine{pci: p.fallen, xid: 79, probe: true}
			p.fallen = ""
			return x, true
		}
	}
	return xidLine{}, false
}

// parser reads lines; the zero parser is ready.
type parser struct {
	fallen gpu.PCIAddress // of a message that continues
	lines  int            // of it that were read
}

// maxUptime keeps the kernel's clock within what a Duration holds.
const maxUptime = 200 * 365 * 24 * time.Hour

// parseXID reads the driver's message. Its forms over the years:
//
//	NVRM: Xid (PCI:0000:18:00): 79, pid=1234, GPU has fallen off the bus.
//	NVRM: Xid (PCI:0000:18:00): 31, pid='<unknown>', name=<unknown>, Ch 00000010, …
//	NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). …
//	NVRM: Xid (PCI:0000:9b:00 GPU-I:05 GPU-CI:00): 13, pid=7194, name=python, …
//	NVRM: Xid (0000:18:00): 13, 0003 00000000 …
//	NVRM: GPU0 Xid (PCI:0000:18:00): 79, …
//
// SXid is an error of an NVSwitch, not of a GPU.
func parseXID(text string) (x xidLine, ok bool) {
	text = strings.TrimLeft(text, " \t")
	rest, ok := strings.CutPrefix(text, "NVRM: ")
	if !ok {
		return xidLine{}, false
	}
	before, rest, ok := strings.Cut(rest, "Xid (")
	if !ok || strings.ContainsAny(before, ":(") || strings.HasSuffix(before, "S") {
		return xidLine{}, false
	}
	where, rest, ok := strings.Cut(rest, "):")
	if !ok {
		return xidLine{}, false
	}
	where = strings.TrimPrefix(strings.TrimSpace(where), "PCI:")
	where, instance, _ := strings.Cut(where, " ")
	pci, err := gpu.ParsePCIAddress(where)
	if err != nil {
		return xidLine{}, false
	}
	rest = strings.TrimLeft(rest, " ")
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	// What follows the number is a comma or the end; anything else is another message.
	if end == 0 || end > 5 || end < len(rest) && !strings.ContainsRune(", \r\n", rune(rest[end])) {
		return xidLine{}, false
	}
	xid, err := strconv.Atoi(rest[:end])
	if err != nil || xid == 0 {
		return xidLine{}, false
	}
	x = xidLine{pci: pci, xid: xid}
	for field := range strings.FieldsSeq(instance) {
		name, digits, _ := strings.Cut(field, ":")
		id, err := strconv.ParseUint(digits, 10, 8)
		switch {
		case err != nil:
		case name == "GPU-I":
			x.gi = gpu.Some(int(id))
		case name == "GPU-CI":
			x.ci = gpu.Some(int(id))
		}
	}
	if after, ok := strings.CutPrefix(rest[end:], ", pid="); ok {
		digits, _, _ := strings.Cut(after, ",")
		if pid, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 31); err == nil {
			x.pid = int(pid)
		}
	}
	return x, true
}
