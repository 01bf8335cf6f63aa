// The program truth scores an exporter of GPU metrics: it runs the exporter on the fake driver with a script, scrapes it as
// Prometheus would, and compares what a reader of its metrics concludes with what the script did. Any exporter that loads
// libnvidia-ml can be scored:
//
//	go -C test run ./truth --profile=NAME -- COMMAND --flags
//
// In the command, {address} is where to listen, and {library}, {socket}, {sysfs}, {procfs}, {pod-logs} and
// {container-logs} are the parts of the node. LD_LIBRARY_PATH leads to the fake library as well.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// metric is where an exporter has a quantity: the sum of the series of one GPU, of one or more families.
type metric struct {
	families []string
	labels   string  // NAME=VALUE that a series must have; empty: any
	scale    float64 // to the base unit
	counter  bool
}

// profiles are the metrics of the exporters, by their own documentation.
var profiles = map[string]map[string]metric{
	"gpu-exporter": {
		"busy":        {families: []string{"gpu_busy_seconds_total"}, scale: 1, counter: true},
		"memory":      {families: []string{"gpu_memory_used_bytes"}, scale: 1},
		"power":       {families: []string{"gpu_power_watts"}, scale: 1},
		"temperature": {families: []string{"gpu_temperature_celsius"}, labels: "sensor=gpu", scale: 1},
		"energy":      {families: []string{"gpu_energy_joules_total"}, scale: 1, counter: true},
		"parts": {families: []string{"gpu_container_memory_used_bytes", "gpu_unattributed_memory_used_bytes"},
			scale: 1},
	},
	"nvidia_gpu_exporter": {
		"busy":        {families: []string{"nvidia_smi_utilization_gpu_ratio"}, scale: 1},
		"memory":      {families: []string{"nvidia_smi_memory_used_bytes"}, scale: 1},
		"power":       {families: []string{"nvidia_smi_power_draw_watts"}, scale: 1},
		"temperature": {families: []string{"nvidia_smi_temperature_gpu"}, scale: 1},
		"energy":      {families: []string{"nvidia_smi_energy_joules_total"}, scale: 1, counter: true},
	},
	"nvidia_gpu_prometheus_exporter": {
		"busy":        {families: []string{"nvidia_gpu_duty_cycle"}, scale: 0.01},
		"memory":      {families: []string{"nvidia_gpu_memory_used_bytes"}, scale: 1},
		"power":       {families: []string{"nvidia_gpu_power_usage_milliwatts"}, scale: 0.001},
		"temperature": {families: []string{"nvidia_gpu_temperature_celsius"}, scale: 1},
	},
}

// script is what the driver does. GPU 0 has a steady duty, shared by two pods; GPU 1 short bursts; GPU 2 lacks readings; GPU
// 3 is lost at the end.
const script = `scenario 1
title "truth"
include boards/h100-sxm.scenario
symbols R580
system DriverVersion = "580.105.08"
system NVMLVersion = "13.580.105.08"
system CudaDriverVersion = 13000
gpu 0 board=h100 uuid=%s pci=0000:18:00.0 minor=0
gpu 1 board=h100 uuid=%s pci=0000:2a:00.0 minor=1
gpu 2 board=h100 uuid=%s pci=0000:3a:00.0 minor=2
  PowerUsage = !NOT_SUPPORTED
  Field[185,gpu] = !NOT_SUPPORTED
  Field[186,gpu] = !NOT_SUPPORTED
  MemoryInfo = !NOT_SUPPORTED
  MemoryInfo_v2 = !NOT_SUPPORTED
gpu 3 board=h100 uuid=%s pci=0000:4a:00.0 minor=3
process gpu=0 pid=100 memory=10GiB busy=25%% period=1700ms
process gpu=0 pid=101 memory=6GiB busy=12%% period=1700ms phase=700ms
load gpu=1 busy=4%% period=5s
load gpu=3 busy=90%% period=1s
at %s gpu 3 lose
`

var uuids = []any{"GPU-0aaaaaaa-0000-4000-8000-000000000000", "GPU-1aaaaaaa-0000-4000-8000-000000000000",
	"GPU-2aaaaaaa-0000-4000-8000-000000000000", "GPU-3aaaaaaa-0000-4000-8000-000000000000"}

const pods = "allocatable nvidia.com/gpu %[1]s::0 %[1]s::1 %[2]s\n" +
	"pod ml/train container main nvidia.com/gpu=%[1]s::0 pids=100\n" +
	"pod ml/serve container main nvidia.com/gpu=%[1]s::1 pids=101\n"

// verdict is the result of one question.
type verdict struct {
	Question, Found string
	// Verdict is ok, wrong, or none where the exporter has no such metric.
	Verdict string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	profile := flag.String("profile", "gpu-exporter", "metric names of the exporter: "+
		strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
	length := flag.Duration("length", time.Minute, "duration of the measurement")
	interval := flag.Duration("interval", 5*time.Second, "scrape interval")
	flag.Parse()
	if profiles[*profile] == nil || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "truth: a known --profile and a command are required; --help lists the flags")
		os.Exit(2)
	}
	found, err := run(ctx, profiles[*profile], 8*time.Second, *length, *interval, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "truth:", err)
		os.Exit(1)
	}
	fmt.Printf("| question | %s | |\n|---|---|---|\n", *profile)
	for _, v := range found {
		fmt.Printf("| %s | %s | %s |\n", v.Question, v.Found, v.Verdict)
	}
}

// sample is one scrape.
type sample struct {
	at       time.Duration // on the script's clock
	families map[string]*dto.MetricFamily
}

// run starts the exporter, gives it time to settle, and returns the verdicts.
func run(ctx context.Context, names map[string]metric, settle, length, interval time.Duration, command []string) (
	_ []verdict, err error) {
	root, err := standin.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "truth-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	lost := settle + length + interval/2
	s, err := scenario.Parse("truth", fmt.Sprintf(script, append(slices.Clone(uuids), lost)...),
		os.DirFS(filepath.Join(root, "testdata", "scenarios")))
	if err != nil {
		return nil, err
	}
	node, err := standin.ParsePods("pods", strings.NewReader(fmt.Sprintf(pods, uuids...)))
	if err != nil {
		return nil, err
	}
	library, err := standin.BuildFakeNVML(ctx, s.Symbols, dir)
	if err != nil {
		return nil, err
	}
	trees, err := standin.WriteTrees(dir, s, node)
	if err != nil {
		return nil, err
	}
	kubelet := standin.NewKubelet(time.Now)
	kubelet.SetNode(node)
	socket := filepath.Join(dir, "kubelet.sock")
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- kubelet.Serve(serving, socket) }()
	defer func() { stop(); err = errors.Join(err, <-served) }()
	address, err := standin.FreeAddress()
	if err != nil {
		return nil, err
	}
	env, control, err := standin.SimulateLive(s, dir)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	place := strings.NewReplacer("{address}", address, "{library}", library, "{socket}", socket, "{sysfs}", trees.Sysfs,
		"{procfs}", trees.Procfs, "{pod-logs}", trees.PodLogs, "{container-logs}", trees.ContainerLogs)
	for i := range command {
		command[i] = place.Replace(command[i])
	}
	exporter := exec.Command(command[0], command[1:]...)
	exporter.Env = append(append(os.Environ(), env...), "LD_LIBRARY_PATH="+filepath.Dir(library))
	exporter.Stderr = os.Stderr
	if err := exporter.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = exporter.Process.Signal(syscall.SIGTERM)
		_ = exporter.Wait()
	}()
	var scrapes []sample
	for next := settle; next <= lost+2*interval; next += interval {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(next - control.Now()):
		}
		families, err := scrape(ctx, address)
		if err != nil && control.Now() < lost {
			return nil, err // after that, it is an answer
		}
		scrapes = append(scrapes, sample{control.Now(), families})
	}
	return judge(s, names, scrapes, lost), nil
}

func scrape(ctx context.Context, address string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		return nil, fmt.Errorf("scrape: %s: %s", res.Status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(res.Body)
}

// of returns the sum of a GPU's series, and whether there is any.
func (m metric) of(s sample, device int) (sum float64, found bool) {
	uuid := strings.TrimPrefix(uuids[device].(string), "GPU-")
	name, value, filtered := strings.Cut(m.labels, "=")
	for _, family := range m.families {
		for _, series := range s.families[family].GetMetric() {
			own, matches := false, !filtered
			for _, l := range series.GetLabel() {
				own = own || strings.Contains(l.GetValue(), uuid)
				matches = matches || l.GetName() == name && l.GetValue() == value
			}
			if own && matches {
				sum += m.scale * (series.GetGauge().GetValue() + series.GetCounter().GetValue() + series.GetUntyped().GetValue())
				found = true
			}
		}
	}
	return sum, found
}

// judge compares what the scrapes say with the script.
func judge(s *scenario.Scenario, names map[string]metric, scrapes []sample, lost time.Duration) []verdict {
	var out []verdict
	say := func(question, found string, ok bool) {
		v := "ok"
		if !ok {
			v = "**wrong**"
		}
		out = append(out, verdict{question, found, v})
	}
	none := func(question string) { out = append(out, verdict{question, "no such metric", "–"}) }
	end := slices.IndexFunc(scrapes, func(s sample) bool { return s.at > lost })
	scrapes, after := scrapes[:end], scrapes[end:]
	first, last := scrapes[0], scrapes[len(scrapes)-1]
	// rate is a counter's increase per second, or a gauge's mean over the scrapes.
	rate := func(m metric, device int) float64 {
		if m.counter {
			from, _ := m.of(first, device)
			to, _ := m.of(last, device)
			return (to - from) / (last.at - first.at).Seconds()
		}
		sum, n := 0.0, 0
		for _, s := range scrapes {
			if v, found := m.of(s, device); found {
				sum, n = sum+v, n+1
			}
		}
		return sum / float64(max(1, n))
	}
	// A counter is as of the exporter's last poll, and a burst may be at an end of the measurement.
	seconds := (last.at - first.at).Seconds()
	tolerances := []float64{0.01 + 1/seconds, 0.01 + 0.2/seconds}
	for device, question := range []string{"steady duty", "bursts of 0.2 s every 5 s"} {
		want := float64(s.Truth(device).Busy(first.at, last.at)) / seconds
		got := rate(names["busy"], device)
		say(fmt.Sprintf("%s: %.1f %% busy", question, 100*want), fmt.Sprintf("%.1f %%", 100*got),
			math.Abs(got-want) <= tolerances[device])
	}
	want := float64(s.Truth(0).Allocated(last.at))
	got, _ := names["memory"].of(last, 0)
	say(fmt.Sprintf("memory in use: %.2f GiB", want/(1<<30)), fmt.Sprintf("%.2f GiB", got/(1<<30)),
		math.Abs(got-want) <= 0.02*want)
	for _, quantity := range []string{"power", "memory"} {
		v, found := names[quantity].of(last, 2)
		text := "absent"
		if found {
			text = fmt.Sprint(v)
		}
		say("a GPU without "+quantity+" reading: absent, not 0", text, !found)
	}
	v, found := names["temperature"].of(after[len(after)-1], 3)
	text := "absent"
	if found {
		text = fmt.Sprintf("%g °C", v)
	}
	say("a lost GPU: no temperature", text, !found)
	neighbors := 0
	for _, s := range after {
		if _, ok := names["temperature"].of(s, 0); ok {
			neighbors++
		}
	}
	say("its neighbors go on", fmt.Sprintf("in %d of %d scrapes", neighbors, len(after)), neighbors == len(after))
	if m, ok := names["energy"]; !ok {
		none("energy")
	} else {
		want := float64(s.Truth(0).Energy(first.at, last.at))
		got := rate(m, 0) * seconds
		say(fmt.Sprintf("energy: %.0f J", want), fmt.Sprintf("%.0f J", got), math.Abs(got-want) <= (0.05+1/seconds)*want)
	}
	parts, ok := names["parts"]
	if !ok {
		none("containers of a shared GPU add up to its memory")
		none("names of both pods that share a GPU")
		return out
	}
	got, _ = parts.of(last, 0)
	total, _ := names["memory"].of(last, 0)
	say("containers of a shared GPU add up to its memory", fmt.Sprintf("%.2f of %.2f GiB", got/(1<<30), total/(1<<30)),
		got == total && got > 0)
	pods := map[string]bool{}
	for _, series := range last.families[parts.families[0]].GetMetric() {
		for _, l := range series.GetLabel() {
			if l.GetName() == "pod" {
				pods[l.GetValue()] = true
			}
		}
	}
	say("names of both pods that share a GPU", fmt.Sprintf("%d pods", len(pods)), pods["train"] && pods["serve"] && len(pods) == 2)
	return out
}
