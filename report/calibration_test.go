package report

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/metric"
)

// drawn is a workload of a random kind: how busy it is at a time, and until when it is what it was.
func drawn(r *rand.Rand, changes time.Time) (kind string, busy func(int64) float64) {
	level, from, width := 0.02+0.3*r.Float64(), r.IntN(24), 2+r.IntN(10)
	noise := func(at int64) float64 { return 0.9 + 0.2*float64((at/300*7919)%101)/101 }
	daily := func(at int64) float64 {
		if h := (time.Unix(at-1, 0).UTC().Hour() - from + 24) % 24; h < width {
			return level * noise(at)
		}
		return level / 10
	}
	kinds := []string{"constant", "daily", "daily", "weekly", "monthly", "launched later", "stopped", "never used", "grows"}
	kind = kinds[r.IntN(len(kinds))]
	return kind, func(at int64) float64 {
		t := time.Unix(at-1, 0).UTC()
		switch kind {
		case "constant":
			return level * noise(at)
		case "weekly":
			if t.Weekday() == time.Wednesday {
				return min(0.9, 3*daily(at))
			}
			return level / 20
		case "monthly":
			if t.Day() <= 2 {
				return 0.9
			}
			return 0
		case "launched later":
			if at > changes.Unix() {
				return 0.8
			}
			return 0
		case "stopped":
			if at > monday.Add(2*day).Unix() {
				return 0
			}
			return 0.9
		case "never used":
			return 0
		case "grows":
			if at > changes.Unix() {
				return min(1, 2.5*daily(at))
			}
		}
		return daily(at)
	}
}

// TestCalibration makes reports of five weeks of random workloads and compares their advice with the five weeks that
// follow: of what is called high, at least 95 % is confirmed.
func TestCalibration(t *testing.T) {
	const n, weeks = 48, 5
	end := monday.Add(weeks * 7 * day)
	confirmed, all := map[string]int{}, map[string]int{}
	later, worst := 0.0, 0.0
	var s scene
	s.node("n1", h100, n, states{"busy": n}, nil)
	kinds, use := map[string]string{}, map[string]func(int64) float64{}
	r := rand.New(rand.NewPCG(20261122, 17))
	for i := range n {
		name := fmt.Sprintf("w%d", i)
		changes := end.Add(time.Duration(r.IntN(30)) * day)
		kinds[name], use[name] = drawn(r, changes)
		// Half have been allocated for months. GPUs are requested at most three weeks before a launch.
		j := job{name: name, pods: []string{name + "-0"}, busy: use[name], memory: 5 * gib, to: end.Add(weeks * 7 * day)}
		since := monday.Add(-time.Duration(i%2*60) * day)
		if kinds[name] == "launched later" {
			since = changes.Add(-time.Duration(r.IntN(21)) * day)
			j.from = since
		}
		s.job(j)
		l := map[string]string{"node": "n1", "uuid": "GPU-" + name + "-0", "namespace": "team", "pod": name + "-0"}
		at := during(since, j.to, constant(float64(since.Unix())))
		s.add(metric.RawSince, l, at)
		s.add(metric.RawLastBusy, l, at)
		s.add(metric.RawPeak, map[string]string{"node": "n1", "uuid": "GPU-" + name + "-0"}, constant(0.1))
	}
	d := s.must(t, func(o *Options) { o.To, o.Now = end, end })
	for _, a := range d.Advice {
		name := strings.Split(a.Workload, "/")[2]
		limit := busyAbove
		switch {
		case a.Code == "share" || a.Code == "shrink":
			limit = 1 - a.SavedGPUs // the part of the GPU that remains
		case a.Code != "release":
			continue
		}
		exceeded, steps := 0.0, 0.0
		for at := end.Unix() + 300; at <= end.Add(weeks*7*day).Unix(); at += 300 {
			steps++
			if use[name](at) > limit {
				exceeded++
			}
		}
		all[a.Confidence]++
		later, worst = later+exceeded/steps, max(worst, exceeded/steps)
		if exceeded <= 0.001*steps {
			confirmed[a.Confidence]++
		} else {
			t.Logf("%s, %s %s with confidence %s: exceeded in %.3f of later time", kinds[name], name, a.Title, a.Confidence, exceeded/steps)
		}
	}
	for _, level := range []string{"high", "medium", "low"} {
		t.Logf("%-6s %d of %d confirmed", level, confirmed[level], all[level])
	}
	t.Logf("exceeded in %.4f of later time on average, %.3f at worst", later/float64(len(d.Advice)), worst)
	if all["high"] < 5 || float64(confirmed["high"]) < 0.95*float64(all["high"]) {
		t.Errorf("%d of %d with high confidence confirmed", confirmed["high"], all["high"])
	}
}
