package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// statusCommand is the first argument that selects the sentences about this node.
const statusCommand = "status"

// sentence is what is known about one question.
type sentence struct {
	About    string   `json:"about"`
	Severity severity `json:"severity"`
	Text     string   `json:"text"`
}

// statusMain prints five sentences about the node, and returns the exit code.
func statusMain(ctx context.Context, assemble rooms.Assemble, args []string, stdout, stderr io.Writer) int {
	d, format, code, ok := examine(ctx, &cmdline.About{Name: "gpu-exporter " + statusCommand, Text: "Prints five sentences about this " +
		"node: its GPUs, to whom they are allocated, who uses them, their health, and what is missing. In color on a terminal.",
		ExitCodes: [][2]string{{"0", "printed, whatever they report"}, {"2", "invalid flag: nothing was started"}}}, func(*cmdline.App) {},
		assemble, args, stdout, stderr)
	if !ok {
		return code
	}
	sentences := d.sentences()
	text := ""
	for _, s := range sentences {
		text += fmt.Sprintf("%-10s %s\n", s.About, s.Text)
	}
	if err := write(colored(stdout, sentences), format, sentences, text); err != nil {
		fmt.Fprintf(stderr, "gpu-exporter %s: %v\n", statusCommand, err)
		return rooms.ExitBroken
	}
	return rooms.ExitOK
}

// colors is a Writer to a terminal, which shows the first word of a sentence in the color of its severity.
type colors struct {
	io.Writer
	of []sentence
}

// colored returns w, in color if it is a terminal and NO_COLOR (no-color.org) is not set.
func colored(w io.Writer, of []sentence) io.Writer {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return w
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return w
	}
	return colors{w, of}
}

// Write implements io.Writer.
func (c colors) Write(b []byte) (int, error) {
	text := string(b)
	for _, s := range c.of {
		color := map[severity]string{severityOK: "32", severityInfo: "36", severityWarning: "33", severityError: "31"}[s.Severity]
		text = strings.Replace(text, s.About+" ", "\x1b["+color+"m"+s.About+"\x1b[0m ", 1)
	}
	if _, err := io.WriteString(c.Writer, text); err != nil {
		return 0, err
	}
	return len(b), nil
}

// sentences are what the report amounts to.
func (d report) sentences() []sentence {
	return []sentence{d.ofGPUs(), d.ofAllocation(), d.ofUse(), d.ofHealth(), d.ofMissing()}
}

func (d report) ofGPUs() sentence {
	var models []string
	unreadable := 0
	for _, g := range d.GPUs {
		if g.Model != "" {
			models = append(models, g.Model)
		}
		if g.State != string(gpu.DeviceUp) && g.State != string(gpu.DeviceDetached) {
			unreadable++
		}
	}
	slices.Sort(models)
	text := fmt.Sprintf("%s on %s (%s), driver %s", count(len(d.GPUs), "GPU"), d.Node,
		cmp.Or(strings.Join(slices.Compact(models), ", "), "unknown model"), cmp.Or(d.Driver, "unknown"))
	switch reason := d.driverError(); {
	case len(d.GPUs) == 0:
		return sentence{"GPUs", severityError, fmt.Sprintf("No GPU was found on %s: %s.", d.Node, cmp.Or(reason, "the driver lists none"))}
	case reason != "":
		return sentence{"GPUs", severityError, fmt.Sprintf("%s on the PCI bus of %s, none readable: %s.",
			count(len(d.GPUs), "GPU"), d.Node, reason)}
	case unreadable > 0:
		return sentence{"GPUs", severityError, fmt.Sprintf("%s; %d cannot be read.", text, unreadable)}
	}
	return sentence{"GPUs", severityOK, text + "."}
}

// driverError is why the driver cannot be called; empty where it can.
func (d report) driverError() string {
	for _, f := range d.Findings {
		if f.Check == "source "+gpu.SourceNVML && f.Severity != severityOK {
			return f.Finding
		}
	}
	return ""
}

func (d report) ofAllocation() sentence {
	var to []string
	allocated, unknown := 0, 0
	for _, g := range d.GPUs {
		switch {
		case len(g.allocatedTo) > 0:
			allocated++
			to = append(to, g.name()+" to "+strings.Join(g.allocatedTo, " and "))
		case !g.AllocationKnown:
			unknown++
		}
	}
	text := fmt.Sprintf("%d of %s allocated", allocated, count(len(d.GPUs), "GPU"))
	if allocated > 0 {
		text += ": " + some(to)
	}
	for _, f := range d.Findings {
		if c, ok := strings.CutPrefix(f.Check, "container "); ok {
			return sentence{"Allocated", severityWarning, text + "; which GPUs " + c + " has could not be resolved."}
		}
	}
	if len(d.GPUs) == 0 {
		return sentence{"Allocated", severityError, "Unknown: no GPU was found."}
	}
	if unknown > 0 {
		return sentence{"Allocated", severityWarning, fmt.Sprintf("%s; of %d this is unknown.", text, unknown)}
	}
	return sentence{"Allocated", severityOK, text + "."}
}

func (d report) ofUse() sentence {
	var by, mismatch []string
	for _, g := range d.GPUs {
		if mismatch = append(mismatch, g.Mismatch...); len(g.users) > 0 {
			by = append(by, g.name()+" by "+strings.Join(g.users, " and "))
		}
	}
	visible := slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Check == "feature processes" && f.Severity == severityOK })
	switch {
	case len(mismatch) > 0:
		return sentence{"Used", severityWarning, some(by) + "; " + some(mismatch) + "."}
	case len(by) > 0:
		return sentence{"Used", severityOK, some(by) + "."}
	case d.driverError() != "":
		return sentence{"Used", severityError, "Unknown: the driver cannot be called."}
	case !visible:
		return sentence{"Used", severityInfo, "Which processes use the GPUs is unknown: the host's processes are not visible here."}
	}
	return sentence{"Used", severityOK, "No process uses a GPU."}
}

func (d report) ofHealth() sentence {
	var not []string
	worst := severityOK
	for _, g := range d.GPUs {
		switch verdict := gpu.HealthState(g.Health); {
		case verdict == gpu.Healthy || g.Health == "":
			continue
		case verdict.Broken():
			worst = severityError
		case worst == severityOK:
			worst = severityWarning
		}
		not = append(not, g.name()+" "+strings.ReplaceAll(g.Health, "_", " "))
	}
	switch {
	case len(d.GPUs) == 0:
		return sentence{"Health", severityError, "Unknown: no GPU was found."}
	case not == nil:
		return sentence{"Health", severityOK, fmt.Sprintf("%s healthy.", count(len(d.GPUs), "GPU"))}
	}
	return sentence{"Health", worst, fmt.Sprintf("%d of %s not healthy: %s.", len(not), count(len(d.GPUs), "GPU"), some(not))}
}

func (d report) ofMissing() sentence {
	var missing, off []string
	worst := severityOK
	for _, f := range d.Findings {
		switch {
		case f.Severity == severityOK || strings.HasPrefix(f.Check, "GPU"):
			continue
		case f.Severity == severityInfo && !strings.HasPrefix(f.Check, "source "):
			off = append(off, f.Check)
			continue
		case f.Severity != severityInfo || worst == severityOK:
			worst = f.Severity
		}
		missing = append(missing, f.Check)
	}
	text := cmp.Or(some(missing), "Nothing that was requested")
	if off != nil {
		text += "; off: " + some(off)
	}
	return sentence{"Missing", worst, text + ". `gpu-exporter doctor` has the settings to add."}
}

func (g gpuStatus) name() string {
	if g.Index < 0 {
		return g.GPU
	}
	return fmt.Sprint("GPU ", g.Index)
}

// count is a number with its noun.
func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// some names at most eight.
func some(all []string) string {
	const most = 8
	if len(all) > most {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", len(all)-most)
	}
	return strings.Join(all, ", ")
}
