// Package doctor is the part of the exporter that checks the setup of a node and lists the settings to add.
package doctor

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
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/hardware"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// doctorCommand is the first argument that selects the check of this node.
const doctorCommand = "doctor"

// severity is the effect of a finding.
type severity string

// OK: works. Info: a feature that is not enabled. Warning: data is missing. Error: nothing works.
const (
	severityOK      severity = "ok"
	severityInfo    severity = "info"
	severityWarning severity = "warning"
	severityError   severity = "error"
)

// Exit codes of a completed check.
const (
	exitWarnings = 10
	exitErrors   = 20
)

// finding is one line of the check: the subject, its state, and the setting to add.
type finding struct {
	Check    string   `json:"check"`
	Severity severity `json:"severity"`
	Finding  string   `json:"finding"`
	Fix      string   `json:"fix,omitempty"`
}

// report is the result of the check.
type report struct {
	Node     string      `json:"node"`
	Version  string      `json:"version"`
	Driver   string      `json:"driver,omitempty"`
	Findings []finding   `json:"findings"`
	GPUs     []gpuStatus `json:"gpus"`
}

// gpuStatus is one GPU of the report.
type gpuStatus struct {
	GPU         string   `json:"gpu"`
	Index       int      `json:"index"`
	Model       string   `json:"model,omitempty"`
	State       string   `json:"state"`
	Health      string   `json:"health"`
	Message     string   `json:"message,omitempty"`
	AllocatedTo []string `json:"allocated_to"`
	Users       []string `json:"users"`
	// Visible are the containers in which the GPU is visible, if scanned.
	Visible  []string `json:"visible,omitempty"`
	Mismatch []string `json:"mismatch,omitempty"`
	// AllocationKnown is false if AllocatedTo is unknown rather than empty.
	AllocationKnown bool `json:"allocation_known"`
	// The names of AllocatedTo and of the containers of Users.
	allocatedTo, users []string
}

// examine checks the node with the exporter's own flags; help adds those of the command to its help. It returns false and the
// exit code if there is nothing to show.
func examine(ctx context.Context, about *cmdline.About, help func(*cmdline.App), assemble rooms.Assemble, args []string,
	stdout, stderr io.Writer) (d report, format string, code int, ok bool) {
	fail := func(code int, err error) (report, string, int, bool) {
		fmt.Fprintf(stderr, "%s: %v\n", about.Name, err)
		return report{}, "", code, false
	}
	format, rest, err := outputFlag(args)
	if err != nil {
		return fail(rooms.ExitUsage, err)
	}
	if i := slices.IndexFunc(rest, func(arg string) bool {
		return slices.Contains([]string{"--help", "-h", "--help-man"}, arg)
	}); i >= 0 {
		app := cmdline.New(about, stdout, stderr)
		app.Flag("output", "Form of the result: text or json. All flags of gpu-exporter are valid too.").Default("text").String()
		help(app)
		_ = app.Parse(rest[i : i+1]) // prints it
		return report{}, "", rooms.ExitOK, false
	}
	p, code, err := assemble(rest, stdout, stderr)
	if errors.Is(err, cmdline.ErrPrinted) {
		return report{}, "", rooms.ExitOK, false
	} else if err != nil {
		return fail(code, err)
	}
	d = check(ctx, p)
	p.Close()
	return d, format, rooms.ExitOK, true
}

// doctorMain lists the findings on this node, and returns the exit code.
func doctorMain(ctx context.Context, assemble rooms.Assemble, args []string, stdout, stderr io.Writer) int {
	withoutClaims := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--claims" })
	d, format, code, ok := examine(ctx, &cmdline.About{Name: "gpu-exporter " + doctorCommand,
		Text: "Checks this node with the exporter's " +
			"flags: driver, GPUs, kubelet, permissions, mounts. Lists what is missing and the setting to add.",
		ExitCodes: [][2]string{{"0", "no finding"}, {"10", "warnings"}, {"20", "errors"}, {"2", "invalid flag: nothing was started"}}},
		func(app *cmdline.App) {
			app.Flag("claims", "List what the hardware check confirmed on this model and driver instead.").Bool()
		}, assemble, withoutClaims, stdout, stderr)
	if !ok {
		return code
	}
	if len(withoutClaims) < len(args) {
		var models []string
		for _, g := range d.GPUs {
			models = append(models, g.Model)
		}
		writeClaims(stdout, d.Driver, models, hardware.Verdicts())
		return rooms.ExitOK
	}
	if err := write(stdout, format, d, d.text()); err != nil {
		fmt.Fprintf(stderr, "gpu-exporter %s: %v\n", doctorCommand, err)
		return rooms.ExitBroken
	}
	return d.exitCode()
}

// write prints a result in the form of --output.
func write(w io.Writer, format string, result any, text string) error {
	if format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(result)
	}
	_, err := io.WriteString(w, gpu.PrintableText(text))
	return err
}

// outputFlag extracts the doctor's own flag; the other arguments are the exporter's.
func outputFlag(args []string) (format string, rest []string, err error) {
	format = "text"
	for i := 0; i < len(args); i++ {
		value, ok := strings.CutPrefix(args[i], "--output=")
		if !ok && args[i] == "--output" {
			i++
			value, ok = append(args, "")[i], true
		}
		if !ok {
			rest = append(rest, args[i])
			continue
		}
		format = value
	}
	if format != "text" && format != "json" {
		return "", nil, fmt.Errorf("--output must be text or json, got %q", format)
	}
	return format, rest, nil
}

// checkPolls is the number of polls: the kubelet's first response may have to be confirmed, and a process appears only
// after it was active.
const checkPolls = 4

// checkWait is how long sources are waited for that have not responded at all.
const checkWait = 6 * time.Second

// checkPause is the time between two polls.
const checkPause = 700 * time.Millisecond

func check(ctx context.Context, p *rooms.Program) report {
	watching, stop := context.WithCancel(ctx)
	var watches sync.WaitGroup
	watches.Go(func() { p.Watch(watching) })
	defer watches.Wait()
	defer stop()
	for i := 0; ; i++ {
		p.Poll(ctx)
		p.Step(time.Now())
		waiting := slices.ContainsFunc(p.View().Sources, func(s gpu.Source) bool {
			return !s.Up && s.Errors == 0 && !s.LastSuccess.Present()
		})
		if i >= checkPolls-1 && (!waiting || time.Duration(i)*checkPause >= checkWait) || ctx.Err() != nil {
			break
		}
		p.Pause(ctx, checkPause)
	}
	return newReport(p, p.View())
}

// newReport returns the findings on what was published.
func newReport(p *rooms.Program, v *gpu.View) report {
	d := report{Node: v.Node, Version: v.Build.Version}
	if s, ok := v.System.Get(); ok {
		d.Driver = s.DriverVersion
	}
	on := platformOf(p.Kubelet)
	f := func(name string) string { return p.Fixes[name][on] }
	d.checkNode(p.Node)
	d.checkSources(p.Kubelet, v, f)
	d.checkGPUs(v, f, p.Advice)
	d.checkOwnership(p.Unrecognized(), v)
	d.checkFeatures(p.Kubelet, v, f)
	d.checkPermissions(v, f)
	for i := range v.GPUs {
		d.GPUs = append(d.GPUs, newGPUStatus(v, &v.GPUs[i]))
	}
	return d
}

func (d *report) add(check string, s severity, fix, format string, args ...any) {
	d.Findings = append(d.Findings, finding{gpu.Printable(check), s, gpu.Printable(fmt.Sprintf(format, args...)), gpu.Printable(fix)})
}

func (d *report) checkNode(node string) {
	if _, inPod := os.LookupEnv("KUBERNETES_SERVICE_HOST"); inPod && os.Getenv("NODE_NAME") == "" {
		d.add("node name", severityWarning, "env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: "+
			"spec.nodeName}}}]",
			"NODE_NAME is not set in this pod: series have the pod's host name %q as node", node)
		return
	}
	d.add("node name", severityOK, "", "%s", node)
}

func (d *report) checkSources(kubelet bool, v *gpu.View, fix func(string) string) {
	severities := map[string]severity{gpu.SourceNVML: severityError, gpu.SourceKmsg: severityInfo}
	for _, s := range v.Sources {
		if s.Up {
			d.add("source "+s.Name, severityOK, "", "up")
			continue
		}
		if s.Name == gpu.SourceNVML && slices.ContainsFunc(v.Paused, func(p gpu.Pause) bool { return p.Active }) {
			d.add("source "+s.Name, severityWarning, "", "%s", s.Message) // it returns by itself
			continue
		}
		d.add("source "+s.Name, cmp.Or(severities[s.Name], severityWarning), fix(s.Name), "%s", cmp.Or(s.Message, "not available"))
	}
	switch {
	case kubelet:
	case slices.ContainsFunc(v.Sources, func(s gpu.Source) bool { return s.Name == gpu.SourceJobs }):
		d.add("kubelet", severityInfo, "--kubelet", "disabled by --no-kubelet; GPU allocations come from Slurm")
	default:
		d.add("kubelet", severityInfo, "--kubelet, or --slurm.job-mapping-dir=PATH on a Slurm node",
			"disabled by --no-kubelet; allocations are unknown where something else allocates GPUs")
	}
}

func (d *report) checkGPUs(v *gpu.View, fix func(string) string, advice func(*gpu.View, *gpu.GPU) []rooms.Advice) {
	up := 0
	for i := range v.GPUs {
		c := &v.GPUs[i]
		name := fmt.Sprintf("GPU %s (%s)", cmp.Or(indexOf(c.Index), string(c.PCI)), c.UUID)
		_, reasons := c.Health(v.At)
		for _, r := range reasons {
			if c.State != gpu.DeviceUp {
				break // below
			}
			level := severityWarning
			if r.Verdict.Broken() {
				level = severityError
			}
			d.add(name, level, "docs/troubleshooting.md", "%s: %s (%s)", r.Verdict, r.Reason, r.Source)
		}
		for _, u := range c.Activity.Unmeasured {
			if u.Reading == "memory" {
				d.add(name, severityWarning, fix(u.Reason), "memory is not exported: %s", u.Detail)
			}
		}
		if doubt := c.Medium.Or(&gpu.Medium{}).MemoryDoubt; doubt != "" {
			d.add(name, severityInfo, "", "memory is exported: %s, which alone does not show that the total is wrong", doubt)
		}
		switch c.State {
		case gpu.DeviceUp:
			up++
			slow := c.Slow.Or(&gpu.Slow{})
			if on, ok := slow.PersistenceMode.Get(); ok && !on {
				d.add(name, severityInfo, "nvidia-smi -pm 1, or nvidia-persistenced", "persistence mode is off: when the last "+
					"process closes the GPU, its power limit, clocks and modes are reset")
			}
			for _, a := range advice(v, c) {
				d.add(name, severityInfo, a.Fix, "%s", a.Finding)
			}
			if mode, ok := slow.MIGMode.Get(); ok && mode.Current != mode.Pending {
				d.add(name, severityWarning, "nvidia-smi --gpu-reset -i "+string(c.UUID)+" after stopping all clients of the GPU",
					"a change of the MIG mode is pending")
			}
		case gpu.DeviceDetached:
			d.add(name, severityInfo, "", "bound to another driver (vfio-pci), for a virtual machine")
		case gpu.DeviceMissing:
			d.add(name, severityError, "dmesg | grep NVRM on the host", "on the PCI bus, but not listed by NVML")
		default:
			d.add(name, severityError, "check the GPU's XIDs and recovery action", "%s", cmp.Or(c.Message, "not readable"))
		}
	}
	if up > 0 {
		d.add("GPUs", severityOK, "", "%d available", up)
	} else if v.System.Present() {
		d.add("GPUs", severityError, fix("GPUs"), "the driver lists no GPU")
	}
}

func indexOf(index int) string {
	if index < 0 {
		return ""
	}
	return fmt.Sprint(index)
}

func (d *report) checkOwnership(unrecognized []podmap.Unrecognized, v *gpu.View) {
	resources := map[string]int{}
	for _, h := range v.Allocations {
		resources[h.Resource]++
	}
	for _, r := range slices.Sorted(maps.Keys(resources)) {
		d.add("resource "+r, severityOK, "", "%d allocations resolved", resources[r])
	}
	possible := 0
	for i := range v.GPUs {
		if c := &v.GPUs[i]; c.State == gpu.DeviceUp && !c.AllocationRatio.Present() {
			possible++
		}
	}
	for _, u := range unrecognized {
		fix := "--kubelet.gpu-id-resource=" + u.Resource + ", if its device IDs contain the GPU UUID"
		if u.Ignored && u.Scheme == "" {
			level, effect := severityInfo, "no GPU of this node, for known plugins offer them all"
			if possible > 0 {
				level, effect = severityWarning, fmt.Sprintf("whether %d GPUs are unallocated is unknown", possible)
			}
			d.add("resource "+u.Resource, level, u.Hint, "not read (allocated devices: %d, such as %s): %s", u.Devices,
				cmp.Or(u.Shape, "?"), effect)
			continue
		}
		if u.Ignored {
			d.add("resource "+u.Resource, severityWarning, u.Hint, "annotations of %s on pods (containers: %d) are ignored: whoever "+
				"may create pods can write them", u.Scheme, u.Devices)
			continue
		}
		what := "unknown format of device IDs"
		if u.Scheme != "" {
			what, fix = "ids of "+u.Scheme+", which do not identify the GPU", u.Hint
		}
		d.add("resource "+u.Resource, severityWarning, fix, "%s, such as %s: counted as unresolved", what, u.Shape)
	}
	for _, u := range v.Unresolved {
		d.add("container "+containerName(u.Container), severityWarning, "",
			"%d devices of %s could not be resolved to GPUs", u.Devices, u.Resource)
	}
}

// platformOf recognizes Docker and Podman by the files that they create in a container.
func platformOf(kubelet bool) rooms.Platform {
	if _, inPod := os.LookupEnv("KUBERNETES_SERVICE_HOST"); inPod || kubelet {
		return rooms.Kubernetes
	}
	for _, file := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(file); err == nil {
			return rooms.Container
		}
	}
	return rooms.Host
}

func (d *report) checkFeatures(kubelet bool, v *gpu.View, fix func(string) string) {
	for _, f := range v.Features {
		switch {
		case f.Name == "kernel_log" || f.Name == "ownership": // covered by their sources
		case f.State == gpu.FeatureOn:
			d.add("feature "+f.Name, severityOK, "", "on")
		case kubelet || fix(f.Name) != "": // the others need a kubelet
			d.add("feature "+f.Name, severityInfo, fix(f.Name), "%s: %s", f.State, f.Hint)
		}
	}
}

// checkPermissions reports driver calls that failed with NO_PERMISSION.
func (d *report) checkPermissions(v *gpu.View, fix func(string) string) {
	for _, c := range v.Calls {
		for _, e := range c.Errors {
			if e.Code == "NO_PERMISSION" {
				d.add("call "+c.Call, severityWarning, fix(e.Code), "missing permission")
			}
		}
	}
}

func newGPUStatus(v *gpu.View, c *gpu.GPU) gpuStatus {
	p := gpuStatus{GPU: string(c.UUID), Index: c.Index, Model: gpu.Printable(c.Model), State: string(c.State), Message: c.Message,
		AllocatedTo: []string{}, Users: []string{}, AllocationKnown: c.AllocationRatio.Present() || v.Host}
	if c.State != gpu.DeviceDetached {
		verdict, _ := c.Health(v.At)
		p.Health = string(verdict)
	}
	for _, u := range c.Unattributed {
		if memory := u.Memory.Or(0); u.Reason == gpu.UnattributedHost && memory > 0 {
			p.users = append(p.users, "the host")
			p.Users = append(p.Users, fmt.Sprintf("processes of the host (%d MiB)", memory>>20))
		}
	}
	if v.Host {
		p.allocatedTo, p.AllocatedTo = []string{"the host"}, []string{"the host (nothing allocates GPUs)"}
	}
	for _, h := range v.Allocations {
		if h.GPU != c.UUID {
			continue
		}
		text := containerName(h.Container) + " (" + gpu.Printable(h.Resource)
		if h.Instance != "" {
			text += ", " + string(h.Instance)
		}
		if share, ok := h.AllocationRatio.Get(); ok && share < 1 {
			text += fmt.Sprintf(", %.3g of the GPU", float64(share))
		}
		p.allocatedTo = append(p.allocatedTo, containerName(h.Container))
		p.AllocatedTo = append(p.AllocatedTo, text+", source "+h.Source+")")
	}
	for i := range v.Containers {
		u := &v.Containers[i]
		if u.GPU != c.UUID || u.Ended {
			continue
		}
		if n, ok := u.Processes.Get(); ok && n > 0 {
			// The metric waits half a minute, since pods come and go; here it is reported at once.
			expect := slices.ContainsFunc(v.Allocations,
				func(h gpu.ContainerAllocation) bool { return h.GPU == c.UUID && h.Container == u.Container })
			if v.Ownership && !expect {
				p.Mismatch = append(p.Mismatch, containerName(u.Container)+
					" uses the GPU, which is not allocated to it")
			}
			p.users = append(p.users, containerName(u.Container))
			p.Users = append(p.Users, fmt.Sprintf("%s (%d processes, attribution %s)", containerName(u.Container), n,
				cmp.Or(u.Attribution, "nothing")))
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
	return gpu.Printable(strings.TrimPrefix(strings.TrimSuffix(c.Namespace+"/"+c.Pod+"/"+c.Name, "/"), "/"))
}

func (d report) exitCode() int {
	code := rooms.ExitOK
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

// text is the report as text. Names may contain anything, line breaks too: they are made printable where they enter the report.
func (d report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, gpu-exporter %s, driver %s\n\n", d.Node, d.Version, cmp.Or(d.Driver, "none"))
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%-8s %s: %s\n", f.Severity, f.Check, f.Finding)
		if f.Fix != "" && f.Severity != severityOK {
			fmt.Fprintf(&b, "         add: %s\n", f.Fix)
		}
	}
	for _, p := range d.GPUs {
		fmt.Fprintf(&b, "\ngpu %s  %s  %s  %s\n", cmp.Or(indexOf(p.Index), "–"), p.Model, p.GPU, p.State)
		switch {
		case len(p.AllocatedTo) > 0:
			fmt.Fprintf(&b, "  allocated to  %s\n", strings.Join(p.AllocatedTo, "\n                "))
		case p.AllocationKnown:
			fmt.Fprintf(&b, "  allocated to  none\n")
		default:
			fmt.Fprintf(&b, "  allocated to  unknown\n")
		}
		if len(p.Users) > 0 {
			fmt.Fprintf(&b, "  used by       %s\n", strings.Join(p.Users, "\n                "))
		}
		if len(p.Visible) > 0 {
			fmt.Fprintf(&b, "  visible in    %s\n", strings.Join(p.Visible, "\n                "))
		}
		for _, m := range p.Mismatch {
			fmt.Fprintf(&b, "  mismatch      %s\n", m)
		}
	}
	return b.String()
}
