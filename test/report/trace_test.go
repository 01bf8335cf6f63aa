package report_test

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"flag"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/replay"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

var traces = flag.String("traces", "", "directory with the traces genai-2026 and fleet-2023; empty skips them")

func trace(t *testing.T, name string) string {
	t.Helper()
	if *traces == "" {
		t.Skip("-traces is not set: it is a directory with production traces")
	}
	return filepath.Join(*traces, name)
}

// samples are the means of five minutes of each pod.
func samples(t *testing.T, file string) map[string]map[int64]float64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	sum, n := map[string]map[int64]float64{}, map[string]map[int64]float64{}
	for s := bufio.NewScanner(z); s.Scan(); {
		parts := strings.Split(s.Text(), ",")
		at, err1 := strconv.ParseInt(parts[0], 10, 64)
		v, err2 := strconv.ParseFloat(parts[len(parts)-1], 64)
		if err1 != nil || err2 != nil || len(parts) != 3 {
			continue
		}
		if sum[parts[1]] == nil {
			sum[parts[1]], n[parts[1]] = map[int64]float64{}, map[int64]float64{}
		}
		sum[parts[1]][at/300] += v
		n[parts[1]][at/300]++
	}
	for pod, of := range sum {
		for k := range of {
			of[k] /= n[pod][k]
		}
	}
	return sum
}

// TestServiceOfTrace: a day of a real service, repeated for ten days, gets a number of replicas whose capacity its demand
// exceeds within the budget; what an oracle would have saved is logged beside it.
func TestServiceOfTrace(t *testing.T) {
	dir := trace(t, "genai-2026")
	duty := samples(t, filepath.Join(dir, "duty_cycle_percent.csv.gz"))
	memory := samples(t, filepath.Join(dir, "memory_used_bytes.csv.gz"))
	const from, day, model = int64(1662858900), int64(86400), "NVIDIA L40S"
	begin := time.Unix(from/86400*86400, 0).UTC()
	at := func(of map[int64]float64, scale float64) reporttest.At {
		return func(unix int64) (float64, bool) {
			v, ok := of[(begin.Unix()+((unix-1)%day+day)%day)/300]
			return v * scale, ok && v >= 0
		}
	}
	s := &reporttest.Server{}
	pods, demand := 0, map[int64]float64{}
	for pod, of := range duty {
		if len(of) < 200 {
			continue
		}
		pods++
		l := []string{"node", "n" + strconv.Itoa(pods/8), "uuid", pod, "namespace", "genai", "pod", "diffusion-" + pod}
		busy := at(of, 0.01)
		s.Add("gpu_container_allocated_seconds_total", func(u int64) (float64, bool) { _, ok := busy(u); return 1, ok }, l...)
		s.Add("gpu_container_busy_seconds_total", busy, l...)
		s.Add("gpu_container_observed_seconds_total", func(u int64) (float64, bool) { _, ok := busy(u); return 1, ok }, l...)
		s.Add("gpu_container_allocation_ratio", func(u int64) (float64, bool) { _, ok := busy(u); return 1, ok },
			append(l, "resource", "nvidia_com_gpu")...)
		s.Add("gpu_container_memory_used_bytes", at(memory[pod], 1), l...)
		s.Add("pod:gpu_workload:info", reporttest.Constant(1), append(l[4:8:8], "workload_type", "Deployment", "workload", "diffusion")...)
		s.Add("gpu_info", reporttest.Constant(1), append(l[:4:4], "model", model)...)
		s.Add("gpu_memory_total_bytes", reporttest.Constant(48<<30), l[:4]...)
		rule := []string{"node", l[1], "model", model}
		s.Add("node:gpu_device_up:count", reporttest.Constant(1), append(rule, "uuid", pod)...)
		s.Add("node:gpu_time_seconds:rate5m", busy, append(rule, "uuid", pod, "state", "busy")...)
		s.Add("node:gpu_time_seconds:rate5m", func(u int64) (float64, bool) { v, ok := busy(u); return 1 - v, ok },
			append(rule, "uuid", pod, "state", "gap")...)
		for k, v := range of {
			demand[k] += v / 100
		}
	}
	server := httptest.NewServer(s)
	defer server.Close()
	to := begin.AddDate(0, 0, 10)
	d := built(t).run(t, server.URL, "--from="+begin.Format(time.RFC3339), "--to="+to.Format(time.RFC3339),
		"--now="+to.Format(time.RFC3339),
		"--advice.min-coverage=0.8")
	// The oracle knows the highest demand of each hour before it begins.
	hourly := map[int64]float64{}
	for k, v := range demand {
		hourly[k/12] = max(hourly[k/12], v)
	}
	allocated, best := 0.0, 0.0
	for _, w := range d.Workloads {
		allocated += w.Allocated
	}
	for _, v := range hourly {
		best += (float64(pods) - math.Ceil(v)) / float64(len(hourly)*pods) * allocated
	}
	for _, a := range d.Advice {
		t.Logf("%s: %s %s; saves %.0f GPU-hours, confidence %s, throttled %.5f, later %+v", a.Code, a.Title, a.Evidence, a.SavedHours,
			a.Confidence, a.Replay.Throttled, a.Validation)
		if a.Code != document.AdviseReplicas {
			continue
		}
		t.Logf("%d pods, %.0f GPU-hours; an oracle of each hour would save %.0f: %.0f %% of it are advised", pods, allocated, best,
			100*a.SavedHours/best)
		if a.SavedHours < 0.6*best || a.Replay.Throttled > 0.001 {
			t.Errorf("%+v", a)
		}
		return
	}
	for _, w := range d.Workloads {
		t.Logf("%s: %s %s %+v", w.ID, w.NoAdvice, w.NoAdviceReason, w)
	}
	t.Error("no advice about the number of replicas")
}

// TestPlacementOfTrace places the pods of a real cluster on its nodes: it takes seconds, and what is given back is never
// more than what the nodes have left.
func TestPlacementOfTrace(t *testing.T) {
	dir := trace(t, "fleet-2023")
	read := func(name string) []map[string]string {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		rows, err := csv.NewReader(f).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		var out []map[string]string
		for _, r := range rows[1:] {
			m := map[string]string{}
			for i, v := range r {
				m[rows[0][i]] = v
			}
			out = append(out, m)
		}
		return out
	}
	number := func(s string) int { v, _ := strconv.ParseFloat(s, 64); return int(v) }
	const steps = 12_902_960/3600 + 1
	var nodes []replay.Node
	gpus := 0
	for _, n := range read("nodes.csv") {
		if c := number(n["gpu"]); c > 0 {
			nodes = append(nodes, replay.Node{ID: n["sn"], GPUs: c, To: steps})
			gpus += c
		}
	}
	var pods []replay.Pod
	for _, p := range read("pods.csv") {
		n, milli := number(p["num_gpu"]), number(p["gpu_milli"])
		if n == 0 || p["scheduled_time"] == "" {
			continue
		}
		x := replay.Pod{ID: p["name"], GPUs: n, From: number(p["scheduled_time"]) / 3600,
			To: min(steps, number(p["deletion_time"])/3600+1)}
		if milli < 1000 {
			x.Fraction = float64(milli) / 1000
		}
		pods = append(pods, x)
	}
	start := time.Now()
	r := replay.Run(nodes, pods)
	t.Logf("%d nodes, %d GPUs, %d pods in %v: %+v", len(nodes), gpus, len(pods), time.Since(start).Round(time.Millisecond), r)
	if r.Unplaced > 0 || r.Evicted > 0 {
		t.Errorf("%d pods of the trace found no place", r.Unplaced)
	}
	low, high := 0, len(nodes)
	for high-low > 1 {
		mid := (low + high) / 2
		if replay.Run(nodes[mid:], pods).Feasible(0.001) {
			low = mid
		} else {
			high = mid
		}
	}
	t.Logf("%d of %d nodes could be given back", low, len(nodes))
}
