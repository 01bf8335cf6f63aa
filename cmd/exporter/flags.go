package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/version"
	toolkit "github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"github.com/gpu-exporter/gpu-exporter/internal/account"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/web"
)

// config is what the flags say. Every flag may also be given by the environment: --poll.fast is
// GPU_EXPORTER_POLL_FAST.
type config struct {
	node string

	library string
	sysfs   string
	procfs  string
	kmsg    string

	podLogs, containerLogs string

	visible bool

	jobDir     string
	jobNumbers bool

	kubelet       bool
	kubeletSocket string
	kubeletMaxAge time.Duration
	honest        []string
	checkpoint    string
	draCheckpoint string
	annotations   bool
	apiServer     string
	tokenFile     string
	caFile        string
	podLabels     []string
	dev           string

	docker, podman string

	fast, medium, slow, kubeletPoll time.Duration
	deadline                        time.Duration

	compat      string
	maxRequests int
	accounts    int
	web         *toolkit.FlagConfig
	logger      *slog.Logger
}

// errHelp says that the flags asked for a text that was printed, and for nothing else.
type errHelp struct{}

func (errHelp) Error() string { return "only a text was asked for" }

// parse reads the flags. Its error is one line for the person who typed them.
func parse(args []string, stdout, stderr io.Writer) (*config, error) {
	var c config
	var log promslog.Config
	app := kingpin.New("gpu-exporter", "Prometheus exporter of NVIDIA GPUs, joined to the pods that hold them. "+
		"With the word record before the flags it records what the driver answers instead: gpu-exporter record --help. "+
		"With the word doctor it examines this node and says what is missing: gpu-exporter doctor --help.")
	app.UsageWriter(stdout).ErrorWriter(stderr)
	app.DefaultEnvars()
	asked := false
	app.Terminate(func(int) { asked = true })
	app.HelpFlag.Short('h')
	app.Version(version.Print("gpu-exporter"))

	app.Flag("node-name", "Name of this node, as Kubernetes spells it; else the host name.").Envar("NODE_NAME").StringVar(&c.node)

	app.Flag("nvml.library", "Path of the NVML library; else the system's libnvidia-ml.so.1.").StringVar(&c.library)
	app.Flag("path.sysfs", "Where the host's /sys is mounted.").Default("/sys").StringVar(&c.sysfs)
	app.Flag("path.procfs", "Where the host's /proc is mounted.").Default("/proc").StringVar(&c.procfs)
	app.Flag("path.kmsg", "The kernel log, for XIDs that NVML does not tell; empty to leave it.").Default("/dev/kmsg").StringVar(&c.kmsg)

	app.Flag("path.pod-logs", "Where the host's /var/log/pods is mounted; only names are read, to tell which pod a process is of.").
		Default("/var/log/pods").StringVar(&c.podLogs)
	app.Flag("path.container-logs", "Where the host's /var/log/containers is mounted; only names are read.").
		Default("/var/log/containers").StringVar(&c.containerLogs)

	app.Flag("containers.visible", "Look into every container for the GPUs that can be seen there, once per slow poll group. Takes the host's PID namespace and the capability SYS_PTRACE; "+
		"of the processes' environments NVIDIA_VISIBLE_DEVICES alone is read.").BoolVar(&c.visible)

	app.Flag("slurm.job-mapping-dir", "A folder in which a prolog of Slurm writes which job has which GPU: a file per GPU, named by its NVML index (0) or by index and GPU instance id (0.3), "+
		"its lines the ids of jobs. With or without a kubelet. Empty: not read.").StringVar(&c.jobDir)
	app.Flag("slurm.job-numbers", "Read SLURM_JOB_ID, and nothing else, from the environment of processes whose cgroup names their job by its SLUID alone (Slurm 26.05 and newer); "+
		"else such jobs go by their SLUID. Takes the host's PID namespace and the capability SYS_PTRACE.").BoolVar(&c.jobNumbers)

	app.Flag("kubelet", "Ask the kubelet which pod holds which GPU.").Default("true").BoolVar(&c.kubelet)
	app.Flag("kubelet.socket", "The kubelet's PodResources socket; mount its directory, the kubelet makes the socket anew.").
		Default("/var/lib/kubelet/pod-resources/kubelet.sock").StringVar(&c.kubeletSocket)
	app.Flag("kubelet.max-age", "How long the last good answer of the kubelet is believed.").Default("5m").DurationVar(&c.kubeletMaxAge)
	app.Flag("kubelet.honest-resource", "A resource, beside those known, whose device ids name the true GPU (repeatable).").StringsVar(&c.honest)

	app.Flag("kubelet.checkpoint", "The kubelet's device checkpoint, such as /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint: it tells the GPUs of schemes "+
		"whose ids do not (HAMi, Aliyun gpushare, gpu-manager, Volcano ...), the UIDs of pods, and by them whose a process is. Its folder mounted read-only. Empty: not read.").StringVar(&c.checkpoint)
	app.Flag("kubelet.dra-checkpoint", "The checkpoint of NVIDIA's DRA driver, such as /var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint.json: MIG devices made on demand, "+
		"shares of claims. Empty: not read.").StringVar(&c.draCheckpoint)
	app.Flag("kubernetes.pods", "Watch the metadata of this node's pods at the API server: GPUs that schedulers write into annotations (KAI, KubeShare, Koordinator, HAMi ...) "+
		"and owners. Takes a token with list and watch on pods.").BoolVar(&c.annotations)
	app.Flag("kubernetes.pod-label", "A label of pods to add to gpu_pod_info, as label_NAME (repeatable; takes --kubernetes.pods).").StringsVar(&c.podLabels)
	app.Flag("kubernetes.api-server", "URL of the API server; else that of the cluster in which this pod runs.").StringVar(&c.apiServer)
	app.Flag("kubernetes.token-file", "Token for the API server; else that of the pod's service account.").StringVar(&c.tokenFile)
	app.Flag("kubernetes.ca-file", "Certificate authority of the API server; else that of the pod's service account.").StringVar(&c.caFile)
	app.Flag("path.dev", "Where the host's /dev is mounted; links in it name the GPUs of one scheme.").Default("/dev").StringVar(&c.dev)

	app.Flag("docker.socket", "Docker's socket, such as /var/run/docker.sock: containers outside pods are then called docker/NAME and not docker/ID. Only their list is asked for, "+
		"but whoever may write to this socket is root on the node. Empty: not asked.").StringVar(&c.docker)
	app.Flag("podman.socket", "Podman's socket, such as /run/podman/podman.sock: the same. Empty: not asked.").StringVar(&c.podman)

	app.Flag("poll.fast", "Interval of the cheap readings: power, energy, utilization samples.").Default("2s").DurationVar(&c.fast)
	app.Flag("poll.medium", "Interval of processes, memory, errors, clocks.").Default("10s").DurationVar(&c.medium)
	app.Flag("poll.slow", "Interval of limits, modes, MIG layout, inventory.").Default("1m").DurationVar(&c.slow)
	app.Flag("poll.kubelet", "Interval of asking the kubelet.").Default("10s").DurationVar(&c.kubeletPoll)
	app.Flag("call-deadline", "A GPU whose driver call takes longer is stuck; the others go on.").Default("5s").DurationVar(&c.deadline)

	app.Flag("container-limit", "Most containers, counted once per GPU, that have series of their own, some fifteen each; the rest are shown together as pod=\"other\" and counted.").
		Default(strconv.Itoa(account.DefaultAccounts)).IntVar(&c.accounts)
	app.Flag("compat", "Also serve, at "+compat.Path+", the names, units and labels of a release of dcgm-exporter, for dashboards, alerts and autoscalers that were written for it: "+
		strings.Join(compat.Releases(), " or ")+". Empty: not served.").EnumVar(&c.compat, append(compat.Releases(), "")...)
	app.Flag("web.max-requests", "Scrapes that are answered at once, half of them to one client address; more wait up to 3 s and then get status 503.").Default("40").IntVar(&c.maxRequests)
	c.web = kingpinflag.AddFlags(app, web.DefaultAddress)
	log.Level, log.Format = promslog.NewLevel(), promslog.NewFormat()
	app.Flag("log.level", "Least severity to log: debug, info, warn, error.").Default("info").SetValue(log.Level)
	app.Flag("log.format", "Format of the log: logfmt or json.").Default("logfmt").SetValue(log.Format)

	_, err := app.Parse(args)
	switch {
	case asked:
		return nil, errHelp{}
	case err != nil:
		return nil, fmt.Errorf("%w; --help lists the flags", err)
	}
	log.Writer = stderr
	c.logger = promslog.New(&log)
	if c.node == "" {
		if c.node, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("--node-name: the host has no name either: %w", err)
		}
	}
	return &c, c.validate()
}

// validate refuses what cannot work, before anything starts.
func (c *config) validate() error {
	for _, pollGroup := range []struct {
		flag string
		is   time.Duration
		min  time.Duration
	}{
		{"--poll.fast", c.fast, 100 * time.Millisecond}, {"--poll.medium", c.medium, c.fast}, {"--poll.slow", c.slow, c.medium},
		{"--poll.kubelet", c.kubeletPoll, time.Second}, {"--call-deadline", c.deadline, 100 * time.Millisecond},
		{"--kubelet.max-age", c.kubeletMaxAge, c.kubeletPoll},
	} {
		if pollGroup.is < pollGroup.min {
			return fmt.Errorf("%s is %v; the least is %v", pollGroup.flag, pollGroup.is, pollGroup.min)
		}
	}
	if c.fast > 5*time.Second {
		return fmt.Errorf("--poll.fast is %v; the most is 5s, half of the driver's memory of samples", c.fast)
	}
	if (len(c.podLabels) > 0 || c.apiServer != "" || c.tokenFile != "" || c.caFile != "") && !c.annotations {
		return errors.New("--kubernetes.pod-label, api-server, token-file and ca-file take --kubernetes.pods")
	}
	for i, l := range c.podLabels {
		for _, other := range c.podLabels[:i] {
			if catalog.PodLabel(l) == catalog.PodLabel(other) {
				return fmt.Errorf("--kubernetes.pod-label %s and %s come to the same label, %s", other, l, catalog.PodLabel(l))
			}
		}
	}
	if !c.kubelet && (c.checkpoint != "" || c.draCheckpoint != "" || c.annotations) {
		return errors.New("--no-kubelet contradicts --kubelet.checkpoint, --kubelet.dra-checkpoint and --kubernetes.pods: they only add to what the kubelet lists")
	}
	if c.accounts < 1 {
		return fmt.Errorf("--container-limit is %d; the least is 1", c.accounts)
	}
	if c.maxRequests < 1 {
		return fmt.Errorf("--web.max-requests is %d; the least is 1", c.maxRequests)
	}
	return nil
}
