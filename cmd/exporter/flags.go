package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// parse reads the flags. Its error is one line for the person who typed them.
func parse(args []string, stdout, stderr io.Writer) (*config, error) {
	var c config
	var log promslog.Config
	app := kingpin.New("gpu-exporter", "Prometheus exporter for NVIDIA GPUs and the pods they are allocated to."+commandsHelp())
	app.UsageWriter(stdout).ErrorWriter(stderr)
	app.DefaultEnvars()
	printed := false
	app.Terminate(func(int) { printed = true })
	app.HelpFlag.Short('h')
	app.Version(version.Print("gpu-exporter"))
	for _, f := range app.Model().Flags {
		app.GetFlag(f.Name).NoEnvar() // these only print; images and manifests set GPU_EXPORTER_VERSION to a version
	}

	app.Flag("node-name", "Name of the Kubernetes node. Default: the host name.").Envar("NODE_NAME").StringVar(&c.node)

	app.Flag("nvml.library", "Path of the NVML library. Default: the system's libnvidia-ml.so.1.").StringVar(&c.library)
	app.Flag("path.host", "Mount point of the host's root. Its /sys, /proc, /dev, /sys/fs/cgroup, /var/log/pods and "+
		"/var/log/containers are used where they are mounted below it, else those of the exporter's own root.").
		Default("/").StringVar(&c.HostRoot)
	for _, f := range []struct {
		name string
		to   *string
	}{{"sysfs", &c.sysfs}, {"procfs", &c.procfs}, {"dev", &c.dev}, {"pod-logs", &c.podLogs}, {"container-logs", &c.containerLogs}} {
		rooms.Former(app, "path."+f.name, "path.host").StringVar(f.to)
	}

	app.Flag("kubelet", "Query the kubelet for the GPUs allocated to each pod.").Default("true").BoolVar(&c.Kubelet)
	app.Flag("kubelet.socket", "The kubelet's PodResources socket. Mount its directory, not the socket: the kubelet "+
		"recreates it on restart.").
		Default("/var/lib/kubelet/pod-resources/kubelet.sock").StringVar(&c.kubeletSocket)
	app.Flag("kubelet.max-age", "How long to use the kubelet's last successful response.").Default("5m").DurationVar(
		&c.MaxAge)
	app.Flag("kubelet.gpu-id-resource", "Additional resource name whose device IDs contain the GPU UUID or "+
		"index (repeatable).").StringsVar(&c.gpuIDResources)

	app.Flag("kubelet.gpu-resource", "Additional resource name each device of which is one GPU, whatever its IDs "+
		"(repeatable); which GPU, is read from --kubelet.checkpoint.").StringsVar(&c.gpuResources)

	app.Flag("kubelet.checkpoint", "The kubelet's device checkpoint, such as "+
		"/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint: it contains the GPUs of sharing schemes "+
		"whose device IDs do not identify them (HAMi, Aliyun gpushare, gpu-manager, Volcano ...), and the pod UIDs "+
		"by which processes are resolved. Mount its directory read-only; empty disables it.").StringVar(&c.checkpoint)
	app.Flag("kubernetes.kubeconfig", "Kubeconfig with the API server, its certificate authority and a token file. Default: the "+
		"service account of the pod.").StringVar(&c.kubeconfig)
	rooms.Former(app, "kubernetes.api-server", "kubernetes.kubeconfig").StringVar(&c.API.Server)
	rooms.Former(app, "kubernetes.token-file", "kubernetes.kubeconfig").StringVar(&c.API.TokenFile)
	rooms.Former(app, "kubernetes.ca-file", "kubernetes.kubeconfig").StringVar(&c.API.CAFile)

	app.Flag("poll.fast", "Interval of the fast poll group: power, energy, utilization samples.").Default(
		"2s").DurationVar(&c.Fast)
	app.Flag("poll.medium", "Interval of the medium poll group: processes, memory, errors, clocks.").Default(
		"10s").DurationVar(&c.Medium)
	app.Flag("poll.slow", "Interval of the slow poll group: limits, modes, MIG layout, inventory.").Default(
		"1m").DurationVar(&c.Slow)
	app.Flag("poll.kubelet", "Interval of the PodResources queries. Events of pods, changes of the checkpoint and young "+
		"allocations cause more; without them, containers that run for less are partly missed.").Default("10s").DurationVar(&c.KubeletPoll)
	app.Flag("call-deadline", "Timeout of a driver call, after which its GPU is marked as hung. Other GPUs are not "+
		"affected.").Default("5s").DurationVar(&c.deadline)

	app.Flag("container-limit", "Maximum number of containers, counted per GPU, that have series of their own (about "+
		"fifteen each). The others are aggregated into pod=\"other\".").
		Default(strconv.Itoa(account.DefaultAccounts)).IntVar(&c.accounts)
	c.checks, c.opens = open(app)
	selection := metricFlags(app)
	c.Web = kingpinflag.AddFlags(app, web.DefaultAddress)
	log.Level, log.Format = promslog.NewLevel(), promslog.NewFormat()
	app.Flag("log.level", "Minimum level of log messages: debug, info, warn, error.").Default("info").SetValue(
		log.Level)
	app.Flag("log.format", "Log format: logfmt or json.").Default("logfmt").SetValue(log.Format)

	if err := checkRenamed(args, os.Environ()); err != nil {
		return nil, err
	}
	_, err := app.Parse(args)
	switch {
	case printed:
		return nil, rooms.ErrHelp
	case err != nil:
		return nil, fmt.Errorf("%w; --help lists the flags", err)
	}
	log.Writer = printableWriter{stderr} // slog quotes control characters in logfmt, and not all in JSON
	c.Logger = promslog.New(&log)
	for _, f := range app.Model().Flags {
		if instead, former := strings.CutPrefix(f.Help, rooms.FormerFlag); former && given(f, args) {
			c.Logger.Warn("flag is deprecated: a later release will not have it", "flag", "--"+f.Name, "instead", "--"+instead)
		}
	}
	c.findHostPaths()
	if c.node == "" {
		if c.node, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("cannot determine the host name (set --node-name): %w", err)
		}
	}
	if c.metrics, c.silenced, err = selection(c.Logger); err != nil {
		return nil, err
	}
	return &c, c.validate()
}

// given reports whether a flag is among the arguments or set by its environment variable.
func given(f *kingpin.FlagModel, args []string) bool {
	return os.Getenv(f.Envar) != "" || slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return name == "--"+f.Name
	})
}

// findHostPaths sets the paths of the host that no former flag has set.
func (c *config) findHostPaths() {
	for _, p := range []struct {
		to         *string
		dir, probe string
	}{
		{&c.sysfs, "/sys", "bus/pci"}, {&c.procfs, "/proc", "self"}, {&c.dev, "/dev", ""}, {&c.podLogs, "/var/log/pods", ""},
		{&c.containerLogs, "/var/log/containers", ""},
	} {
		if *p.to == "" {
			*p.to = c.Path(p.dir, p.probe)
		}
	}
}

// renamedFlags maps former flag names to the current ones; empty: the flag is not needed any more.
var renamedFlags = map[string]string{
	"web.max-requests": "",
	"lane.fast":        "poll.fast", "lane.medium": "poll.medium", "lane.slow": "poll.slow", "lane.kubelet": "poll.kubelet",
	"kubelet.honest-resource": "kubelet.gpu-id-resource",
}

// checkRenamed rejects a former flag, or its environment variable, with the current name in the error.
func checkRenamed(args, environ []string) error {
	variable := func(flag string) string {
		return "GPU_EXPORTER_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(flag))
	}
	for old, name := range renamedFlags {
		for _, arg := range args {
			if flag, _, _ := strings.Cut(arg, "="); flag == "--"+old {
				if name == "" {
					return fmt.Errorf("--%s is not needed any more: remove it", old)
				}
				return fmt.Errorf("--%s was renamed to --%s", old, name)
			}
		}
		for _, e := range environ {
			if key, _, _ := strings.Cut(e, "="); key == variable(old) {
				if name == "" {
					return fmt.Errorf("the environment variable %s is not needed any more: remove it", key)
				}
				return fmt.Errorf("the environment variable %s was renamed to %s", key, variable(name))
			}
		}
	}
	return nil
}

// validate rejects combinations that cannot work, before anything starts.
func (c *config) validate() error {
	for _, pollGroup := range []struct {
		flag string
		is   time.Duration
		min  time.Duration
	}{
		{"--poll.fast", c.Fast, 100 * time.Millisecond}, {"--poll.medium", c.Medium, c.Fast},
		{"--poll.slow", c.Slow, c.Medium},
		{"--poll.kubelet", c.KubeletPoll, time.Second}, {"--call-deadline", c.deadline, 100 * time.Millisecond},
		{"--kubelet.max-age", c.MaxAge, c.KubeletPoll},
	} {
		if pollGroup.is < pollGroup.min {
			return fmt.Errorf("%s must be at least %v, got %v", pollGroup.flag, pollGroup.min, pollGroup.is)
		}
	}
	if c.Fast > 5*time.Second {
		return fmt.Errorf("--poll.fast must be at most 5s (half of the driver's sample buffer), got %v", c.Fast)
	}
	if !c.Kubelet && c.checkpoint != "" {
		return errors.New("--kubelet.checkpoint requires --kubelet")
	}
	for _, check := range c.checks {
		if err := check(&c.Common); err != nil {
			return err
		}
	}
	if err := c.findAPIServer(); err != nil {
		return err
	}
	if c.accounts < 1 {
		return fmt.Errorf("--container-limit must be at least 1, got %d", c.accounts)
	}
	return nil
}

// findAPIServer reads the kubeconfig.
func (c *config) findAPIServer() error {
	c.API.Node = c.node
	if (c.kubeconfig != "" || c.API.Server != "" || c.API.TokenFile != "" || c.API.CAFile != "") && !c.APIUsed {
		return errors.New("--kubernetes.kubeconfig requires --kubernetes.pods or --kubernetes.resource-slices")
	}
	if c.kubeconfig == "" {
		return nil
	}
	if err := c.API.ReadKubeconfig(c.kubeconfig); err != nil {
		return fmt.Errorf("--kubernetes.kubeconfig: %w", err)
	}
	return nil
}

// Exit codes; see docs/upgrading.md.
const (
	exitOK        = rooms.ExitOK
	exitBroken    = rooms.ExitBroken
	exitUsage     = rooms.ExitUsage
	exitMismatch  = 3
	exitNoLibrary = 4
)

// printableWriter is a Writer of text without control characters other than line breaks and tabs.
type printableWriter struct{ io.Writer }

// Write implements io.Writer.
func (w printableWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, gpu.PrintableText(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}
