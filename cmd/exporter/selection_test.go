package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

// What a node costs with each size: docs/sizing.md has these figures. The demo's node has eight H100 and eleven containers.
func TestSeries(t *testing.T) {
	scenario, pods := load(t, "demo")
	count := func(t *testing.T, flags ...string) (all, ofGPU, ofContainer, ofNode int) {
		t.Helper()
		st := play(t, scenario, pods, flags...)
		st.run(64 * time.Second)
		for text := range st.series() {
			family, labels, _ := strings.Cut(text, "{")
			all++
			switch {
			case strings.HasPrefix(family, "gpu_container_"):
				ofContainer++
			case strings.Contains(labels, `gpu="0"`):
				ofGPU++
			case !strings.Contains(labels, "uuid="):
				ofNode++
			}
		}
		return all, ofGPU, ofContainer / 11, ofNode
	}
	for _, c := range []struct {
		size                           string
		node, gpu, container, exporter int
	}{{"default", 1250, 110, 11, 120}, {"core", 900, 75, 11, 120}} {
		t.Run(c.size, func(t *testing.T) {
			all, gpu, container, node := count(t, "--metrics="+c.size)
			t.Logf("%d series: %d of a GPU, %d of a container on a GPU, %d of the node", all, gpu, container, node)
			if all > c.node || gpu > c.gpu || container > c.container || node > c.exporter {
				t.Errorf("more than %d, %d, %d, %d", c.node, c.gpu, c.container, c.exporter)
			}
		})
	}
}

// A driver call whose values are not exported is not made.
func TestCallsNotMade(t *testing.T) {
	scenario, pods := load(t, "8xh100-loaded")
	calls := func(flags ...string) (sum uint64, made map[string]uint64) {
		st := play(t, scenario, pods, flags...)
		defer st.close()
		st.run(64 * time.Second)
		made = map[string]uint64{}
		for _, c := range st.e.sampler.Latest().Calls {
			sum, made[c.Call] = sum+c.Duration.Count, c.Duration.Count
		}
		return sum, made
	}
	all, every := calls("--metrics=all")
	some, made := calls("--metrics=default")
	t.Logf("%d calls in 64 s with all metrics, %d with the default", all, some)
	for _, call := range []string{"nvmlDeviceGetEncoderStats", "nvmlDeviceGetPowerManagementLimitConstraints",
		"nvmlDeviceGetApplicationsClock", "nvmlDeviceGetGspFirmwareMode"} {
		if every[call] == 0 || made[call] != 0 {
			t.Errorf("%s: %d calls with all metrics, %d with the default", call, every[call], made[call])
		}
	}
	if _, made := calls("--metrics=core", "--collector.power"); made["nvmlDeviceGetPowerManagementLimitConstraints"] == 0 ||
		made["nvmlDeviceGetEncoderStats"] != 0 {
		t.Errorf("with a group's switch: %v", made)
	}
	if _, made := calls("--metrics=core", "--compat=dcgm-4.8"); made["nvmlDeviceGetPowerManagementLimitConstraints"] == 0 {
		t.Error("the page of another exporter's names lacks its readings")
	}
}

func TestMetricFlags(t *testing.T) {
	t.Setenv("GPU_EXPORTER_COLLECTOR_POWER", "false")
	t.Setenv("GPU_EXPORTER_METRIC_DENYLIST", "gpu_xid_events_total\ngpu_typo")
	var log strings.Builder
	c, err := parse(nil, io.Discard, &log)
	if err != nil || c.metrics.Groups["power"] || len(c.metrics.Groups) != 1 {
		t.Fatalf("%v %+v", err, c)
	}
	for _, want := range []string{`msg="no metric has such a name" flag=--metric-denylist expression=gpu_typo`,
		`alert=GPUXIDFatal metrics=gpu_xid_events_total`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, &log)
		}
	}
}
