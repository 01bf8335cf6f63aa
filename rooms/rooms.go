// Package rooms is all that cmd/exporter and an optional part of it know of each other: the flags and options that a part
// adds to before the program is assembled, and what it adds to the running program. Each part is a package below this one,
// which only the list of cmd/exporter imports: without its line and its folder the rest builds and runs.
package rooms

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/alecthomas/kingpin/v2"
	toolkit "github.com/prometheus/exporter-toolkit/web"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/nvml"
	"github.com/gpu-exporter/gpu-exporter/internal/proc"
	"github.com/gpu-exporter/gpu-exporter/internal/sampler"
	"github.com/gpu-exporter/gpu-exporter/podmap"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// New adds the flags of a part to those of the program, and returns the part.
type New func(flags *kingpin.Application) Part

// Part is an optional part of the program. What it lacks is nil.
type Part struct {
	// Check rejects, after parsing, flags that cannot work together.
	Check func(*Common) error
	// Open adds to the plan and returns what runs; it starts nothing.
	Open func(*Plan) (*Room, error)
	// Commands are selected by the first argument instead of the exporter.
	Commands []Command
}

// Command is a program beside the exporter. Run returns the exit code.
type Command struct {
	Name, Help string // of the help of the exporter
	Run        func(ctx context.Context, assemble Assemble, args []string, stdout, stderr io.Writer) int
}

// Exit codes of the exporter and its commands.
const (
	ExitOK     = 0
	ExitBroken = 1
	ExitUsage  = 2
)

// Assemble parses the flags of the exporter and assembles it, without running anything. With an error it returns the exit code.
type Assemble func(args []string, stdout, stderr io.Writer) (*Program, int, error)

// Program is the assembled exporter.
type Program struct {
	*Common
	Node    string
	PodLogs []string              // the directories of log names
	Watch   func(context.Context) // follows events until the context ends
	Poll    func(context.Context) // queries every data source once
	Step    func(time.Time)       // reads the GPUs and publishes a View
	View    func() *gpu.View      // the last one
	Close   func()                // shuts down NVML
	Fixes   map[string]Fix        // of all parts
	Advice  func(*gpu.View, *gpu.GPU) []Advice
	// Pause waits, or until the context ends.
	Pause func(context.Context, time.Duration)
	// Unrecognized are the resources whose device IDs could not be decoded.
	Unrecognized func() []podmap.Unrecognized
}

// Common are the flags that several parts read.
type Common struct {
	HostRoot    string // where the root of the host is mounted
	Kubelet     bool   // whether the kubelet is queried
	KubeletPoll time.Duration
	MaxAge      time.Duration // of the kubelet's last response

	Fast, Medium, Slow time.Duration // intervals of the poll groups

	API       source.APIOptions // the API server
	APIUsed   bool              // by a part
	PodLabels []string          // of gpu_pod_info
	// PodLabelPattern matches further labels of pods that the page of another exporter has; nil: none.
	PodLabelPattern *regexp.Regexp

	Web    *toolkit.FlagConfig
	Logger *slog.Logger
}

// Path returns where a directory of the host is mounted: below HostRoot if probe exists in it there, else at its own path.
func (c *Common) Path(dir, probe string) string {
	if at := filepath.Join(c.HostRoot, dir); at != dir {
		if _, err := os.Stat(filepath.Join(at, probe)); err == nil {
			return at
		}
	}
	return dir
}

// FormerFlag begins the help of a flag that still works and is to go.
const FormerFlag = "Former flag, use --"

// Former adds a flag that still works, hidden, and is replaced by another.
func Former(flags *kingpin.Application, name, instead string) *kingpin.FlagClause {
	return flags.Flag(name, FormerFlag+instead).Hidden()
}

// Plan is what the parts prepare before the program is assembled.
type Plan struct {
	*Common
	Clock func() time.Time
	// Deadline replaces those of all reads of the node's files and sockets, where tests set it; 0: their own.
	Deadline time.Duration

	Driver  nvml.Options
	Sampler sampler.Options
	Finder  proc.Options
	Pods    podmap.Options // of the kubelet

	Page *Page // another page of the same View; nil: none
	// SetFamilies replaces those of Page; it is set before anything runs.
	SetFamilies func([]catalog.Family) error

	// Event takes an XID of another data source than the driver; it is set before anything runs.
	Event func(gpu.XIDEvent)
	// LetGo closes the driver for a time; it is set before anything runs.
	LetGo func(time.Duration)
	// NoProcesses is why processes cannot be looked up; nil where they can.
	NoProcesses func() error
	NoNumbers   func() error // why job numbers are not known
	// HostPIDs reports whether this process is known to be in the host's PID namespace.
	HostPIDs func() bool
}

// Page is a page of metrics beside the exporter's own, also served at /metrics of a port where it has one, or of every one.
type Page struct {
	Path, Name, Port string
	Main             bool
	Families         []catalog.Family
	Note             string // what it lacks, for the node page
}

// Room is what a part adds to the running program; what it lacks is nil.
type Room struct {
	Loops    []func(context.Context) // none can fail: no data source ends the program
	Polls    []func(context.Context)
	Watches  []func(context.Context) // follow events beside the polls
	Sources  []func() []gpu.Source
	Features []func() (f gpu.Feature, offered bool) // one that is not offered here is not reported
	// Fixes are the settings that enable a source or feature, by its name.
	Fixes map[string]Fix
	// Advice is what doctor notes about a GPU that is up.
	Advice func(*gpu.View, *gpu.GPU) []Advice
}

// Advice is a note of doctor that is no fault.
type Advice struct{ Fix, Finding string }

// Branch returns the branch of the driver, 580 for 580.105.08; 0 if unknown.
func Branch(v *gpu.View) (branch int) {
	_, _ = fmt.Sscanf(v.System.Or(gpu.System{}).DriverVersion, "%d.", &branch)
	return branch
}

// Platform is where the exporter runs: it decides what its user can type.
type Platform int

// The platforms.
const (
	Kubernetes Platform = iota
	Container
	Host
)

// Fix is a setting in the form of each platform; empty where there is none.
type Fix [Host + 1]string

// Ptrace is the setting that allows to read what processes have open and mounted.
func Ptrace() Fix {
	return Fix{"hostPID: true; securityContext: {capabilities: {drop: [ALL], add: [SYS_PTRACE]}, " +
		"appArmorProfile: {type: Unconfined}}", // without AppArmor its setting has no effect
		"--pid host --cap-add SYS_PTRACE --security-opt apparmor=unconfined",
		"[Service] AmbientCapabilities=CAP_SYS_PTRACE CapabilityBoundingSet=CAP_SYS_PTRACE (systemctl edit gpu-exporter)"}
}

// Feature adds a feature. asked: a flag enables it, or it needs none. on is whether it works, and why not; nil: it works
// where it is asked for.
func (r *Room) Feature(name, hint string, offered, asked bool, on func() (on bool, reason string)) {
	r.Features = append(r.Features, func() (gpu.Feature, bool) {
		is, reason := asked, ""
		if on != nil {
			is, reason = on()
		}
		if is {
			return gpu.Feature{Name: name, State: gpu.FeatureOn}, offered
		}
		state := gpu.FeatureOff
		if asked {
			state = gpu.FeatureMissingPermission
		}
		if reason != "" {
			reason = " Reason: " + reason + "."
		}
		return gpu.Feature{Name: name, State: state, Hint: hint + reason}, offered
	})
}

// Source adds the health of a data source.
func (r *Room) Source(s func() gpu.Source) {
	r.Sources = append(r.Sources, func() []gpu.Source { return []gpu.Source{s()} })
}

// Text is the reason of a feature that an error keeps off.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
