package main

import (
	"github.com/gpu-exporter/gpu-exporter/rooms"

	"errors"
	"fmt"
	"io"
	"os"
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
	app.Flag("path.sysfs", "Mount point of the host's /sys.").Default("/sys").StringVar(&c.sysfs)
	app.Flag("path.procfs", "Mount point of the host's /proc.").Default("/proc").StringVar(&c.procfs)
	app.Flag("path.pod-logs", "Mount point of the host's /var/log/pods. Only file names are read, to find the pod of "+
		"a process.").
		Default("/var/log/pods").StringVar(&c.podLogs)
	app.Flag("path.container-logs", "Mount point of the host's /var/log/containers. Only file names are read.").
		Default("/var/log/containers").StringVar(&c.containerLogs)

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
	app.Flag("kubernetes.api-server", "URL of the API server. Default: the one of the pod's cluster.").StringVar(
		&c.API.Server)
	app.Flag("kubernetes.token-file", "Token file for the API server. Default: the pod's service account.").StringVar(
		&c.API.TokenFile)
	app.Flag("kubernetes.ca-file", "Certificate authority of the API server. Default: the pod's service "+
		"account.").StringVar(&c.API.CAFile)
	app.Flag("path.dev", "Mount point of the host's /dev; elastic-gpu records its GPUs as links in it.").Default(
		"/dev").StringVar(&c.dev)

	app.Flag("poll.fast", "Interval of the fast poll group: power, energy, utilization samples.").Default(
		"2s").DurationVar(&c.Fast)
	app.Flag("poll.medium", "Interval of the medium poll group: processes, memory, errors, clocks.").Default(
		"10s").DurationVar(&c.Medium)
	app.Flag("poll.slow", "Interval of the slow poll group: limits, modes, MIG layout, inventory.").Default(
		"1m").DurationVar(&c.Slow)
	app.Flag("poll.kubelet", "Interval of the PodResources queries. Events of pods, changes of the checkpoint and "+
		"young allocations cause more; without them, containers that run for less are partly missed.").Default("10s").DurationVar(&c.KubeletPoll)
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
	if c.API.Node = c.node; (c.API.Server != "" || c.API.TokenFile != "" || c.API.CAFile != "") && !c.APIUsed {
		return errors.New("--kubernetes.api-server, --kubernetes.token-file and --kubernetes.ca-file require " +
			"--kubernetes.pods or --kubernetes.resource-slices")
	}
	if c.accounts < 1 {
		return fmt.Errorf("--container-limit must be at least 1, got %d", c.accounts)
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
