package report

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

func TestPartition(t *testing.T) {
	var s scene
	off := func(from, to time.Time) func(int64) bool {
		return func(at int64) bool { return at <= from.Unix() || at > to.Unix() }
	}
	uses := states{"busy": 3, "gap": 1, "idle": 2, "unallocated": 1, "unavailable": 0.5, "unknown": 0.5}
	// One is off for a day, one leaves after three days, one joins on the fourth.
	s.node("gap", h100, 8, uses, off(monday.Add(48*time.Hour), monday.Add(72*time.Hour)))
	s.node("leaves", h100, 8, uses, func(at int64) bool { return at <= monday.Add(72*time.Hour).Unix() })
	s.node("joins", "NVIDIA L40S", 8, uses, func(at int64) bool { return at > monday.Add(96*time.Hour).Unix() })
	d := s.must(t, nil)
	near(t, "expected", d.Fleet.Hours, 8*(240+72+144))
	near(t, "not reported", d.Fleet.States.NotReported, 8*24)
	near(t, "busy", d.Fleet.States.Busy, 3*(216+72+144))
	near(t, "unknown", d.Fleet.States.Unknown, 0.5*(216+72+144))
	if math.Abs(d.Checks.Difference) > 1e-6 {
		t.Errorf("difference %v", d.Checks.Difference)
	}
	notes := map[string]string{}
	for _, n := range d.Notes {
		notes[n.Code] = n.Text
	}
	if !strings.Contains(notes["nodes_removed"], "leaves") || !strings.Contains(notes["nodes_joined"], "joins") ||
		strings.Contains(notes["nodes_joined"], "gap") {
		t.Errorf("%v", notes)
	}
	// Without samples for less than removedAfter, it is expected and not reported.
	d = s.must(t, func(o *Options) { o.RemovedAfter = 30 * 24 * time.Hour })
	near(t, "not reported", d.Fleet.States.NotReported, 8*(24+168))
	if d.Fleet.EnergyKWh != nil || d.Fleet.Cost != nil || len(d.Models) != 2 || len(d.Nodes) != 3 {
		t.Errorf("%d models, %d nodes", len(d.Models), len(d.Nodes))
	}
}

// A state that is lost on the way shows as a difference, and in no other state.
func TestLostStateIsADifference(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, states{"busy": 7, "idle": 0.97}, nil)
	d := s.must(t, nil)
	near(t, "difference", d.Checks.Difference*1000, 0.03/8*1000)
	if d.Fleet.States.NotReported != 0 {
		t.Errorf("%+v", d.Fleet.States)
	}
}

func TestRulesThatBeginLate(t *testing.T) {
	var s scene
	late := monday.Add(5 * 24 * time.Hour).Unix()
	half := func(v float64) reporttest.At {
		return func(at int64) (float64, bool) { return v, at > late }
	}
	s.add(metric.RuleGPUs, map[string]string{"node": "n1", "model": h100, "state": "busy"}, half(4))
	s.add(metric.RuleCount, map[string]string{"node": "n1", "model": h100}, half(4))
	for _, u := range []string{"a", "b", "c", "d"} {
		s.add(metric.RawGPUs, map[string]string{"node": "n1", "model": h100, "uuid": u, "state": "busy"}, constant(1))
		s.add(metric.RawUp, map[string]string{"node": "n1", "model": h100, "uuid": u}, constant(1))
	}
	l := map[string]string{"namespace": "team", "workload_type": "Deployment", "workload": "app", "model": h100}
	s.add(metric.RuleAllocated, l, half(1))
	s.add(metric.RuleBusy, l, half(1))
	d := s.must(t, nil)
	near(t, "busy", d.Fleet.States.Busy, 4*240)
	from := map[string]float64{}
	for _, x := range d.Sources {
		if x.Data == "GPUs" {
			from[x.From] = x.Hours
		}
		if x.Data == "workloads" {
			near(t, "hours of workloads", x.Hours, 120)
		}
	}
	near(t, "hours from rules", from["rules"], 120)
	near(t, "hours from series", from["series"], 120)
}

// Every series twice: of two replicas of Prometheus that are not deduplicated, or of two scrape jobs, whose sums in the
// rules are doubled.
func TestDuplicates(t *testing.T) {
	for _, jobs := range []bool{false, true} {
		var s scene
		l := map[string]string{"node": "n1", "model": h100}
		gpu := with(l, "uuid", "u")
		s.add(metric.RawGPUs, with(gpu, "state", "busy"), constant(0.75))
		s.add(metric.RawGPUs, with(gpu, "state", "unallocated"), constant(0.25))
		s.add(metric.RawUp, gpu, constant(1))
		s.job(job{pods: []string{"app-0"}, gpus: []string{"u"}, busy: between(monday, tenDays, 0.75, 0), memory: gib})
		label := "replica"
		if jobs {
			label = "job"
		}
		for _, x := range s.Series {
			s.add(x.Name, with(x.Labels, label, "second"), x.At)
		}
		factor := 1.
		if jobs {
			factor = 2
		}
		s.add(metric.RuleGPUs, with(l, "state", "busy"), constant(0.75*factor))
		s.add(metric.RuleGPUs, with(l, "state", "unallocated"), constant(0.25*factor))
		s.add(metric.RuleCount, l, constant(1))
		d := s.must(t, nil)
		near(t, "hours", d.Fleet.Hours, 240)
		near(t, "busy", d.Fleet.States.Busy, 180)
		near(t, "sum", d.Fleet.States.Sum(), 240)
		near(t, "allocated", d.Workloads[0].Allocated, 240)
		near(t, "busy of the workload", d.Workloads[0].Busy, 180)
		if d.Partial || len(d.Notes) == 0 || !strings.Contains(d.Notes[0].Text, "up to 2 times") {
			t.Errorf("%v %+v", d.PartialReasons, d.Notes)
		}
	}
}

// Nodes of Kubernetes without an exporter are expected, and not reported; a kubelet may offer fewer GPUs than there are.
func TestNodesWithoutExporter(t *testing.T) {
	var s scene
	s.node("gpu-1", h100, 8, states{"busy": 8}, nil)
	s.node("gpu-2", h100, 8, states{"busy": 8}, nil)
	for node, n := range map[string]float64{"gpu-1": 8, "gpu-2": 6, "gpu-3": 8, "cpu-1": 0} {
		s.add(metric.KubeCapacity, map[string]string{"node": node, "resource": "nvidia_com_gpu"}, constant(n))
	}
	d := s.must(t, nil)
	near(t, "hours", d.Fleet.Hours, 24*240)
	near(t, "not reported", d.Fleet.States.NotReported, 8*240)
	near(t, "coverage", d.Fleet.Coverage, 2./3)
	if len(d.Nodes) != 3 || d.Nodes[0].Node != "gpu-3" || d.Nodes[0].GPUs != 8 {
		t.Errorf("%+v", d.Nodes)
	}
	near(t, "difference", d.Checks.Difference, 0)
	text := ""
	for _, n := range d.Notes {
		text += n.Text
	}
	var same scene
	same.node("gpu-1", h100, 8, states{"busy": 8}, nil)
	same.add(metric.KubeCapacity, map[string]string{"node": "gpu-1", "resource": "nvidia_com_gpu"}, constant(8))
	if notes := same.must(t, nil).Notes; len(notes) != 2 || notes[0].Code != "node_pools_by_name" || notes[1].Code != "no_single_gpus" {
		t.Errorf("%+v", notes)
	}
	if !strings.Contains(text, "Coverage is 67 %") || !strings.Contains(text, "not reported: gpu-3.") ||
		!strings.Contains(text, "than there are: gpu-2 (6 of 8).") {
		t.Error(text)
	}
}

// With a scrape every five minutes, rates over five minutes have no two samples.
func TestScrapeInterval(t *testing.T) {
	for i, seconds := range []int64{60, 150, 300} {
		want := []string{"[5m]", "[420s]", "[780s]"}[i]
		var s scene
		gpu := map[string]string{"node": "n1", "model": h100, "uuid": "u"}
		s.add(metric.RawGPUs, with(gpu, "state", "busy"), constant(1))
		s.add(metric.RawUp, gpu, constant(1))
		s.add(metric.RuleGPUs, map[string]string{"node": "n1", "model": h100, "state": "busy"}, constant(0.1))
		s.add(metric.RuleCount, map[string]string{"node": "n1", "model": h100}, constant(1))
		s.Interval = seconds
		d := s.must(t, nil)
		slow := want != "[5m]"
		if slow != strings.Contains(d.Fleet.Query, want) ||
			slow != slices.ContainsFunc(d.Notes, func(n document.Note) bool { return n.Code == "scrape_interval" }) {
			t.Errorf("%d s: %s %+v", seconds, d.Fleet.Query, d.Notes)
		}
		if slow {
			near(t, "busy", d.Fleet.States.Busy, 240)
			near(t, "difference", d.Checks.Difference, 0)
		}
	}
}

// An account that does not add up is reported before anything else.
func TestAccountDoesNotAddUp(t *testing.T) {
	var s scene
	s.Extra = `,"warnings":["x"]`
	s.node("n1", h100, 8, states{"busy": 16}, nil)
	d := s.must(t, nil)
	if !d.Partial || !strings.Contains(d.PartialReasons[0], "the account is wrong: the states differ") ||
		!strings.Contains(d.PartialReasons[0], "-100.00 %") {
		t.Errorf("%v", d.PartialReasons)
	}
}

func TestNoData(t *testing.T) {
	var n *NoData
	for _, tt := range []struct{ metric, want string }{
		{"up", "check that this server scrapes it"}, {"DCGM_FI_DEV_GPU_UTIL", "--metrics=dcgm"},
		{"nvidia_smi_utilization_gpu_ratio", "another exporter"}, {"gpu_temperature", "upgrade"},
	} {
		var s scene
		s.add(tt.metric, map[string]string{"node": "n1"}, constant(1))
		_, err := s.report(t, nil)
		if !errors.As(err, &n) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tt.metric, err)
		}
	}
}

// The matchers that find nothing are named.
func TestNoDataOfMatch(t *testing.T) {
	for match, want := range map[string]string{"": "the period has no series", `cluster="x"`: `with --match cluster="x", the period has`} {
		var s scene
		s.add("up", map[string]string{"cluster": "x"}, constant(1))
		if _, err := s.report(t, func(o *Options) { o.Match = match }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", match, err)
		}
	}
}

func TestPartial(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, states{"busy": 8}, nil)
	if d := s.must(t, nil); d.Partial {
		t.Errorf("partial: %v", d.PartialReasons)
	}
	p, err := prices.Parse([]byte("gpus: [{model: '*L40S*', per_hour: 1}]"))
	must.OK(t, err)
	if d := s.must(t, func(o *Options) { o.Prices = p }); !d.Partial || !strings.Contains(strings.Join(d.PartialReasons, " "), h100) {
		t.Errorf("a model without price: %v", d.PartialReasons)
	}
	s.Extra = `,"warnings":["store-gateway 3 did not answer"]`
	if d := s.must(t, nil); !d.Partial || !strings.Contains(strings.Join(d.PartialReasons, " "), "store-gateway 3") {
		t.Errorf("%v", d.PartialReasons)
	}
	s.Extra = ""
	s.add(metric.RuleGPUs, map[string]string{"node": "n1", "model": h100, "state": "dreaming"}, constant(1))
	if d := s.must(t, nil); !d.Partial || !strings.Contains(strings.Join(d.PartialReasons, " "), "dreaming") {
		t.Errorf("a newer ledger: %v", d.PartialReasons)
	}
}

func TestHistoryOfDCGM(t *testing.T) {
	for _, release := range []struct {
		name                          string
		host, util, used, free, power string
		percent, mebibyte             float64
	}{
		{"4.8", "Hostname", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_POWER_USAGE", 1, 1},
		{"4.9", "hostname", "DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_FB_USED_BYTES", "DCGM_FI_DEV_FB_FREE_BYTES",
			"DCGM_FI_DEV_BOARD_POWER_WATTS", 0.01, 1 << 20},
	} {
		t.Run(release.name, func(t *testing.T) {
			historyOfDCGM(t, release.host, release.util, release.used, release.free, release.power, release.percent, release.mebibyte)
		})
	}
}

func historyOfDCGM(t *testing.T, host, util, used, free, power string, percent, mebibyte float64) {
	var s scene
	l := func(uuid, pod string) map[string]string {
		m := map[string]string{host: "n1", "UUID": uuid, "modelName": "NVIDIA A100-SXM4-80GB", "namespace": "gpu-operator",
			"pod": "dcgm-exporter-abcde"}
		if pod != "" {
			m["exported_namespace"], m["exported_pod"] = "team", pod
		}
		return m
	}
	s.add(util, l("a", "train-0"), constant(80*percent))
	s.add(used, l("a", "train-0"), constant(60000*mebibyte))
	s.add(free, l("a", "train-0"), constant(21000*mebibyte))
	s.add(util, l("b", ""), constant(0*percent))
	s.add(util, l("c", "notebook-0"), constant(0*percent))
	s.add(used, l("c", "notebook-0"), constant(0*mebibyte))
	for _, pod := range []string{"x-0", "y-0"} { // time-sliced: both show the GPU's figure
		s.add(util, l("d", pod), constant(50*percent))
	}
	mig := l("e", "mig-0")
	mig["GPU_I_ID"] = "1"
	s.add(used, mig, constant(100*mebibyte))
	s.add(util, l("f", "odd-0"), constant(808334905*percent))
	s.add(power, l("a", "train-0"), constant(300))
	d := s.must(t, func(o *Options) { o.DCGM = true })
	if d.Fleet.EnergyKWh == nil {
		t.Error("no energy")
	} else {
		near(t, "energy", *d.Fleet.EnergyKWh, 72)
	}
	for _, w := range d.Workloads {
		if w.Name == "train" {
			near(t, "memory in GiB", *w.MemoryPeak/(1<<30), 60000.0/1024)
			near(t, "memory of the GPU in GiB", *w.MemoryTotal/(1<<30), 81000.0/1024)
		}
	}
	near(t, "busy", d.Fleet.States.Busy, 240*(0.8+0.5))
	near(t, "gap", d.Fleet.States.Gap, 240*(0.2+0.5))
	near(t, "idle", d.Fleet.States.Idle, 240)
	near(t, "unallocated", d.Fleet.States.Unallocated, 240)
	near(t, "unknown", d.Fleet.States.Unknown, 240*2)
	if d.Checks.Difference > 1e-6 || d.Checks.Difference < -1e-6 {
		t.Errorf("difference %v", d.Checks.Difference)
	}
	for _, w := range d.Workloads {
		switch w.Name {
		case "notebook":
			if w.Advice != document.AdviseRelease {
				t.Errorf("notebook: %q %q %s", w.Advice, w.NoAdvice, w.NoAdviceReason)
			}
		case "x", "y", "mig", "odd":
			if w.Advice != "" || w.Idle != 0 || w.Busy != 0 || w.BusyMean != nil {
				t.Errorf("%s: unknown activity was guessed: %+v", w.Name, w)
			}
		}
	}
}
