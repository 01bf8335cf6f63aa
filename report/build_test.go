package report

import (
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

var (
	monday  = time.Date(2026, 2, 2, 0, 0, 0, 0, time.UTC)
	tenDays = monday.Add(240 * time.Hour)
)

// scene is a history in the making.
type scene struct{ reporttest.Server }

func (s *scene) add(name string, labels map[string]string, at func(int64) (float64, bool)) {
	s.Series = append(s.Series, reporttest.Series{Name: name, Labels: labels, At: at})
}

func with(l map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(l)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// node adds a node with GPUs that spend their time as uses says.
func (s *scene) node(name, model string, devs float64, uses map[string]func(int64) (float64, bool), there func(int64) bool) {
	l := map[string]string{"node": name, "model": model}
	for use, at := range uses {
		s.add(ruleGPUs, with(l, "state", use), func(t int64) (float64, bool) {
			v, ok := at(t)
			return v, ok && there(t)
		})
	}
	s.add(ruleCount, l, func(t int64) (float64, bool) { return devs, there(t) })
}

func always(int64) bool { return true }

func constant(v float64) func(int64) (float64, bool) {
	return func(int64) (float64, bool) { return v, true }
}

// workload adds one that holds a GPU and is busy as activity says, with single GPUs if pods are named.
func (s *scene) workload(namespace, kind, name, model string, from, to time.Time, activity func(int64) float64, memory float64, pods ...string) {
	l := map[string]string{"namespace": namespace, "workload_type": kind, "workload": name, "model": model}
	within := func(v func(int64) float64) func(int64) (float64, bool) {
		return func(t int64) (float64, bool) { return v(t), t > from.Unix() && t <= to.Unix() }
	}
	one := func(int64) float64 { return 1 }
	idle := func(t int64) float64 {
		if activity(t) == 0 {
			return 1
		}
		return 0
	}
	s.add(ruleAllocated, l, within(one))
	s.add(ruleObserved, l, within(one))
	s.add(ruleBusy, l, within(activity))
	s.add(ruleBusiest, l, within(activity))
	s.add(ruleUnused, with(l, "state", "idle"), within(idle))
	s.add(ruleUnused, with(l, "state", "gap"), within(func(t int64) float64 { return 1 - activity(t) - idle(t) }))
	s.add(ruleMemory, l, within(func(int64) float64 { return memory }))
	for i, pod := range pods {
		c := map[string]string{"namespace": namespace, "pod": pod, "node": "n1", "uuid": "GPU-" + name + string(rune('0'+i))}
		s.add(rawAllocated, c, within(one))
		s.add(rawBusy, c, within(activity))
		s.add(rawUnused, with(c, "state", "idle"), within(idle))
		s.add(rawShare, with(c, "resource", "nvidia_com_gpu"), within(one))
		s.add(rawMemory, c, within(func(int64) float64 { return memory }))
		s.add(ruleOwners, map[string]string{"namespace": namespace, "pod": pod, "workload_type": kind, "workload": name}, within(one))
		s.add(rawInfo, map[string]string{"node": "n1", "uuid": c["uuid"], "model": model}, within(one))
		s.add(rawTotal, map[string]string{"node": "n1", "uuid": c["uuid"]}, within(func(int64) float64 { return 81559 << 20 }))
	}
}

func (s *scene) report(t *testing.T, change func(*Options)) (*Document, error) {
	t.Helper()
	server := httptest.NewServer(&s.Server)
	defer server.Close()
	client, err := prom.New(prom.Config{URL: server.URL, Concurrency: 2, Chunk: 48 * time.Hour, RetryDelay: time.Millisecond, Timeout: time.Minute}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o := Defaults()
	o.From, o.To, o.Now = monday, tenDays, tenDays
	if change != nil {
		change(&o)
	}
	return Build(t.Context(), client, o)
}

func (s *scene) must(t *testing.T, change func(*Options)) *Document {
	t.Helper()
	d, err := s.report(t, change)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const h100 = "NVIDIA H100 80GB HBM3"

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.002*math.Abs(want)+0.01 {
		t.Errorf("%s is %.3f, want %.3f", what, got, want)
	}
}

func TestPartition(t *testing.T) {
	var s scene
	off := func(from, to time.Time) func(int64) bool {
		return func(at int64) bool { return at <= from.Unix() || at > to.Unix() }
	}
	uses := map[string]func(int64) (float64, bool){"busy": constant(3), "gap": constant(1), "idle": constant(2), "unallocated": constant(1), "unavailable": constant(0.5), "unknown": constant(0.5)}
	// One is off for a day, one leaves after three days, one joins on the fourth.
	s.node("gap", h100, 8, uses, off(monday.Add(48*time.Hour), monday.Add(72*time.Hour)))
	s.node("leaves", h100, 8, uses, func(at int64) bool { return at <= monday.Add(72*time.Hour).Unix() })
	s.node("joins", "NVIDIA L40S", 8, uses, func(at int64) bool { return at > monday.Add(96*time.Hour).Unix() })
	d := s.must(t, nil)
	near(t, "expected", d.Fleet.Hours, 8*(240+72+144))
	near(t, "not reported", d.Fleet.States.NotReported, 8*24)
	near(t, "useful", d.Fleet.States.Busy, 3*(216+72+144))
	near(t, "unobserved", d.Fleet.States.Unknown, 0.5*(216+72+144))
	if math.Abs(d.Checks.Difference) > 1e-6 {
		t.Errorf("closing error %v", d.Checks.Difference)
	}
	notes := map[string]string{}
	for _, n := range d.Notes {
		notes[n.Code] = n.Text
	}
	if !strings.Contains(notes["nodes_removed"], "leaves") || !strings.Contains(notes["nodes_joined"], "joins") || strings.Contains(notes["nodes_joined"], "gap") {
		t.Errorf("%v", notes)
	}
	// Silent for less than it takes to have left, it is expected and not reported.
	d = s.must(t, func(o *Options) { o.RemovedAfter = 30 * 24 * time.Hour })
	near(t, "not reported", d.Fleet.States.NotReported, 8*(24+168))
	if len(d.Models) != 2 || len(d.Nodes) != 3 {
		t.Errorf("%d models, %d nodes", len(d.Models), len(d.Nodes))
	}
}

// A cell that is lost on the way shows as a closing error, and in no other cell.
func TestLostCellIsAClosingError(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, map[string]func(int64) (float64, bool){"busy": constant(7), "idle": constant(0.97)}, always)
	d := s.must(t, nil)
	near(t, "closing error", d.Checks.Difference*1000, 0.03/8*1000)
	if d.Fleet.States.NotReported != 0 {
		t.Errorf("%+v", d.Fleet.States)
	}
}

func TestAdvice(t *testing.T) {
	day := 24 * time.Hour
	hourOf := func(at int64) int { return time.Unix(at-1, 0).UTC().Hour() }
	nothing := func(int64) float64 { return 0 }
	const gib = 1 << 30
	for _, tt := range []struct {
		name         string
		from         time.Time
		to           time.Time
		activity     func(int64) float64
		memory       float64
		code, reason string // "" for silence, then the code of that
	}{
		{"never used", monday, tenDays, nothing, 0, adviseRelease, "never_used"},
		{"loaded", monday, tenDays, nothing, 40 * gib, adviseRelease, "loaded_idle"},
		{"stopped", monday, tenDays, func(at int64) float64 {
			if at < monday.Add(4*day).Unix() {
				return 0.9
			}
			return 0
		}, 20 * gib, adviseRelease, "stopped"},
		{"stopped today", monday, tenDays, func(at int64) float64 {
			if at < tenDays.Add(-10*time.Hour).Unix() {
				return 0.9
			}
			return 0
		}, 20 * gib, "", "well_used"},
		{"young and idle", tenDays.Add(-20 * time.Hour), tenDays, nothing, 0, "", "observed_too_short"},
		{"idle and gone", monday, tenDays.Add(-2 * day), nothing, 0, "", "no_longer_allocated"},
		{"comes back every third day", monday, tenDays, func(at int64) float64 {
			if (at-monday.Unix())/86400%4 == 0 {
				return 0.8
			}
			return 0
		}, 20 * gib, "", "peaks_too_high"},
		{"small", monday, tenDays, func(at int64) float64 {
			if hourOf(at) == 10 {
				return 0.1
			}
			return 0.02
		}, 5 * gib, adviseShrink, "low_activity"},
		{"small with much memory", monday, tenDays, func(int64) float64 { return 0.05 }, 60 * gib, "", "memory_too_high"},
		{"preallocated", monday, tenDays, func(int64) float64 { return 0.1 }, 0.9 * 81559 * (1 << 20), adviseShare, "preallocated_memory"},
		{"bursty", monday, tenDays, func(at int64) float64 {
			if at%3600 == 0 {
				return 0.95
			}
			return 0.01
		}, 5 * gib, "", "peaks_too_high"},
		{"peaks once a week", monday, tenDays, func(at int64) float64 {
			if at > monday.Add(4*day).Unix() && at <= monday.Add(4*day+time.Hour).Unix() {
				return 0.9
			}
			return 0.02
		}, 5 * gib, "", "peaks_too_high"},
		{"used well", monday, tenDays, func(int64) float64 { return 0.85 }, 60 * gib, "", "well_used"},
		{"young and small", tenDays.Add(-3 * day), tenDays, func(int64) float64 { return 0.05 }, 5 * gib, "", "observed_too_short"},
		{"grows out of it", monday, tenDays, func(at int64) float64 {
			if at > monday.Add(9*day).Unix() {
				return 0.25
			}
			return 0.05
		}, 5 * gib, "", "failed_validation"},
	} {
		for _, detail := range []bool{true, false} {
			name := tt.name
			if !detail {
				name += ", sums alone"
			}
			t.Run(name, func(t *testing.T) {
				var s scene
				s.node("n1", h100, 1, map[string]func(int64) (float64, bool){"busy": constant(1)}, always)
				if detail {
					s.workload("team", "Deployment", "app", h100, tt.from, tt.to, tt.activity, tt.memory, "app-0")
				} else {
					s.workload("team", "Deployment", "app", h100, tt.from, tt.to, tt.activity, tt.memory)
					s.add(rawInfo, map[string]string{"node": "n1", "uuid": "u", "model": h100}, constant(1))
					s.add(rawTotal, map[string]string{"node": "n1", "uuid": "u"}, constant(81559<<20))
				}
				d := s.must(t, nil)
				if len(d.Workloads) != 1 {
					t.Fatalf("%d workloads", len(d.Workloads))
				}
				w := d.Workloads[0]
				code, reason := w.Advice, w.NoAdvice
				for _, a := range d.Advice {
					if a.Workload == w.ID {
						reason = a.Reason
						if a.Evidence == "" || a.Change == "" || a.Risk == "" || a.Alternatives == "" || a.Confidence == "" || a.Title == "" || a.SavedHours <= 0 {
							t.Errorf("incomplete: %+v", a)
						}
						t.Logf("%s %s", a.Title, a.Evidence)
					}
				}
				if code != tt.code || reason != tt.reason {
					t.Errorf("%q because %q (%s), want %q because %q", code, reason, w.NoAdviceReason, tt.code, tt.reason)
				}
			})
		}
	}
}

func TestIdleGPUsOfAPod(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, map[string]func(int64) (float64, bool){"busy": constant(8)}, always)
	s.workload("team", "Job", "train", h100, monday, tenDays, func(int64) float64 { return 0.9 }, 1<<34, "train-x", "train-x")
	idle := map[string]string{"namespace": "team", "pod": "train-x", "node": "n1", "uuid": "GPU-idle"}
	s.add(rawBusy, idle, constant(0))
	s.add(rawAllocated, idle, constant(1))
	s.add(rawUnused, with(idle, "state", "idle"), constant(1))
	s.add(rawShare, with(idle, "resource", "nvidia_com_gpu"), constant(1))
	s.add(rawInfo, map[string]string{"node": "n1", "uuid": "GPU-idle", "model": h100}, constant(1))
	d := s.must(t, nil)
	if len(d.Advice) == 0 || d.Advice[0].Code != adviseFewer || !strings.Contains(d.Advice[0].Change, "nvidia.com/gpu: 2") {
		t.Fatalf("%+v", d.Advice)
	}
	near(t, "saved", d.Advice[0].SavedHours, 240)
}

func TestRulesThatBeginLate(t *testing.T) {
	var s scene
	late := monday.Add(5 * 24 * time.Hour).Unix()
	half := func(v float64) func(int64) (float64, bool) {
		return func(at int64) (float64, bool) { return v, at > late }
	}
	s.add(ruleGPUs, map[string]string{"node": "n1", "model": h100, "state": "busy"}, half(4))
	s.add(ruleCount, map[string]string{"node": "n1", "model": h100}, half(4))
	s.add(rawGPUs, map[string]string{"node": "n1", "model": h100, "uuid": "u", "state": "busy"}, constant(4))
	s.add(rawUp, map[string]string{"node": "n1", "model": h100, "uuid": "u"}, constant(4))
	d := s.must(t, nil)
	near(t, "useful", d.Fleet.States.Busy, 4*240)
	from := map[string]float64{}
	for _, x := range d.Sources {
		if x.Data == "GPUs" {
			from[x.From] = x.Hours
		}
	}
	near(t, "hours from rules", from["rules"], 120)
	near(t, "hours from series", from["series"], 120)
}

func TestNothingToReportOn(t *testing.T) {
	var n *NoData
	for _, tt := range []struct{ metric, want string }{
		{"up", "check that this server scrapes it"}, {"DCGM_FI_DEV_GPU_UTIL", "--metrics=dcgm"}, {"nvidia_smi_utilization_gpu_ratio", "another exporter"}, {"gpu_temperature", "upgrade"},
	} {
		var s scene
		s.add(tt.metric, map[string]string{"node": "n1"}, constant(1))
		_, err := s.report(t, nil)
		if !errors.As(err, &n) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tt.metric, err)
		}
	}
}

func TestPartial(t *testing.T) {
	var s scene
	s.node("n1", h100, 8, map[string]func(int64) (float64, bool){"busy": constant(8)}, always)
	if d := s.must(t, nil); d.Partial {
		t.Errorf("partial: %v", d.PartialReasons)
	}
	p, err := prices.Parse([]byte("gpus: [{model: '*L40S*', per_hour: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	if d := s.must(t, func(o *Options) { o.Prices = p }); !d.Partial || !strings.Contains(strings.Join(d.PartialReasons, " "), h100) {
		t.Errorf("a model without price: %v", d.PartialReasons)
	}
	s.Extra = `,"warnings":["store-gateway 3 did not answer"]`
	if d := s.must(t, nil); !d.Partial || !strings.Contains(strings.Join(d.PartialReasons, " "), "store-gateway 3") {
		t.Errorf("%v", d.PartialReasons)
	}
	s.Extra = ""
	s.add(ruleGPUs, map[string]string{"node": "n1", "model": h100, "state": "dreaming"}, constant(1))
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
		{"4.9", "hostname", "DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_FB_USED_BYTES", "DCGM_FI_DEV_FB_FREE_BYTES", "DCGM_FI_DEV_BOARD_POWER_WATTS", 0.01, 1 << 20},
	} {
		t.Run(release.name, func(t *testing.T) {
			historyOfDCGM(t, release.host, release.util, release.used, release.free, release.power, release.percent, release.mebibyte)
		})
	}
}

func historyOfDCGM(t *testing.T, host, util, used, free, power string, percent, mebibyte float64) {
	var s scene
	l := func(uuid, pod string) map[string]string {
		m := map[string]string{host: "n1", "UUID": uuid, "modelName": "NVIDIA A100-SXM4-80GB", "namespace": "gpu-operator", "pod": "dcgm-exporter-abcde"}
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
	near(t, "useful", d.Fleet.States.Busy, 240*(0.8+0.5))
	near(t, "gap", d.Fleet.States.Gap, 240*(0.2+0.5))
	near(t, "idle", d.Fleet.States.Idle, 240)
	near(t, "unallocated", d.Fleet.States.Unallocated, 240)
	near(t, "unobserved", d.Fleet.States.Unknown, 240*2)
	if d.Checks.Difference > 1e-6 || d.Checks.Difference < -1e-6 {
		t.Errorf("closing error %v", d.Checks.Difference)
	}
	for _, w := range d.Workloads {
		switch w.Name {
		case "notebook":
			if w.Advice != adviseRelease {
				t.Errorf("notebook: %q %q %s", w.Advice, w.NoAdvice, w.NoAdviceReason)
			}
		case "x", "y", "mig", "odd":
			if w.Advice != "" || w.Idle != 0 || w.Busy != 0 || w.BusyMean != nil {
				t.Errorf("%s: what is not told was guessed: %+v", w.Name, w)
			}
		}
	}
}
