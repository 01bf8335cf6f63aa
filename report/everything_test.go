package report

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/metric"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/reporttest"
)

// everything is a history with something of all that is read.
func everything() *scene {
	var s scene
	in := func(cluster string, l map[string]string) map[string]string { return with(l, "cluster", cluster) }
	first := len(s.Series)
	s.node("gpu-1", h100, 8, states{"busy": 3, "gap": 1, "idle": 2, "unallocated": 1.5, "unavailable": 0.5}, nil)
	s.node("gpu-2", h100, 8, states{"busy": 4, "unallocated": 4}, func(at int64) bool { return at <= monday.Add(6*day).Unix() })
	s.node("odd-1", "", 1, states{"busy": 1}, nil)
	s.node("odd-1", "NVIDIA L40S", 2, states{"idle": 2}, func(at int64) bool { return at > monday.Add(2*day).Unix() })
	s.node("odd-2", "", 1, states{"unknown": 1}, nil)
	s.node("odd-2", "NVIDIA L40S", 1, states{"busy": 1}, nil)
	s.node("odd-2", "NVIDIA A10", 1, states{"idle": 1}, nil)
	s.add(metric.RulePower, map[string]string{"node": "gpu-1", "model": h100}, constant(3000))
	s.add(metric.RulePower, map[string]string{"node": "odd-2", "model": "NVIDIA A10"}, constant(500))
	s.add(metric.RulePower, map[string]string{"node": "no-gpu", "model": h100}, constant(500)) // no GPU, no node of the fleet
	s.add(metric.RawUnattributed, map[string]string{"node": "gpu-1", "uuid": "GPU-x"}, constant(0.25))
	s.add(metric.RawVersion, map[string]string{"node": "gpu-1", "version": "1.0.0"}, during(monday, monday.Add(3*day), constant(1)))
	s.add(metric.RawVersion, map[string]string{"node": "gpu-1", "version": "1.1.0"}, constant(1))
	s.add(metric.RawVersion, map[string]string{"node": "gpu-2", "version": ""}, constant(1))
	s.add(metric.RuleFaults, map[string]string{"node": "gpu-1", "problem": "needs_reset"}, constant(0.25))
	s.add(metric.RuleFaults, map[string]string{"node": "gpu-1", "problem": "hung"}, constant(0.125))
	s.add(metric.RuleXIDs, map[string]string{"node": "gpu-1", "xid": "79"}, constant(0.001))
	s.add(metric.RuleXIDs, map[string]string{"node": "gpu-1", "xid": "48"}, constant(0.0001))
	s.add(metric.KubeLabels, map[string]string{"node": "gpu-1", "label_eks_amazonaws_com_nodegroup": "training"}, constant(1))
	s.add(metric.KubeLabels, map[string]string{"node": "gpu-2", "label_eks_amazonaws_com_nodegroup": "training"}, constant(1))
	for node, n := range map[string]float64{"gpu-1": 8, "gpu-2": 7, "gpu-3": 4} {
		s.add(metric.KubeCapacity, map[string]string{"node": node, "resource": "nvidia_com_gpu"}, constant(n))
	}
	s.add(metric.RuleFree, map[string]string{"node": "gpu-1", "resource": "nvidia_com_mig_1g_10gb"}, constant(3))
	s.add(metric.RuleFree, map[string]string{"node": "gpu-1", "resource": "nvidia_com_mig_2g_20gb"}, constant(2))
	s.add(metric.RulePending, map[string]string{"namespace": "team", "resource": "nvidia_com_mig_3g_40gb"}, constant(1))
	s.job(job{name: "service", node: "gpu-1", memory: 30 * gib, pods: names("service", 3), busy: hourOf(8, 18, 0.4, 0.02)})
	s.job(job{name: "night", node: "gpu-2", memory: 30 * gib, pods: []string{"night-0"}, to: monday.Add(6 * day), busy: hourOf(0, 6, 1, 0)})
	s.job(job{name: "idle", node: "gpu-1", memory: 2 * gib, pods: []string{"idle-0"}, busy: no})
	// Until the fourth day only the series have it.
	j := job{name: "fallback", node: "gpu-1", memory: 10 * gib, pods: []string{"fallback-0"}, busy: hourOf(0, 24, 0.3, 0)}
	s.allocate(j)
	j.from = monday.Add(4 * day)
	s.rules(j, 1)
	gpu := map[string]string{"node": "gpu-1", "uuid": "GPU-service-0"}
	pod := with(gpu, "namespace", "team", "pod", "idle-0", "uuid", "GPU-idle-0")
	s.add(metric.RawMinute, gpu, constant(0.5))
	s.add(metric.RawPeak, gpu, constant(0.9))
	s.add(metric.RawSince, pod, constant(float64(monday.Add(-200*day).Unix())))
	s.add(metric.RawLastBusy, pod, constant(float64(monday.Add(-200*day).Unix())))
	s.add(metric.RuleLastBusy, map[string]string{"namespace": "team", "workload_type": "Deployment", "workload": "service",
		"model": h100}, constant(float64(tenDays.Add(-7*time.Hour).Unix())))
	s.add(metric.RuleWatts, map[string]string{"namespace": "team", "workload_type": "Deployment", "workload": "service",
		"model": h100}, constant(900))
	for i := first; i < len(s.Series); i++ {
		s.Series[i].Labels = in("east", s.Series[i].Labels)
	}
	west := len(s.Series)
	s.node("gpu-1", h100, 8, states{"busy": 1, "unallocated": 7}, nil)
	s.job(job{name: "service", node: "gpu-1", memory: 30 * gib, pods: names("service", 3), busy: hourOf(0, 24, 0.9, 0)})
	for i := west; i < len(s.Series); i++ {
		s.Series[i].Labels = in("west", s.Series[i].Labels)
	}
	return &s
}

// raws has the same history in two forms: rules, and no rules.
func raws() *scene {
	var s scene
	gpu := func(i int) map[string]string {
		return map[string]string{"node": "n1", "uuid": fmt.Sprintf("GPU-app-%d", i), "model": h100}
	}
	for i := range 2 {
		l := gpu(i)
		s.add(metric.RawGPUs, with(l, "state", "busy"), constant(0.4))
		s.add(metric.RawGPUs, with(l, "state", "gap"), constant(0.6))
		s.add(metric.RawUp, l, constant(1))
		s.add(metric.RawPower, l, constant(300))
		s.add(metric.RawEnergy, l, constant(310))
		c := map[string]string{"node": "n1", "uuid": l["uuid"], "namespace": "team", "pod": fmt.Sprint("app-", i)}
		s.add(metric.RawObserved, c, constant(1))
		s.add(metric.RawUnused, with(c, "state", "gap"), constant(0.6))
		s.add(metric.RawJoules, c, constant(250))
	}
	s.allocate(job{name: "app", memory: 20 * gib, pods: names("app", 2), busy: hourOf(0, 24, 0.4, 0)})
	return &s
}

func TestEverything(t *testing.T) {
	list, err := prices.Parse([]byte("{currency: EUR, energy_per_kwh: 0.5, gpus: [{model: '*H100*', per_hour: 2}, {model: '*L40S*', " +
		"per_hour: 1}, {model: '*B200*', per_hour: 9}]}"))
	must.OK(t, err)
	stages := map[string][2]int{}
	d := everything().must(t, func(o *Options) {
		o.Prices, o.Now, o.Progress = list, o.To.Add(time.Hour), func(stage string, done, total int) { stages[stage] = [2]int{done, total} }
	})
	if stages["namespaces"] != [2]int{1, 1} || len(stages) < 5 {
		t.Errorf("%v", stages)
	}
	// Containers of the team against GPUs, with 60 hours of no container.
	near(t, "check of busy", *d.Checks.Busy, (2016-207.6-648-60)/2016)
	near(t, "check of idle", *d.Checks.Idle, (1104-348)/1104.)
	near(t, "check of gap", *d.Checks.Gap, (240-692.4-72)/240)
	if !d.Generated.Equal(tenDays.Add(time.Hour)) || d.Period.From != monday || d.Period.To != tenDays || d.Period.StepSeconds != 300 ||
		d.Period.Hours != 240 || d.ProfileTable == "" || d.Currency != "EUR" {
		t.Errorf("%+v %+v", d.Generated, d.Period)
	}
	// 8 + 8 in the east and 8 in the west for ten days, one that left after six, three that Kubernetes has alone; two nodes with
	// GPUs of no model and others, of which one joined after two days.
	near(t, "hours", d.Fleet.Hours, 2*8*240+8*144+4*240+(1*240+2*192)+3*240)
	near(t, "not reported", d.Fleet.States.NotReported, 4*240)
	near(t, "unattributed", d.Fleet.Unattributed, 60)
	near(t, "energy", *d.Fleet.EnergyKWh, 3.5*240)
	near(t, "energy cost", *d.Fleet.EnergyCost, 1.75*240)
	near(t, "cost", *d.Fleet.Cost, 2*(2*8*240+8*144)+240+2*192+240)
	// Days in each state: gpu-2 left after six days, a L40S of odd-1 came after two; of gpu-3 nothing is reported.
	nodes := map[string]document.States{
		"east/training/gpu-1": {Busy: 30, Gap: 10, Idle: 20, Unallocated: 15, Unavailable: 5},
		"east/training/gpu-2": {Busy: 24, Unallocated: 24},
		"east/odd/odd-1":      {Busy: 10, Idle: 16}, "east/odd/odd-2": {Busy: 10, Idle: 10, Unknown: 10}, "east//gpu-3": {NotReported: 40},
		"west/gpu/gpu-1": {Busy: 10, Unallocated: 70}}
	for _, n := range d.Nodes {
		name := n.Cluster + "/" + n.NodePool + "/" + n.Node
		want, ok := nodes[name]
		for s := range document.StateCount {
			near(t, name+" "+s.String(), n.States.Of(s), 24*want.Of(s))
		}
		if delete(nodes, name); !ok {
			t.Errorf("node %s", name)
		}
	}
	pools := map[string]float64{"east/training": 8*240 + 8*144, "east/odd": 5*240 + 144, "east/": 960, "west/gpu": 1920}
	for _, n := range d.NodePools {
		near(t, "pool "+n.Cluster+"/"+n.NodePool, n.Hours, pools[n.Cluster+"/"+n.NodePool])
	}
	type row struct {
		confidence, part string
		hours, gpus      float64
	}
	advice := map[string]row{
		"Release 1 GPU of idle": {"high", "1 GPU allocated for 210.0 days with 2.0 GiB of memory in use", 240, 1},
		"Repair the GPUs of gpu-1": {"high", "needs reset for 60.0 GPU-hours, hung for 30.0 GPU-hours, XID 79 3 times, XID 48 1 times", 120,
			0.5},
		// Three slots of 1g and two of 2g.20gb are a GPU: half of it is one device of 3g.40gb.
		"Offer fewer nvidia.com/mig-2g.20gb and more nvidia.com/mig-3g.40gb": {"medium", "1.0 devices of nvidia.com/mig-3g.40gb", 120, 0.5},
		// Twice the demand of 1.2 GPUs is more than two, 1.25 times is not.
		"Run 2 replicas of service instead of 3": {"low", "busy as 0.5 GPUs on average, and above 1.2 in 0.1 %", 240, 1},
	}
	for _, a := range d.Advice {
		want := advice[a.Title]
		if delete(advice, a.Title); a.Confidence != want.confidence || !strings.Contains(a.Evidence, want.part) || a.Cluster != "east" {
			t.Errorf("%+v", a)
		}
		near(t, a.Title+": hours", a.SavedHours, want.hours)
		near(t, a.Title+": GPUs", a.SavedGPUs, want.gpus)
	}
	reasons := map[string]string{"east/service": "", "east/idle": "", "east/night": "no_longer_allocated",
		"east/fallback": "observed_too_short",
		"west/service":  "well_used"}
	for _, w := range d.Workloads {
		if want, ok := reasons[w.Cluster+"/"+w.Name]; !ok || w.NoAdvice != want {
			t.Errorf("%s in %s: %s", w.Name, w.Cluster, w.NoAdvice)
		}
	}
	hours := map[string]float64{}
	for _, s := range d.Sources {
		hours[s.Data+" from "+s.From] = s.Hours
	}
	if !maps.Equal(hours, map[string]float64{"GPUs from rules": 240, "idle periods and single GPUs from series": 240,
		"pending pods from rules": 240, "CPU and memory of nodes from absent": 0, "unattributed busy time from series": 240,
		"workloads from rules": 240}) {
		t.Errorf("%v", hours)
	}
	var codes []string
	for _, n := range d.Notes {
		codes = append(codes, n.Code)
	}
	if strings.Join(codes, " ") != "nodes_without_exporter gpus_not_offered mixed_versions low_coverage nodes_removed unused_prices" {
		t.Errorf("%v", codes)
	}
	if len(advice) > 0 || len(nodes) > 0 || len(d.Workloads) != len(reasons) {
		t.Errorf("missing: %v %v; %d workloads", advice, nodes, len(d.Workloads))
	}
	// Of the second server nothing but series: two GPUs of which the trend has 0.4 busy and 0.6 unused.
	d = raws().must(t, nil)
	near(t, "busy", d.Fleet.States.Busy, 2*96)
	near(t, "gap", d.Workloads[0].Gap, 288)
	near(t, "energy", *d.Workloads[0].EnergyKWh, 120)
	near(t, "time that is missing", d.Fleet.States.NotReported, 48)
}

// failing is a server of which one question has no answer.
type failing struct {
	API
	left int
}

var errBroken = errors.New("broken")

func (f *failing) next() error {
	if f.left--; f.left == -1 {
		return errBroken
	}
	return nil
}

func (f *failing) Range(ctx context.Context, r prom.Range, each func(*prom.Series) error) error {
	return errors.Join(f.next(), f.API.Range(ctx, r, each))
}

func (f *failing) Instant(ctx context.Context, q string, at time.Time, each func(*prom.Series) error) error {
	return errors.Join(f.next(), f.API.Instant(ctx, q, at, each))
}

func (f *failing) Values(ctx context.Context, label, match string, from, to time.Time) ([]string, error) {
	v, err := f.API.Values(ctx, label, match, from, to)
	return v, errors.Join(f.next(), err)
}

// A report is never made of answers of which one is missing.
func TestEachQueryMayFail(t *testing.T) {
	dcgm := scene{}
	l := map[string]string{"Hostname": "n1", "UUID": "a", "modelName": h100, "namespace": "team", "pod": "x-0", "job": "dcgm"}
	for name, v := range map[string]float64{"DCGM_FI_DEV_GPU_UTIL": 50, "DCGM_FI_DEV_FB_USED": 100, "DCGM_FI_DEV_POWER_USAGE": 100, "up": 1,
		metric.KubeOwners: 1, metric.KubeLabels: 1, metric.KubePods: 1} {
		dcgm.add(name, l, constant(v))
	}
	for name, s := range map[string]*scene{"rules": everything(), "series": raws(), "dcgm": &dcgm} {
		o := Defaults()
		o.From, o.To, o.Now, o.Step, o.Parallel = monday, monday.Add(2*day), tenDays, time.Hour, 1
		o.DCGM, o.GroupLabel = name == "dcgm", "team"
		n := 0
		for ; n < 200; n++ {
			api := &failing{reporttest.Direct{Server: &s.Server}, n}
			d, err := Build(t.Context(), api, o)
			if api.left >= 0 {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			if !errors.Is(err, errBroken) || d != nil {
				t.Errorf("%s: query %d is missing: %v", name, n, err)
			}
		}
		if n < 6 || n == 200 {
			t.Errorf("%s: %d queries", name, n)
		}
	}
}
