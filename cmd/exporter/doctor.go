package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/podmap"
)

// doctorCommand is the first argument that asks for an examination of this node instead of an exporter.
const doctorCommand = "doctor"

// severity says how much a finding costs.
type severity string

// OK: works. Info: a feature that is not on, by choice. Warning: figures are missing. Error: nothing works.
const (
	severityOK      severity = "ok"
	severityInfo    severity = "info"
	severityWarning severity = "warning"
	severityError   severity = "error"
)

// The exit codes of an examination that ran.
const (
	exitWarnings = 10
	exitErrors   = 20
)

// finding is one line of the examination: what was looked at, how it stands, and the line to add.
type finding struct {
	Check    string   `json:"check"`
	Severity severity `json:"severity"`
	Finding  string   `json:"finding"`
	Fix      string   `json:"fix,omitempty"`
}

// diagnosis is the whole examination.
type diagnosis struct {
	Node     string    `json:"node"`
	Version  string    `json:"version"`
	Driver   string    `json:"driver,omitempty"`
	Findings []finding `json:"findings"`
	GPUs     []patient `json:"gpus"`
}

// patient is one GPU, as a person wants to see it.
type patient struct {
	GPU     string   `json:"gpu"`
	Index   int      `json:"index"`
	Model   string   `json:"model,omitempty"`
	State   string   `json:"state"`
	Why     string   `json:"why,omitempty"`
	Holders []string `json:"holders"`
	Users   []string `json:"users"`
	// Visible are the containers in which the GPU can be seen, where somebody looks.
	Visible  []string `json:"visible,omitempty"`
	Mismatch []string `json:"mismatch,omitempty"`
	// HoldersKnown is false where nobody can tell who holds the GPU: an empty list then says nothing.
	HoldersKnown bool `json:"holders_known"`
}

// doctorMain examines the node with the exporter's own flags, and returns the exit code.
func doctorMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "gpu-exporter doctor: %v\n", err)
		return code
	}
	format, rest, err := outputFlag(args)
	if err != nil {
		return fail(exitUsage, err)
	}
	if slices.Contains(rest, "--help") || slices.Contains(rest, "-h") {
		fmt.Fprint(stdout, "usage: gpu-exporter doctor [--output=text|json] [flags of the exporter]\n\n"+
			"Examines this node as the exporter with the same flags would find it: driver, GPUs, kubelet, rights, mounts.\n"+
			"Says what is missing and the line to add. Exit code 0: nothing; 10: warnings; 20: errors; 2: a wrong flag.\n")
		return exitOK
	}
	c, err := parse(append([]string{"--log.level=error"}, rest...), stdout, stderr)
	if errors.As(err, new(errHelp)) {
		return exitOK
	} else if err != nil {
		return fail(exitUsage, err)
	}
	e, err := newExporter(c, time.Now, func() {}, seam{})
	if err != nil {
		return fail(exitBroken, err)
	}
	d := examine(ctx, c, e)
	e.sampler.Close()
	if format == "json" {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(d)
	} else {
		err = d.write(stdout)
	}
	if err != nil {
		return fail(exitBroken, err)
	}
	return d.exitCode()
}

// outputFlag takes the doctor's own flag out of the arguments; the others are the exporter's.
func outputFlag(args []string) (format string, rest []string, err error) {
	format = "text"
	for i := 0; i < len(args); i++ {
		value, ok := strings.CutPrefix(args[i], "--output=")
		if !ok && args[i] == "--output" && i+1 < len(args) {
			i++
			value, ok = args[i], true
		}
		if !ok {
			rest = append(rest, args[i])
			continue
		}
		format = value
	}
	if format != "text" && format != "json" {
		return "", nil, fmt.Errorf("--output is %q; it may be text or json", format)
	}
	return format, rest, nil
}

// examinationRounds is how often the loops come round: the kubelet's first answer may have to be confirmed,
// and a process shows only once it worked.
const examinationRounds = 4

func examine(ctx context.Context, c *config, e *exporter) diagnosis {
	for i := range examinationRounds {
		e.poll(ctx)
		e.sampler.Step(time.Now())
		if i < examinationRounds-1 {
			select {
			case <-ctx.Done():
			case <-time.After(700 * time.Millisecond):
			}
		}
	}
	v := e.sampler.Latest()
	d := diagnosis{Node: v.Node, Version: v.Build.Version}
	if s, ok := v.System.Get(); ok {
		d.Driver = s.DriverVersion
	}
	d.checkNode(c)
	d.checkSources(c, v)
	d.checkGPUs(v)
	d.checkOwnership(e, v)
	d.checkFeatures(c, v)
	d.checkRights(v)
	for i := range v.GPUs {
		d.GPUs = append(d.GPUs, newPatient(v, &v.GPUs[i]))
	}
	return d
}

func (d *diagnosis) add(check string, s severity, fix, format string, args ...any) {
	d.Findings = append(d.Findings, finding{check, s, fmt.Sprintf(format, args...), fix})
}

func (d *diagnosis) checkNode(c *config) {
	if _, inPod := os.LookupEnv("KUBERNETES_SERVICE_HOST"); inPod && os.Getenv("NODE_NAME") == "" {
		d.add("node name", severityWarning, "env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]",
			"in a pod, and NODE_NAME is not set: series carry the pod's host name %q", c.node)
		return
	}
	d.add("node name", severityOK, "", "%s", c.node)
}

func (d *diagnosis) checkSources(c *config, v *gpu.View) {
	for _, s := range v.Sources {
		switch {
		case s.Up:
			d.add("source "+s.Name, severityOK, "", "answers")
		case s.Name == gpu.SourceNVML:
			d.add("source "+s.Name, severityError, "runtimeClassName: nvidia; env: NVIDIA_VISIBLE_DEVICES=all, NVIDIA_DRIVER_CAPABILITIES=utility", "%s", cmp.Or(s.Message, "does not answer"))
		case s.Name == gpu.SourcePodResources:
			d.add("source "+s.Name, severityWarning, "volumes: [{name: pod-resources, hostPath: {path: /var/lib/kubelet/pod-resources}}], mounted read-only at the same path, as uid 0 (chart: features.ownership=true); without a kubelet run with --no-kubelet",
				"%s", cmp.Or(s.Message, "does not answer"))
		case s.Name == podmap.SourceJobs:
			d.add("source "+s.Name, severityWarning, "volumes: [{name: job-mapping, hostPath: {path: "+c.jobDir+"}}], mounted read-only at the same path (chart: features.slurmJobMapping="+c.jobDir+")", "%s", cmp.Or(s.Message, "cannot be read"))
		case s.Name == proc.SourceVisible:
			d.add("source "+s.Name, severityWarning, visibleRights, "%s", cmp.Or(s.Message, "cannot be read"))
		case s.Name == gpu.SourceKmsg:
			d.add("source "+s.Name, severityInfo, "securityContext: {privileged: true} and /dev/kmsg mounted (chart: features.kernelLog=true); or --path.kmsg= to leave it", "%s", cmp.Or(s.Message, "cannot be read"))
		default:
			d.add("source "+s.Name, severityWarning, "", "%s", cmp.Or(s.Message, "does not answer"))
		}
	}
	switch {
	case c.kubelet:
	case c.jobDir != "":
		d.add("kubelet", severityInfo, "--kubelet", "not asked, by --no-kubelet: the jobs of Slurm hold the GPUs")
	default:
		d.add("kubelet", severityInfo, "--kubelet, or --slurm.job-mapping-dir=PATH where Slurm gives the GPUs out", "not asked, by --no-kubelet: nobody knows who holds a GPU")
	}
}

func (d *diagnosis) checkGPUs(v *gpu.View) {
	up := 0
	for i := range v.GPUs {
		c := &v.GPUs[i]
		name := fmt.Sprintf("GPU %s (%s)", cmp.Or(indexOf(c), string(c.PCI)), c.UUID)
		switch c.State {
		case gpu.DeviceUp:
			up++
		case gpu.DeviceDetached:
			d.add(name, severityInfo, "", "is on another driver (vfio-pci): it belongs to a virtual machine")
		case gpu.DeviceMissing:
			d.add(name, severityError, "dmesg | grep NVRM on the host", "is on the PCI bus, and NVML does not show it")
		default:
			d.add(name, severityError, "see the GPU's XIDs and recovery action", "%s", cmp.Or(c.Message, "cannot be read"))
		}
	}
	if up > 0 {
		d.add("GPUs", severityOK, "", "%d can be read", up)
	} else if v.System.Present() {
		d.add("GPUs", severityError, "NVIDIA_VISIBLE_DEVICES=all", "the driver answers and shows no GPU")
	}
}

func indexOf(c *gpu.GPU) string {
	if c.Index < 0 {
		return ""
	}
	return fmt.Sprint(c.Index)
}

func (d *diagnosis) checkOwnership(e *exporter, v *gpu.View) {
	resources := map[string]int{}
	for _, h := range v.Allocations {
		resources[h.Resource]++
	}
	for _, r := range slices.Sorted(maps.Keys(resources)) {
		d.add("resource "+r, severityOK, "", "%d holdings, their GPUs known", resources[r])
	}
	var strange []podmap.Unrecognised
	if e.pods != nil {
		strange = e.pods.Unrecognised()
	}
	for _, u := range strange {
		fix := "--kubelet.honest-resource=" + u.Resource + ", if its ids name the true GPU"
		what := "ids of a shape that nobody knows"
		if u.Scheme != "" {
			what, fix = "ids of "+u.Scheme+", which do not name the true GPU", ""
		}
		d.add("resource "+u.Resource, severityWarning, fix, "%s, such as %s: they count as unresolved", what, u.Shape)
	}
	for _, u := range v.Unresolved {
		d.add("holder "+containerName(u.Container), severityWarning, "", "holds %d of %s, and their GPU cannot be told", u.Devices, u.Resource)
	}
}

// visibleRights are what it takes to look into containers. Without AppArmor its line changes nothing.
const visibleRights = "hostPID: true; securityContext: {capabilities: {drop: [ALL], add: [SYS_PTRACE]}, appArmorProfile: {type: Unconfined}}"

func (d *diagnosis) checkFeatures(c *config, v *gpu.View) {
	visible := visibleRights
	if !c.visible {
		visible = "--containers.visible; " + visible
	}
	fixes := map[string]string{
		"container_visible": visible,
		"slurm_job_numbers": "--slurm.job-numbers; " + visibleRights,
		"processes":         "hostPID: true",
		"container_names":   "--docker.socket=/var/run/docker.sock, and the socket mounted",
		"device_checkpoint": "--kubelet.checkpoint=/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint, its folder mounted read-only",
		"pod_metadata":      "--kubernetes.pods, and a ClusterRole with list and watch on pods",
		"process_names":     fmt.Sprintf("volumes: [{name: pod-logs, hostPath: {path: %s}}, {name: container-logs, hostPath: {path: %s}}], mounted read-only", c.podLogs, c.containerLogs),
	}
	for _, f := range v.Features {
		if f.Name == "kernel_log" || f.Name == "ownership" {
			continue // their sources speak for them
		}
		if f.State == gpu.FeatureOn {
			d.add("feature "+f.Name, severityOK, "", "on")
			continue
		}
		fix := fixes[f.Name]
		if value := chartValues[f.Name]; value != "" && c.kubelet {
			fix += " (chart: " + value + ")"
		}
		d.add("feature "+f.Name, severityInfo, fix, "%s: %s", f.State, f.Hint)
	}
}

// chartValues are the values of the Helm chart that unlock a feature.
var chartValues = map[string]string{
	"container_visible": "features.containerVisible=true",
	"processes":         "features.processes=true",
	"device_checkpoint": "features.deviceCheckpoint=true",
	"pod_metadata":      "features.podMetadata=true",
	"process_names":     "features.processNames=true",
}

// checkRights looks for calls that the driver refused for want of a right.
func (d *diagnosis) checkRights(v *gpu.View) {
	for _, c := range v.Calls {
		for _, e := range c.Errors {
			if e.Code == "NO_PERMISSION" {
				d.add("call "+c.Call, severityWarning, "env: NVIDIA_MIG_MONITOR_DEVICES=all; securityContext: {capabilities: {add: [SYS_ADMIN]}}, without which NVIDIA's runtime refuses the former", "the driver refuses it for want of a right")
			}
		}
	}
}

func newPatient(v *gpu.View, c *gpu.GPU) patient {
	p := patient{GPU: string(c.UUID), Index: c.Index, Model: c.Model, State: string(c.State), Why: c.Message, Holders: []string{}, Users: []string{}, HoldersKnown: c.AllocationRatio.Present()}
	for _, h := range v.Allocations {
		if h.GPU != c.UUID {
			continue
		}
		text := containerName(h.Container) + " (" + h.Resource
		if h.Instance != "" {
			text += ", " + string(h.Instance)
		}
		if share, ok := h.AllocationRatio.Get(); ok && share < 1 {
			text += fmt.Sprintf(", %.3g of the GPU", float64(share))
		}
		p.Holders = append(p.Holders, text+", read from "+h.Source+")")
	}
	for i := range v.Containers {
		u := &v.Containers[i]
		if u.GPU != c.UUID || u.Ended {
			continue
		}
		if n, ok := u.Processes.Get(); ok && n > 0 {
			// The series of a mismatch waits half a minute, for pods come and go; a person may know at once.
			holds := slices.ContainsFunc(v.Allocations, func(h gpu.ContainerAllocation) bool { return h.GPU == c.UUID && h.Container == u.Container })
			if v.Ownership && !holds {
				p.Mismatch = append(p.Mismatch, containerName(u.Container)+" uses the GPU and does not hold it")
			}
			p.Users = append(p.Users, fmt.Sprintf("%s (%d processes, measured by %s)", containerName(u.Container), n, cmp.Or(u.Attribution, "nothing")))
		}
	}
	for _, s := range v.Visible {
		if s.GPU == c.UUID {
			p.Visible = append(p.Visible, containerName(s.Container))
		}
	}
	return p
}

func containerName(c gpu.Container) string {
	return strings.TrimPrefix(strings.TrimSuffix(c.Namespace+"/"+c.Pod+"/"+c.Name, "/"), "/")
}

func (d diagnosis) exitCode() int {
	code := exitOK
	for _, f := range d.Findings {
		switch f.Severity {
		case severityError:
			return exitErrors
		case severityWarning:
			code = exitWarnings
		}
	}
	return code
}

// write is the examination for a person. Names in it are whatever somebody called a pod: %q-like escapes keep
// a terminal safe from them.
func (d diagnosis) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, gpu-exporter %s, driver %s\n\n", d.Node, d.Version, cmp.Or(d.Driver, "none"))
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%-8s %s: %s\n", f.Severity, f.Check, f.Finding)
		if f.Fix != "" && f.Severity != severityOK {
			fmt.Fprintf(&b, "         add: %s\n", f.Fix)
		}
	}
	for _, p := range d.GPUs {
		index := "–"
		if p.Index >= 0 {
			index = fmt.Sprint(p.Index)
		}
		fmt.Fprintf(&b, "\ngpu %s  %s  %s  %s\n", index, p.Model, p.GPU, p.State)
		switch {
		case len(p.Holders) > 0:
			fmt.Fprintf(&b, "  held by  %s\n", strings.Join(p.Holders, "\n           "))
		case p.HoldersKnown:
			fmt.Fprintf(&b, "  held by  nobody\n")
		default:
			fmt.Fprintf(&b, "  held by  not known\n")
		}
		if len(p.Users) > 0 {
			fmt.Fprintf(&b, "  used by  %s\n", strings.Join(p.Users, "\n           "))
		}
		if len(p.Visible) > 0 {
			fmt.Fprintf(&b, "  seen in  %s\n", strings.Join(p.Visible, "\n           "))
		}
		for _, m := range p.Mismatch {
			fmt.Fprintf(&b, "  mismatch %s\n", m)
		}
	}
	_, err := io.WriteString(w, printable(b.String()))
	return err
}

// printable replaces what a terminal would take for an order.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, s)
}
