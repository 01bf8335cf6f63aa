package alerts

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// xidMost is the highest code that the tables speak of; those above are warnings until somebody knows better.
const xidMaximum = 1000

// xidPattern matches the codes of a tier as a label.
func xidPattern(tiers ...gpu.XIDTier) string {
	var codes []string
	for xid := range xidMaximum {
		for _, t := range tiers {
			if gpu.XIDTierOf(xid) == t {
				codes = append(codes, strconv.Itoa(xid))
			}
		}
	}
	return strings.Join(codes, "|")
}

// xidMeaning says in a few words what a code means, and what to do about it.
type xidMeaning struct {
	xid           int
	means, action string
}

const (
	resetGPU = "Delete the GPU's pods, stop all GPU clients of the node and " + resetByUUID
	// An index moves after a GPU falls off the bus, and without -i every GPU of the node is reset.
	resetByUUID = "reset the GPU (nvidia-smi --gpu-reset -i {{ $labels.uuid }})"
	restartNode = "Drain the node and restart it"
	checkLink   = "Restart the work; if it comes again, check the GPU's NVLinks and reset all GPUs of the link"
)

// xidMeanings tells of the codes that page somebody, and of the commonest of the others. A code that is not
// listed is described by its number.
func xidMeanings() []xidMeaning {
	return []xidMeaning{
		{13, "graphics engine exception, mostly an illegal access by the program", "Look at the program"},
		{31, "memory page fault of the program", "Look at the program"},
		{43, "the program's channel was stopped", "Nothing to do"},
		{45, "the program was ended, often after another error", "Look for an earlier XID"},
		{46, "the GPU stopped processing", resetGPU},
		{48, "double-bit memory error", resetGPU + ", and have it tested if it comes again"},
		{62, "internal micro-controller halt", resetGPU},
		{64, "a row could not be remapped, or a page not be retired", resetGPU + "; replace it if it comes again"},
		{74, "NVLink error", checkLink},
		{79, "the GPU has fallen off the bus", restartNode + "; check power, heat and seating if it comes again"},
		{94, "contained memory error: only the program that met it ended", "Restart the program, and reset the GPU when it is next free"},
		{95, "uncontained memory error: every program on the GPU is lost", resetGPU},
		{109, "context switch timeout", resetGPU},
		{110, "security fault", resetGPU},
		{119, "the GPU's system processor (GSP) did not answer in time", resetGPU},
		{120, "error of the GPU's system processor (GSP)", resetGPU},
		{136, "link training failed", resetGPU},
		{140, "unrecovered memory error", resetGPU},
		{143, "the GPU could not be initialized", resetGPU},
		{151, "key rotation of confidential computing failed", "Restart the virtual machine"},
		{154, "the recovery action of the GPU changed", "See gpu_recovery_action of the GPU"},
		{155, "NVLink: software-defined error", resetGPU},
		{156, "resource retirement", resetGPU},
		{158, "fatal timeout of the GPU", resetGPU},
	}
}

// describeXID is a template that tells the meaning of the label xid, for the codes of the tier.
func describeXID(tier gpu.XIDTier) string {
	var b strings.Builder
	word := "if"
	for _, m := range xidMeanings() {
		if gpu.XIDTierOf(m.xid) == tier {
			fmt.Fprintf(&b, `{{ %s eq $labels.xid "%d" }}%s. %s.`, word, m.xid, strings.ToUpper(m.means[:1])+m.means[1:], m.action)
			word = "else if"
		}
	}
	if word == "if" {
		return ""
	}
	return b.String() + `{{ else }}Look the code up in NVIDIA's XID catalog.{{ end }}`
}

// grown selects the series of a counter that moved within the window, by how much. It asks no increase(): that
// says nothing of a GPU whose readings have ended since, and MetricsQL takes the first value that it sees of a
// series for an increase from 0.
func grown(counter, matchers string) string {
	return "last_over_time(" + counter + matchers + "[$period]) - min_over_time(" + counter + matchers + "[$period])"
}

// happenedXID selects the codes that a GPU reported within the window. A code that was never seen has no series
// (the critical ones apart), and so its first event moves nothing: the series that began within the window counts
// as well, unless it was only hidden by a scrape that failed, or nobody scraped the GPU before. An exporter that starts anew forgets its counts; the
// moment of the last event is what it finds in the kernel's log.
func happenedXID(matchers string) string {
	const counter, last = "gpu_xid_events_total", "gpu_xid_last_timestamp_seconds"
	return "group by (cluster, node, uuid, gpu, xid) (\n  last_over_time(" + counter + matchers + "[$period]) > min_over_time(" + counter + "[$period])\n" +
		"  or (" + counter + matchers + " > 0 unless last_over_time(" + counter + "[1h] offset $period) and on (" + onGPU + ") gpu_device_up offset $period)\n" +
		"  or time() - " + last + matchers + " < $period_seconds\n)"
}
