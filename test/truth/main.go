// The program truth scores an exporter of GPU metrics: it runs the exporter on the fake driver with a script, scrapes it as
// Prometheus would, and compares what a reader of its metrics concludes with what the script did. Any exporter that loads
// libnvidia-ml can be scored:
//
//	go -C test run ./truth --profile=NAME -- COMMAND --flags
//
// In the command, {address} is where to listen, {library} and {socket} are the driver's and the kubelet's, and {host} is the root
// of the node. LD_LIBRARY_PATH leads to the fake library as well.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
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
		"fan":         {families: []string{"gpu_fan_speed_ratio"}, scale: 1},
		"temperature": {families: []string{"gpu_temperature_celsius"}, labels: "sensor=gpu", scale: 1},
		"energy":      {families: []string{"gpu_energy_joules_total"}, scale: 1, counter: true},
		"instances":   {families: []string{"gpu_mig_memory_used_bytes"}, scale: 1},
		"pods":        {families: []string{"gpu_container_memory_used_bytes"}, scale: 1},
		"pods busy":   {families: []string{"gpu_container_busy_seconds_total"}, scale: 1, counter: true},
		"rest":        {families: []string{"gpu_unattributed_memory_used_bytes"}, scale: 1},
		"rest busy":   {families: []string{"gpu_unattributed_busy_seconds_total"}, scale: 1, counter: true},
	},
	"nvidia_gpu_exporter": {
		"busy":        {families: []string{"nvidia_smi_utilization_gpu_ratio"}, scale: 1},
		"memory":      {families: []string{"nvidia_smi_memory_used_bytes"}, scale: 1},
		"power":       {families: []string{"nvidia_smi_power_draw_watts"}, scale: 1},
		"fan":         {families: []string{"nvidia_smi_fan_speed_ratio"}, scale: 1},
		"temperature": {families: []string{"nvidia_smi_temperature_gpu"}, scale: 1},
		"energy":      {families: []string{"nvidia_smi_energy_joules_total"}, scale: 1, counter: true},
		"instances":   {families: []string{"nvidia_smi_mig_memory_used_bytes"}, scale: 1},
	},
	"nvidia_gpu_prometheus_exporter": {
		"busy":        {families: []string{"nvidia_gpu_duty_cycle"}, scale: 0.01},
		"memory":      {families: []string{"nvidia_gpu_memory_used_bytes"}, scale: 1},
		"power":       {families: []string{"nvidia_gpu_power_usage_milliwatts"}, scale: 0.001},
		"fan":         {families: []string{"nvidia_gpu_fanspeed_percent"}, scale: 0.01},
		"temperature": {families: []string{"nvidia_gpu_temperature_celsius"}, scale: 1},
	},
}

// The GPUs of the script, and what happens on them.
const (
	shared   = iota // a steady duty, by two pods and a process of the host
	bursts          // short bursts of activity
	refusing        // some readings are not supported
	falling         // lost at the end
	mig             // two MIG instances, one by a DRA claim
	claimed         // a DRA claim's
	brief           // processes of half a second, by one of two pods
	idle            // nothing
	gpus
)

const script = `scenario 1
title "truth"
include boards/h100-sxm.scenario
symbols R580
system DriverVersion = "580.105.08"
system NVMLVersion = "13.580.105.08"
system CudaDriverVersion = 13000
%sprocess gpu=0 pid=100 memory=10GiB busy=25%% period=1700ms
process gpu=0 pid=101 memory=6GiB busy=12%% period=1700ms phase=700ms
process gpu=0 pid=102 memory=1GiB busy=5%% period=1700ms phase=1200ms
load gpu=1 busy=4%% period=5s
load gpu=3 busy=90%% period=1s
mig gpu=4 layout="gi=5 profile=2g.20gb start=0 size=2 index=0 uuid=MIG-%[2]s5 ; gi=9 profile=1g.10gb start=2 size=1 index=1 uuid=MIG-%[2]s9"
process gpu=4 pid=105 gi=5 memory=14GiB busy=90%% period=2s
process gpu=4 pid=109 gi=9 memory=3GiB busy=20%% period=1s
process gpu=5 pid=110 memory=20GiB busy=50%% period=1s
process gpu=6 pid=111 memory=2GiB busy=10%% period=1s
at %[3]s gpu 3 lose
at %[4]s gpu 3 restore
`

// migUUID is that of the MIG devices, less its last digit.
const migUUID = "5a0e2005-1d11-5a01-8b00-00000000000"

const pods = `allocatable nvidia.com/gpu GPU-0%[1]s::0 GPU-0%[1]s::1 GPU-1%[1]s
pod ml/train container main nvidia.com/gpu=GPU-0%[1]s::0 pids=100
pod ml/serve container main nvidia.com/gpu=GPU-0%[1]s::1 pids=101
pod ml/slice container main claim=slice driver=gpu.nvidia.com device=gpu-4-mig-2g20gb-14-0 pids=105
pod ml/claim container main claim=whole driver=gpu.nvidia.com device=gpu-5 pids=110
pod ml/brief container main nvidia.com/gpu=GPU-6%[1]s::0 pids=%[2]s
pod ml/steady container main nvidia.com/gpu=GPU-6%[1]s::1 pids=111
`

const uuidTail = "aaaaaaa-0000-4000-8000-000000000000"

// poll is the longest time that a counter may lag behind.
const poll = 6 * time.Second

// A process of the pod brief works all of its life.
const firstBrief = 200

func briefs(length time.Duration) int { return int(length / (2 * time.Second)) }

func briefTime(pid int) (start, end time.Duration) {
	start = time.Duration(pid-firstBrief)*2*time.Second + time.Second
	return start, start + 500*time.Millisecond
}

// node returns the script and the pods, for a measurement that ends, with the loss of a GPU, at lost; the GPU is back at restored.
func node(lost, restored time.Duration) (scenarioText, podText string) {
	var devices, processes strings.Builder
	for i := range gpus {
		fmt.Fprintf(&devices, "gpu %d board=h100 uuid=GPU-%d%s pci=0000:%d8:00.0 minor=%d\n", i, i, uuidTail, i+1, i)
		for _, call := range []string{"PowerUsage", "Field[185,gpu]", "Field[186,gpu]", "MemoryInfo", "MemoryInfo_v2"} {
			if i == refusing {
				fmt.Fprintf(&devices, "  %s = !NOT_SUPPORTED\n", call)
			}
		}
	}
	var pids []string
	for pid := firstBrief; pid-firstBrief < briefs(lost); pid++ {
		start, end := briefTime(pid)
		pids = append(pids, strconv.Itoa(pid))
		fmt.Fprintf(&processes, "process gpu=%d pid=%d memory=1GiB busy=100%% period=1s from=%s to=%s\n", brief, pid, start, end)
	}
	return fmt.Sprintf(script, devices.String(), migUUID, lost, restored) + processes.String(),
		fmt.Sprintf(pods, uuidTail, strings.Join(pids, ","))
}

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
	found, err := score(ctx, profiles[*profile], 8*time.Second, *length, *interval, flag.Args())
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

// measurement is what was scraped of an exporter, and when.
type measurement struct {
	names map[string]metric
	truth func(device int) scenario.Truth
	// A GPU is lost after the scrapes of steady; the exporter is stopped after those of after and started again.
	steady, after, again []sample
}

// score runs the exporter, gives it time to settle, and returns the verdicts.
func score(ctx context.Context, names map[string]metric, settle, length, interval time.Duration, command []string) (
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
	scenarioText, podText := node(lost, lost+7*interval/4)
	s, err := scenario.Parse("truth", scenarioText, os.DirFS(filepath.Join(root, "testdata", "scenarios")))
	if err != nil {
		return nil, err
	}
	listed, err := standin.ParsePods("pods", strings.NewReader(podText))
	if err != nil {
		return nil, err
	}
	library, err := standin.BuildFakeNVML(ctx, s.Symbols, dir)
	if err != nil {
		return nil, err
	}
	trees, err := standin.WriteTrees(dir, s, listed)
	if err != nil {
		return nil, err
	}
	kubelet := standin.NewKubelet()
	kubelet.SetNode(listed)
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
	place := strings.NewReplacer("{address}", address, "{library}", library, "{socket}", socket, "{host}", filepath.Dir(trees.Sysfs))
	for i := range command {
		command[i] = place.Replace(command[i])
	}
	// A process that has ended has no files.
	for pid := firstBrief; pid-firstBrief < briefs(lost); pid++ {
		_, end := briefTime(pid)
		gone := time.AfterFunc(end-control.Now(), func() { _ = os.RemoveAll(filepath.Join(trees.Procfs, strconv.Itoa(pid))) })
		defer gone.Stop()
	}
	m := measurement{names: names, truth: s.Truth}
	for again := range 2 {
		exporter := exec.Command(command[0], command[1:]...)
		exporter.Env = append(append(os.Environ(), env...), "LD_LIBRARY_PATH="+filepath.Dir(library))
		exporter.Stderr = os.Stderr
		if err := exporter.Start(); err != nil {
			return nil, err
		}
		from, to := settle, lost+2*interval
		if again == 1 {
			from = control.Now() + settle/2
			to = from + interval
		}
		err := m.scrape(ctx, address, control, from, to, interval, lost)
		_ = exporter.Process.Signal(syscall.SIGTERM)
		_ = exporter.Wait()
		if err != nil {
			return nil, err
		}
	}
	return m.judge(), nil
}

// scrape scrapes from one time of the script to another.
func (m *measurement) scrape(ctx context.Context, address string, clock *scenario.Control, from, to, interval, lost time.Duration) error {
	restarted := from > lost
	for next := from; next <= to; next += interval {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(next - clock.Now()):
		}
		page, err := testkit.Client{}.Fetch(ctx, "http://"+address+"/metrics")
		families := map[string]*dto.MetricFamily{}
		if err == nil {
			families, err = testkit.Families(page)
		}
		if err != nil && next < lost {
			return err // after that, it is an answer
		}
		s := sample{clock.Now(), families}
		switch {
		case restarted:
			m.again = append(m.again, s)
		case s.at > lost:
			m.after = append(m.after, s)
		default:
			m.steady = append(m.steady, s)
		}
	}
	return nil
}

// of returns the sum of a GPU's series, and whether there is any. A pod other than "" selects its series.
func (m metric) of(s sample, device int, pod string) (sum float64, found bool) {
	uuid := strconv.Itoa(device) + uuidTail
	name, value, filtered := strings.Cut(m.labels, "=")
	for _, family := range m.families {
		for _, series := range s.families[family].GetMetric() {
			own, matches, named := false, !filtered, pod == ""
			for _, l := range series.GetLabel() {
				own = own || strings.Contains(l.GetValue(), uuid) || device == mig && strings.Contains(l.GetValue(), migUUID)
				matches = matches || l.GetName() == name && l.GetValue() == value
				named = named || l.GetName() == "pod" && l.GetValue() == pod
			}
			if own && matches && named {
				sum += m.scale * (series.GetGauge().GetValue() + series.GetCounter().GetValue() + series.GetUntyped().GetValue())
				found = true
			}
		}
	}
	return sum, found
}

// over is the increase of a counter, or a gauge times the time, over scrapes; a counter that falls starts at 0 as for
// Prometheus.
func (m metric) over(scrapes []sample, device int, pod string) (sum float64, found bool) {
	last, seen := 0.0, time.Duration(0)
	for i, s := range scrapes {
		v, ok := m.of(s, device, pod)
		found = found || ok
		if !ok {
			continue
		}
		switch {
		case i == 0 || !m.counter && seen == 0:
		case !m.counter:
			sum += v * (s.at - seen).Seconds()
		case v < last:
			sum += v
		default:
			sum += v - last
		}
		last, seen = v, s.at
	}
	return sum, found
}

// judge compares what the scrapes say with the script.
func (m *measurement) judge() []verdict {
	var out []verdict
	ask := func(question string, metrics []string, answer func() (found string, ok bool)) {
		v := verdict{question, "no such metric", "–"}
		if !slices.ContainsFunc(metrics, func(name string) bool { _, has := m.names[name]; return !has }) {
			var ok bool
			if v.Found, ok = answer(); ok {
				v.Verdict = "ok"
			} else {
				v.Verdict = "**wrong**"
			}
		}
		out = append(out, v)
	}
	m.judgeGPUs(ask)
	m.judgePods(ask)
	m.judgeRestart(ask)
	return out
}

// asker adds a verdict; without the metrics there is none.
type asker func(question string, metrics []string, answer func() (found string, ok bool))

func near(format string, got, want, tolerance float64, found bool) (string, bool) {
	if !found {
		return "absent", false
	}
	return fmt.Sprintf(format, got), math.Abs(got-want) <= tolerance
}

func absent(v float64, found bool) (string, bool) {
	if found {
		return fmt.Sprint(v), false
	}
	return "absent", true
}

const gib = 1 << 30

func (m *measurement) judgeGPUs(ask asker) {
	first, last := m.steady[0], m.steady[len(m.steady)-1]
	seconds := (last.at - first.at).Seconds()
	// A counter is as of the exporter's last poll, and a burst may be at an end of the measurement.
	for _, duty := range []struct {
		question string
		device   int
		slack    float64
	}{{"steady duty", shared, 1}, {"bursts of 0.2 s every 5 s", bursts, 0.2}, {"processes of 0.5 s every 2 s beside another", brief, 1},
		{"two busy MIG instances", mig, 1}} {
		want := float64(m.truth(duty.device).Busy(first.at, last.at)) / seconds
		ask(fmt.Sprintf("%s: %.1f %% busy", duty.question, 100*want), []string{"busy"}, func() (string, bool) {
			got, found := m.names["busy"].over(m.steady, duty.device, "")
			if !found && duty.device == mig {
				return "absent", true
			}
			return near("%.1f %%", 100*got/seconds, 100*want, 100*(0.01+duty.slack/seconds), found)
		})
	}
	ask("an idle GPU: 0 % busy, not absent", []string{"busy"}, func() (string, bool) {
		got, found := m.names["busy"].over(m.steady, idle, "")
		return near("%.1f %%", 100*got/seconds, 0, 0, found)
	})
	for _, use := range []struct {
		question, name string
		device         int
	}{{"memory in use", "memory", shared}, {"memory of MIG instances", "instances", mig}} {
		want := float64(m.truth(use.device).Allocated(last.at))
		ask(fmt.Sprintf("%s: %.2f GiB", use.question, want/gib), []string{use.name}, func() (string, bool) {
			got, found := m.names[use.name].of(last, use.device, "")
			return near("%.2f GiB", got/gib, want/gib, 0.02*want/gib, found)
		})
	}
	for _, name := range []string{"power", "memory", "fan"} {
		question := "a GPU without " + name + " reading: absent, not 0"
		ask(question, []string{name}, func() (string, bool) { return absent(m.names[name].of(last, refusing, "")) })
	}
	ask("a lost GPU: no temperature", []string{"temperature"}, func() (string, bool) {
		return absent(m.names["temperature"].of(m.after[len(m.after)-1], falling, ""))
	})
	ask("the other GPUs of its node go on", []string{"temperature"}, func() (string, bool) {
		n := 0
		for _, s := range m.after {
			if _, ok := m.names["temperature"].of(s, shared, ""); ok {
				n++
			}
		}
		return fmt.Sprintf("in %d of %d scrapes", n, len(m.after)), n == len(m.after)
	})
	joules := float64(m.truth(shared).Energy(first.at, last.at))
	ask(fmt.Sprintf("energy: %.0f J", joules), []string{"energy"}, func() (string, bool) {
		got, found := m.names["energy"].over(m.steady, shared, "")
		return near("%.0f J", got, joules, (0.05+1/seconds)*joules, found)
	})
}

func (m *measurement) judgePods(ask asker) {
	first, last := m.steady[0], m.steady[len(m.steady)-1]
	ask("containers of a shared GPU and the rest add up to its memory", []string{"pods", "rest"}, func() (string, bool) {
		sum, _ := m.names["pods"].of(last, shared, "")
		rest, _ := m.names["rest"].of(last, shared, "")
		total, found := m.names["memory"].of(last, shared, "")
		text, ok := near("%.2f", (sum+rest)/gib, total/gib, 0, found)
		return fmt.Sprintf("%s of %.2f GiB", text, total/gib), ok
	})
	for _, pod := range []struct {
		question, pod string
		device        int
		gib           float64
	}{{"first of two pods that share a GPU", "train", shared, 10}, {"second of them", "serve", shared, 6},
		{"pod of a DRA claim for a GPU", "claim", claimed, 20}, {"pod of a DRA claim for a MIG device", "slice", mig, 14}} {
		ask(fmt.Sprintf("%s: %.2f GiB", pod.question, pod.gib), []string{"pods"}, func() (string, bool) {
			got, found := m.names["pods"].of(last, pod.device, pod.pod)
			return near("%.2f GiB", got/gib, pod.gib, 0.02*pod.gib, found)
		})
	}
	var short float64
	for pid := firstBrief; pid-firstBrief < briefs(last.at); pid++ {
		short += float64(m.truth(brief).ProcessBusy(pid, first.at, last.at))
	}
	ask(fmt.Sprintf("busy time of the pod with processes of 0.5 s: %.1f s", short), []string{"pods busy"}, func() (string, bool) {
		got, found := m.names["pods busy"].over(m.steady, brief, "brief")
		return near("%.1f s", got, short, 1+0.05*short, found)
	})
	ask("busy time of its pods and the rest add up to the GPU's", []string{"pods busy", "rest busy"}, func() (string, bool) {
		pods, _ := m.names["pods busy"].of(last, brief, "")
		rest, _ := m.names["rest busy"].of(last, brief, "")
		total, found := m.names["busy"].of(last, brief, "")
		return fmt.Sprintf("%.1f of %.1f s", pods+rest, total), found && math.Abs(pods+rest-total) < 0.001*total
	})
}

// judgeRestart asks about the time around the exporter's restart.
func (m *measurement) judgeRestart(ask asker) {
	before := m.after[len(m.after)-1:]
	ask("after a restart of the exporter the pods have their names", []string{"pods"}, func() (string, bool) {
		n := 0
		for pod, device := range map[string]int{"train": shared, "serve": shared, "claim": claimed, "slice": mig, "steady": brief} {
			if _, found := m.names["pods"].of(m.again[0], device, pod); found {
				n++
			}
		}
		return fmt.Sprintf("%d of 5 pods", n), n == 5
	})
	all := slices.Concat(m.steady, m.after, m.again)
	from, stopped, started, end := all[0].at, before[0].at, m.again[0].at, all[len(all)-1].at
	for _, counter := range []struct {
		name, unit string
		truth      func(from, to time.Duration) float64
	}{
		{"busy", "s", func(from, to time.Duration) float64 { return float64(m.truth(claimed).Busy(from, to)) }},
		{"energy", "J", func(from, to time.Duration) float64 { return float64(m.truth(claimed).Energy(from, to)) }},
	} {
		// What happened while it did not run may be missing, and up to a poll's interval at either end.
		want, down, slack := counter.truth(from, end), counter.truth(stopped, started), counter.truth(end-poll, end)
		ask(fmt.Sprintf("%s over a restart: %.0f %s", counter.name, want, counter.unit), []string{counter.name}, func() (string, bool) {
			got, found := m.names[counter.name].over(all, claimed, "")
			return fmt.Sprintf("%.0f %s", got, counter.unit), found && got <= want+slack && got >= want-slack-down
		})
	}
}
