package report_test

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report"
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
	must.OK(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must.OK(t, err)
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
		s.Add("pod:gpu_workload:info", reporttest.Constant(1),
			append(l[4:8:8], "workload_type", "Deployment", "workload", "diffusion")...)
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

// table reads a CSV file with a head.
func table(t *testing.T, file string) (out []map[string]string) {
	t.Helper()
	f, err := os.Open(file)
	must.OK(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	must.OK(t, err)
	for _, r := range rows[1:] {
		m := map[string]string{}
		for i, v := range r {
			m[rows[0][i]] = v
		}
		out = append(out, m)
	}
	return out
}

func number(s string) int { v, _ := strconv.ParseFloat(s, 64); return int(v) }

// TestPlacementOfTrace places the pods of a real cluster on its nodes: it takes seconds, and what is given back is never
// more than what the nodes have left.
func TestPlacementOfTrace(t *testing.T) {
	dir := trace(t, "fleet-2023")
	const steps = 12_902_960/3600 + 1
	var nodes []replay.Node
	gpus := 0
	for _, n := range table(t, filepath.Join(dir, "nodes.csv")) {
		if c := number(n["gpu"]); c > 0 {
			nodes = append(nodes, replay.Node{ID: n["sn"], GPUs: c, To: steps})
			gpus += c
		}
	}
	var pods []replay.Pod
	for _, p := range table(t, filepath.Join(dir, "pods.csv")) {
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

// gpuOfTrace is a GPU while pods are placed: what is left of it, in thousandths.
type gpuOfTrace struct{ left int }

// placedOfTrace is a pod on a GPU.
type placedOfTrace struct {
	name, workload, owner, node, uuid, model string
	from, to                                 int64
	share, busy                              float64
}

// TestFleetOfTrace reports on a real fleet of 6,212 GPUs of seven models, on which the pods of two weeks are placed: no figure and no
// sentence contradicts the list of nodes. How busy pods are is invented, as the trace has no activity.
func TestFleetOfTrace(t *testing.T) {
	dir := trace(t, "fleet-2023")
	const end, window, step = int64(12_902_960), int64(14 * 86400), int64(300)
	begin := time.Date(2026, 2, 2, 0, 0, 0, 0, time.UTC).Unix()
	type node struct {
		id, model string
		gpus      []gpuOfTrace
	}
	type account struct{ nodes, gpus, peak int }
	var nodes []*node
	of, list := map[string]*account{}, map[string]*node{}
	for _, n := range table(t, filepath.Join(dir, "nodes.csv")) {
		if c := number(n["gpu"]); c > 0 {
			x := &node{n["sn"], n["model"], slices.Repeat([]gpuOfTrace{{1000}}, c)}
			nodes, list[x.id] = append(nodes, x), x
			if of[x.model] == nil {
				of[x.model] = &account{}
			}
			of[x.model].nodes++
			of[x.model].gpus += c
		}
	}
	pods := slices.DeleteFunc(table(t, filepath.Join(dir, "pods.csv")), func(p map[string]string) bool {
		return number(p["num_gpu"]) == 0 || p["scheduled_time"] == ""
	})
	slices.SortStableFunc(pods, func(x, y map[string]string) int { return number(x["scheduled_time"]) - number(y["scheduled_time"]) })
	type ending struct {
		at    int64
		gpu   *gpuOfTrace
		milli int
	}
	var endings []ending
	var placed []placedOfTrace
	for i, p := range pods {
		n, milli, from, to := number(p["num_gpu"]), number(p["gpu_milli"]), int64(number(p["scheduled_time"])),
			int64(number(p["deletion_time"]))
		endings = slices.DeleteFunc(endings, func(e ending) bool {
			if e.at <= from {
				e.gpu.left += e.milli
			}
			return e.at <= from
		})
		var best *node
		least := 1 << 30
		for _, x := range nodes {
			room, left := 0, 0
			for _, g := range x.gpus {
				if left += g.left; g.left >= milli {
					room++
				}
			}
			if room >= n && left < least {
				best, least = x, left
			}
		}
		if best == nil {
			t.Fatalf("no place for %s", p["name"])
		}
		kind, busy := "Deployment", 0.03+0.4*float64(i*7919%101)/101
		if p["qos"] == "BE" {
			kind, busy = "Job", 0.7+0.3*float64(i%7)/7
		}
		for k := range best.gpus {
			if g := &best.gpus[k]; n > 0 && g.left >= milli {
				n--
				g.left -= milli
				endings = append(endings, ending{to, g, milli})
				if to <= end-window {
					continue
				}
				placed = append(placed, placedOfTrace{name: p["name"], owner: kind, node: best.id, model: best.model,
					workload: strings.ToLower(p["qos"]) + "-" + p["gpu_milli"] + "-" + p["cpu_milli"],
					uuid:     best.id + "-" + strconv.Itoa(k), from: begin + max(0, from-(end-window)),
					to:    begin + min(window, to-(end-window)),
					share: float64(milli) / 1000, busy: busy * float64(milli) / 1000})
			}
		}
	}
	s := &reporttest.Server{}
	add := func(name string, from, to int64, v float64, pairs ...string) {
		s.Add(name, reporttest.Constant(v), pairs...)
		s.Series[len(s.Series)-1].From, s.Series[len(s.Series)-1].To = from, to
	}
	steps := int(window / step)
	onGPU := map[string][]int{} // pods on a GPU
	allocated, busy := map[string][]float64{}, map[string][]float64{}
	peaks := map[string][]int{}
	for _, x := range nodes {
		allocated[x.id], busy[x.id] = make([]float64, steps+1), make([]float64, steps+1)
		if peaks[x.model] == nil {
			peaks[x.model] = make([]int, steps+1)
		}
		for k := range x.gpus {
			uuid := x.id + "-" + strconv.Itoa(k)
			onGPU[uuid] = make([]int, steps+1)
			add("gpu_info", 0, 0, 1, "node", x.id, "uuid", uuid, "model", x.model)
			add("gpu_memory_total_bytes", 0, 0, 16<<30, "node", x.id, "uuid", uuid)
		}
	}
	for _, p := range placed {
		for k := int((p.from - begin + step - 1) / step); k < int((p.to-begin)/step); k++ {
			if onGPU[p.uuid][k]++; onGPU[p.uuid][k] == 1 {
				allocated[p.node][k]++
				peaks[p.model][k]++
				of[p.model].peak = max(of[p.model].peak, peaks[p.model][k])
			}
			busy[p.node][k] += p.busy
		}
		l := []string{"node", p.node, "uuid", p.uuid, "namespace", "trace", "pod", p.name}
		from, to := begin+(p.from-begin+step-1)/step*step, begin+(p.to-begin)/step*step
		add("gpu_container_allocated_seconds_total", from, to, p.share, l...)
		add("gpu_container_observed_seconds_total", from, to, 1, l...)
		add("gpu_container_busy_seconds_total", from, to, p.busy, l...)
		add("gpu_container_allocation_ratio", from, to, p.share, append(slices.Clone(l), "resource", "nvidia_com_gpu")...)
		add("gpu_container_memory_used_bytes", from, to, 2<<30, l...)
		add("pod:gpu_workload:info", from, to, 1, append(l[4:8:8], "workload_type", p.owner, "workload", p.workload)...)
	}
	for _, x := range nodes {
		l := []string{"node", x.id, "model", x.model}
		count := float64(len(x.gpus))
		add("node:gpu_device_up:count", 0, 0, count, l...)
		for state, of := range map[string]func(k int) float64{
			"busy":        func(k int) float64 { return min(busy[x.id][k], allocated[x.id][k]) },
			"gap":         func(k int) float64 { return allocated[x.id][k] - min(busy[x.id][k], allocated[x.id][k]) },
			"unallocated": func(k int) float64 { return count - allocated[x.id][k] },
		} {
			s.Add("node:gpu_time_seconds:rate5m", func(at int64) (float64, bool) {
				k := int((at - begin - 1) / step)
				return of(max(0, min(steps, k))), at > begin
			}, append(slices.Clone(l), "state", state)...)
		}
	}
	o := report.Defaults()
	o.From, o.To = time.Unix(begin, 0), time.Unix(begin+window, 0)
	o.Now = o.To
	start := time.Now()
	d, err := report.Build(t.Context(), reporttest.Direct{Server: s}, o)
	must.OK(t, err)
	t.Logf("%d pods, %d workloads, %d pieces of advice, in %v", len(placed), len(d.Workloads), len(d.Advice),
		time.Since(start).Round(time.Second))
	if d.Partial || math.Abs(d.Checks.Difference) > 1e-6 || len(d.Nodes) != len(nodes) || len(d.Models) != len(of) {
		t.Errorf("%v, difference %g, %d nodes, %d models", d.PartialReasons, d.Checks.Difference, len(d.Nodes), len(d.Models))
	}
	hours := float64(window) / 3600
	for _, m := range d.Models {
		if a := of[m.Model]; m.GPUs != float64(a.gpus) || math.Abs(m.Hours-float64(a.gpus)*hours) > 0.01 {
			t.Errorf("%s has %g GPUs and %g hours, the list %d", m.Model, m.GPUs, m.Hours, a.gpus)
		}
	}
	for _, n := range d.Nodes {
		if x := list[n.Node]; x == nil || n.GPUs != float64(len(x.gpus)) || n.Model != x.model {
			t.Errorf("%s has %g GPUs of %s", n.Node, n.GPUs, n.Model)
		}
	}
	sums := map[string]float64{}
	for _, a := range d.Advice {
		m := of[a.Model]
		if m == nil {
			t.Errorf("%s: unknown model", a.Title)
			continue
		}
		if a.Saving == document.SavesHours && !a.Unsure() {
			sums[a.Model] += a.SavedHours
		}
		if a.Code != document.AdviseConsolidate {
			continue
		}
		var back, again, left, peak int
		var gpus float64
		fmt.Sscanf(a.Title, "Give back %d", &back)
		names := strings.Split(a.Title[strings.Index(a.Title, ": ")+2:], ", ")
		for _, name := range names {
			name, _, _ = strings.Cut(name, " and ")
			if x := list[name]; x == nil || x.model != a.Model {
				t.Errorf("%s: %s is not of the model", a.Title, name)
			}
		}
		_, rest, _ := strings.Cut(a.Evidence, "on the other ")
		fmt.Sscanf(a.Evidence, "%d pods", &again)
		fmt.Sscanf(strings.Replace(rest, "nodes", "node", 1), "%d node with %f GPUs", &left, &gpus)
		if _, rest, ok := strings.Cut(a.Evidence, ": none would have waited. "); ok {
			fmt.Sscanf(rest, "%d GPUs", &peak)
		}
		t.Logf("%s (%d nodes, %d GPUs, at most %d allocated): %s %s", a.Title, m.nodes, m.gpus, m.peak, a.Evidence, a.Alternatives)
		if rest != "" && (back+left != m.nodes || a.SavedGPUs+gpus != float64(m.gpus) || peak != 0 && peak != m.peak) {
			t.Errorf("the list has %d nodes, %d GPUs, %d at the busiest time: %s %s", m.nodes, m.gpus, m.peak, a.Title, a.Evidence)
		}
		if rest == "" && (m.peak != 0 || back != m.nodes) {
			t.Errorf("%d were allocated: %s %s", m.peak, a.Title, a.Evidence)
		}
	}
	for model, sum := range sums {
		t.Logf("%s: %.0f of %.0f GPU-hours could be freed", model, sum, float64(of[model].gpus)*hours)
		if sum > float64(of[model].peak)*hours {
			t.Errorf("%s: %.0f GPU-hours are saved of %d GPUs that were allocated", model, sum, of[model].peak)
		}
	}
}
