package alerts

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// maxXID is above the highest code of the tables; codes above it are warnings.
const maxXID = 1000

// xidPattern matches the codes of a tier as a label.
func xidPattern(tiers ...gpu.XIDTier) string {
	var codes []string
	for xid := range maxXID {
		for _, t := range tiers {
			if gpu.XIDTierOf(xid) == t {
				codes = append(codes, strconv.Itoa(xid))
			}
		}
	}
	return strings.Join(codes, "|")
}

// xidMeaning is the meaning of a code, and the action for it.
type xidMeaning struct {
	xid           int
	means, action string
}

const (
	resetGPU = "Cordon the node, agree with the owners of this GPU's pods, stop the node's GPU monitoring and " + resetByUUID
	// An index moves after a GPU falls off the bus, and without -i every GPU of the node is reset.
	resetByUUID = "reset the GPU (nvidia-smi --gpu-reset -i {{ $labels.uuid }})"
	restartNode = "Drain the node and restart it"
	checkLink   = "Check the GPU's NVLinks (nvidia-smi nvlink --status); reset all GPUs of the link, and restart the application"
)

// xidMeanings has the critical codes, and the most common of the others.
func xidMeanings() []xidMeaning {
	return []xidMeaning{
		{13, "graphics engine exception, mostly an illegal access by the application", "Check the application"},
		{31, "memory page fault of the application", "Check the application"},
		{43, "the application's channel was stopped", "No action needed"},
		{45, "the application was terminated, often after another error", "Look for an earlier XID"},
		{46, "the GPU stopped processing", resetGPU},
		{48, "double-bit memory error", resetGPU + ", and have it tested if it recurs"},
		{62, "internal micro-controller halt", resetGPU},
		{64, "row remapping or page retirement failed", resetGPU + "; replace it if it recurs"},
		{74, "NVLink error", checkLink},
		{79, "the GPU has fallen off the bus", restartNode + "; check power, temperature and seating if it recurs"},
		{94, "contained memory error: only the affected application was terminated",
			"Restart the application, and reset the GPU when it is unallocated"},
		{95, "uncontained memory error: all applications on the GPU failed", resetGPU},
		{109, "context switch timeout", resetGPU},
		{110, "security fault", resetGPU},
		{119, "GPU system processor (GSP) timeout", resetGPU},
		{120, "GPU system processor (GSP) error", resetGPU},
		{136, "link training failed", resetGPU},
		{140, "unrecovered memory error", resetGPU},
		{143, "GPU initialization failed", resetGPU},
		{151, "key rotation of confidential computing failed", "Restart the virtual machine"},
		{154, "the recovery action of the GPU changed", "See gpu_recovery_action of the GPU"},
		{155, "NVLink: software-defined error", resetGPU},
		{156, "resource retirement", resetGPU},
		{158, "fatal timeout of the GPU", resetGPU},
	}
}

// describeXID is a template for the meaning of the label xid, for the codes of the tier.
func describeXID(tier gpu.XIDTier) string {
	var b strings.Builder
	word := "if"
	for _, m := range xidMeanings() {
		if gpu.XIDTierOf(m.xid) == tier {
			fmt.Fprintf(&b, `{{ %s eq $labels.xid "%d" }}%s. %s.`, word, m.xid,
				strings.ToUpper(m.means[:1])+m.means[1:], m.action)
			word = "else if"
		}
	}
	if word == "if" {
		return ""
	}
	return b.String() + `{{ else }}Look the code up in NVIDIA's XID catalog.{{ end }}`
}

// recentXID selects the codes that a GPU reported within the period, for as long as the exporter that counted them runs: a
// GPU is reset, and a node rebooted or replaced, without it. It does not use increase(), which
// has no value for a GPU that has become unavailable since, and which in MetricsQL counts the first value of a series as
// an increase from 0. A code without earlier events has no series: one that began within the period counts as well,
// unless a scrape had failed or the GPU was not scraped before. An exporter finds the time of the last event in the kernel
// log: it counts where no exporter before it had counted that event.
func recentXID(matchers string) string {
	const counter, last = xidRecord, "gpu_xid_last_timestamp_seconds"
	return "group by (" + onXID + ") (\n  " + counter + matchers +
		" > min_over_time(" + counter + matchers + "[$period])\n" +
		"  or (" + counter + matchers + " unless last_over_time(" + counter + "[1h] offset $period) and on (" +
		onGPU + ") gpu_device_up offset $period)\n" +
		"  or time() - " + last + matchers + " < $period_seconds unless on (" + onXID + ") (last_over_time(" + counter +
		"[1h]) unless " + counter + ")\n)"
}

const onXID = "cluster, node, uuid, gpu, xid"
