package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

// parse reads the flags. Its error is one line for the person who typed them.
func parse(args []string, stdout, stderr io.Writer) (*config, error) {
	var c config
	var log promslog.Config
	app := cmdline.New(about(), stdout, stderr)
	c.flags(app.Application)
	c.checks, c.opens = open(app.Application)
	selection := metricFlags(app.Application)
	c.Web = kingpinflag.AddFlags(app.Application, web.DefaultAddress)
	log.Level, log.Format = promslog.NewLevel(), promslog.NewFormat()
	app.Flag("log.level", "Minimum level of log messages: debug, info, warn, error.").Default("info").SetValue(log.Level)
	app.Flag("log.format", "Log format: logfmt or json.").Default("logfmt").SetValue(log.Format)

	if err := app.Parse(args); err != nil {
		return nil, err
	}
	log.Writer = printableWriter{stderr} // slog quotes control characters in logfmt, and not all in JSON
	c.Logger = promslog.New(&log)
	for _, f := range app.Model().Flags {
		if instead, former := strings.CutPrefix(f.Help, rooms.FormerFlag); former && app.Given(f) {
			c.Logger.Warn("flag is deprecated: a later release will not have it", "flag", "--"+f.Name, "instead", "--"+instead)
		}
	}
	c.findHostPaths()
	var err error
	if c.node == "" {
		if c.node, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("cannot determine the host name (set --node-name): %w", err)
		}
	}
	if c.metrics, c.silenced, err = selection(c.Logger); err != nil {
		return nil, err
	}
	return &c, app.Named(c.validate())
}

// about is what the help has beside the flags.
func about() *cmdline.About {
	a := &cmdline.About{Name: "gpu-exporter", Purpose: "Prometheus exporter of NVIDIA GPUs", Variables: true,
		Text: "Prometheus exporter for NVIDIA GPUs and the pods they are allocated to. Without a command it serves metrics.",
		Titles: [][2]string{{"", "General"}, {"metrics collector metric-allowlist metric-denylist", "Metrics to export"},
			{"kubelet", "Kubelet"}, {"kubernetes", "API server of Kubernetes"},
			{"containers slurm", "Containers and jobs without Kubernetes"},
			{"poll call-deadline", "Polling"}, {"compat", "Names of other exporters"}, {"web", "Web server"}, {"log", "Log"}},
		ExitCodes: [][2]string{{"0", "stopped by a signal, or printed a requested text"}, {"1", "failed while running"},
			{"2", "invalid flag or configuration, or the port is in use: nothing was started"},
			{"3", "the driver was upgraded and its library and kernel module differ"},
			{"4", "the kernel module was loaded after the start, and the library is missing"},
			{"10, 20", "doctor found warnings (10) or errors (20)"}},
		Files: [][2]string{{"/etc/default/gpu-exporter", "The environment of gpu-exporter.service."}},
		Renamed: map[string]string{"web.max-requests": "", "lane.fast": "poll.fast", "lane.medium": "poll.medium", "lane.slow": "poll.slow",
			"lane.kubelet": "poll.kubelet", "kubelet.honest-resource": "kubelet.gpu-id-resource"}}
	for _, c := range commands() {
		a.Commands = append(a.Commands, [2]string{c.Name, c.Help})
	}
	return a
}

// flags adds those that no optional part has.
func (c *config) flags(app *kingpin.Application) {
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
	app.Flag("kubelet.max-age", "How long to use the kubelet's last successful response.").Default("5m").DurationVar(&c.MaxAge)
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
	app.Flag("poll.kubelet", "Interval of the queries of the kubelet. A pod that starts or ends causes one at once where "+
		"the exporter can see it (logs or checkpoint mounted); otherwise pods shorter than the interval may be missed.").
		Default("10s").DurationVar(&c.KubeletPoll)
	app.Flag("call-deadline", "Timeout of a driver call, after which its GPU is marked as hung. Other GPUs are not "+
		"affected.").Default("5s").DurationVar(&c.deadline)

	app.Flag("container-limit", "Maximum number of pairs of container and GPU that have series of their own (about "+
		"fifteen each). The others are aggregated into pod=\"other\".").
		Default(strconv.Itoa(account.DefaultAccounts)).IntVar(&c.accounts)
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

// Exit codes; about has their meaning.
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
