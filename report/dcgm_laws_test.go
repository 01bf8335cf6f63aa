package report

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/series"
)

const a100 = "NVIDIA A100-SXM4-80GB"

func dcgmOf(hours int, pods bool) *dcgmHistory {
	o := Defaults()
	p := series.NewPeriod(monday, monday.Add(time.Duration(hours)*time.Hour), time.Hour)
	return &dcgmHistory{reader: &reader{p: p, opt: o, q: prom.QL{Cluster: "cluster"}}, gpus: map[gpuKey]*dcgmGPU{},
		series: map[dcgmKey]*dcgmSeries{}, spaces: map[string]*space{}, pods: pods}
}

// TestDCGMStates: the state of a GPU in an hour follows from its activity and the pods that are listed, on a server whose
// series name pods, and on one whose series do not. States, parts of pods and unattributed hours, by hand.
func TestDCGMStates(t *testing.T) {
	type row struct{ pod, instance, profile, busy, memory string }
	for _, tt := range []struct {
		what         string
		pods         bool
		rows         []row
		states       document.States
		unattributed float64
		allocations  string // pod, share, busy, idle
	}{
		{"busy with a pod", true, []row{{"a", "", "", "7", ""}}, document.States{Busy: 0.7, Gap: 0.3}, 0, "a 1 0.7 0; "},
		{"idle with a pod", true, []row{{"a", "", "", "0", ""}}, document.States{Idle: 1}, 0, "a 1 0 1; "},
		{"idle without one", true, []row{{"", "", "", "0", ""}}, document.States{Unallocated: 1}, 0, ""},
		{"busy without one", true, []row{{"", "", "", "4", ""}}, document.States{Busy: 0.4, Unallocated: 0.6}, 0.4, ""},
		{"no series names pods", false, []row{{"", "", "", "4", ""}}, document.States{Busy: 0.4, Unknown: 0.6}, 0.4, ""},
		{"two pods, of which one was busy", true, []row{{"a", "", "", "5", ""}, {"b", "", "", "5", ""}}, document.States{Busy: 0.5,
			Gap: 0.5}, 0,
			"a 0.5 - -; b 0.5 - -; "},
		{"two pods that idle", true, []row{{"a", "", "", "0", ""}, {"b", "", "", "0", ""}}, document.States{Idle: 1}, 0,
			"a 0.5 - -; b 0.5 - -; "},
		{"activity unknown", true, []row{{"a", "", "", "", "1"}}, document.States{Unknown: 1}, 0, "a 1 - -; "},
		{"partitioned, without activity of its devices", true, []row{{"", "", "", "3", ""}, {"a", "1", "3g.40gb", "", "1"}},
			document.States{Unknown: 1}, 0, "a 1 - -; "},
		// Three and two of seven slices; the rest has no device.
		{"devices of two pods", true, []row{{"a", "1", "3g.40gb", "5", ""}, {"b", "2", "2g.20gb", "0", ""}},
			document.States{Busy: 1.5 / 7, Gap: 1.5 / 7, Idle: 2. / 7, Unallocated: 2. / 7}, 0, "a 0.43 0.21 0; b 0.29 0 0.29; "},
		{"a device of a pod and one of none", true, []row{{"a", "1", "3g.40gb", "x", ""}, {"", "2", "2g.20gb", "5", ""}},
			document.States{Busy: 4. / 7, Unallocated: 3. / 7}, 1. / 7, "a 0.43 0.43 0; "},
		{"devices without pods on a server that names none", false, []row{{"", "2", "2g.20gb", "5", ""}},
			document.States{Busy: 1. / 7, Unknown: 1. / 7, Unallocated: 5. / 7}, 1. / 7, ""},
		{"a device whose activity is unknown", true, []row{{"a", "1", "3g.40gb", "5", ""}, {"b", "2", "3g.40gb", "", "1"}},
			document.States{Busy: 1.5 / 7, Gap: 1.5 / 7, Unknown: 3. / 7, Unallocated: 1. / 7}, 0, "a 0.43 0.21 0; b 0.43 - -; "},
		// Several series of one device are one device.
		{"a device with two series", true, []row{{"a", "1", "3g.40gb", "5", ""}, {"b", "1", "3g.40gb", "5", ""}},
			document.States{Busy: 1.5 / 7, Gap: 1.5 / 7, Unallocated: 4. / 7}, 0, "a 0.43 0.21 0; "},
		{"an unknown profile", true, []row{{"a", "1", "3g.40gb", "5", ""}, {"b", "2", "9g.1tb", "5", ""}},
			document.States{Busy: 1.5 / 7, Gap: 1.5 / 7, Unallocated: 4. / 7}, 0, "a 0.43 0.21 0; "},
		// Not more than the GPU.
		{"more devices than fit", true, []row{{"a", "1", "4g.40gb", "0", ""}, {"b", "2", "4g.40gb", "0", ""}}, document.States{Idle: 1}, 0,
			"a 0.57 0 0.57; b 0.43 0 0.43; "},
	} {
		h := dcgmOf(1, tt.pods)
		k := gpuKey{"", "n1", "u"}
		g := &dcgmGPU{model: a100}
		for _, r := range tt.rows {
			s := &dcgmSeries{dcgmKey: dcgmKey{k, "team", r.pod, r.instance, r.profile}}
			s.busy, s.memory = digits(0, r.busy), digits(0, r.memory)
			g.series = append(g.series, s)
		}
		g.present.Max(0, 1)
		f := newFleet(h.p)
		h.account(f, k, g)
		n := f.nodes[nodeKey{"", "n1", a100}]
		f.settle(0)
		if n == nil {
			t.Fatal(tt.what)
		}
		for s := range document.StateCount {
			if math.Abs(n.states.Of(s)-tt.states.Of(s)) > 1e-6 {
				t.Errorf("%s: %v GPUs %s, want %v", tt.what, n.states.Of(s), s, tt.states.Of(s))
			}
		}
		if math.Abs(n.unattributed-tt.unattributed) > 1e-6 {
			t.Errorf("%s: %v unattributed", tt.what, n.unattributed)
		}
		got := ""
		if sp := h.spaces["team"]; sp != nil {
			for _, key := range sorted(sp.allocations) {
				a := sp.allocations[key]
				figure := func(x series.Track) string {
					if x.Len() == 0 {
						return "-"
					}
					return fmt.Sprintf("%.2g", x.Sum())
				}
				idle := figure(a.idle)
				if idle == "-" && a.busy.Len() > 0 {
					idle = "0"
				}
				got += fmt.Sprintf("%s %s %s %s; ", key.pod, figure(a.share), figure(a.busy), idle)
			}
		}
		if got != tt.allocations {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.allocations)
		}
	}
}

// A GPU that is no longer listed is expected for as long as a node may be silent; then it was removed.
func TestDCGMRemoved(t *testing.T) {
	for silent, want := range map[int]float64{0: 100, 24: 100, 25: 75, 60: 40} {
		h := dcgmOf(100, true)
		h.opt.RemovedAfter = 24 * time.Hour
		k := gpuKey{"", "n1", "u"}
		g := &dcgmGPU{model: a100, joules: 3.6e6}
		s := &dcgmSeries{dcgmKey: dcgmKey{gpu: k}}
		for step := range 100 - silent {
			g.present.Max(step, 1)
			s.busy.Max(step, 0)
		}
		g.series = append(g.series, s)
		f := newFleet(h.p)
		h.account(f, k, g)
		f.settle(h.opt.RemovedAfter)
		n := f.nodes[nodeKey{"", "n1", a100}]
		near(t, fmt.Sprint("expected after silence of ", silent), n.expected, want)
		near(t, "unallocated", n.states.Unallocated, float64(100-silent))
		if !n.energy || n.joules != 3.6e6 {
			t.Errorf("%v J", n.joules)
		}
	}
	// An hour in which it was not listed is not reported.
	h, f := dcgmOf(3, true), hourly(3)
	g := &dcgmGPU{model: a100, present: digits(0, "x-x"), series: []*dcgmSeries{{busy: digits(0, "0-0")}}}
	h.account(f, gpuKey{"", "n1", "u"}, g)
	f.settle(0)
	if n := f.nodes[nodeKey{"", "n1", a100}]; n.states.Unallocated != 2 || n.states.NotReported != 1 || n.expected != 3 {
		t.Errorf("%+v", n.states)
	}
	h, f = dcgmOf(10, true), hourly(10)
	if h.account(f, gpuKey{"", "n1", "u"}, &dcgmGPU{joules: 1}); len(f.nodes) != 0 {
		t.Errorf("a GPU that was never present: %+v", f.nodes)
	}
}

// TestDCGMFind: which GPU and which pod a series is of. Series that do not honor labels have the exporter's own pod.
func TestDCGMFind(t *testing.T) {
	h := dcgmOf(10, true)
	h.exporters = map[dcgmTarget]bool{{"j", "mon", "metrics-x"}: true}
	of := func(pairs ...string) (l prom.Labels) {
		for i := 0; i < len(pairs); i += 2 {
			l = append(l, prom.Label{Name: pairs[i], Value: pairs[i+1]})
		}
		return l
	}
	for _, tt := range []struct {
		labels         prom.Labels
		node, ns, pod  string
		cluster, model string
	}{
		{of("Hostname", "h", "hostname", "i", "instance", "j", "UUID", "u", "modelName", "m"), "h", "", "", "", "m"},
		{of("hostname", "i", "instance", "j", "UUID", "u", "cluster", "c"), "i", "", "", "c", ""},
		{of("instance", "j", "UUID", "u", "namespace", "team", "pod", "a"), "j", "team", "a", "", ""},
		{of("instance", "j", "UUID", "u", "namespace", "mon", "pod", "metrics-x", "job", "j"), "j", "", "", "", ""},
		{of("instance", "j", "UUID", "u", "namespace", "mon", "pod", "metrics-x", "job", "k"), "j", "mon", "metrics-x", "", ""},
		{of("instance", "j", "UUID", "u", "namespace", "x", "pod", "nvidia-dcgm-exporter-1"), "j", "", "", "", ""},
		{of("instance", "j", "UUID", "u", "namespace", "x", "pod", "dcgm_exporter"), "j", "", "", "", ""},
		{of("instance", "j", "UUID", "u", "namespace", "mon", "pod", "metrics-x", "job", "j", "exported_namespace", "team",
			"exported_pod", "b"),
			"j", "team", "b", "", ""},
		{of("instance", "j", "namespace", "team", "pod", "a"), "", "", "", "", ""},
		{of("UUID", "u", "namespace", "team", "pod", "a"), "", "", "", "", ""},
	} {
		g, s := h.find(tt.labels)
		if tt.node == "" {
			if g != nil || s != nil {
				t.Errorf("%v: %+v", tt.labels, s)
			}
			continue
		}
		if s.gpu != (gpuKey{tt.cluster, tt.node, "u"}) || s.namespace != tt.ns || s.pod != tt.pod || g.model != tt.model {
			t.Errorf("%v: %+v of %q", tt.labels, s.dcgmKey, g.model)
		}
		if again, same := h.find(tt.labels); again != g || same != s {
			t.Errorf("%v: another series", tt.labels)
		}
	}
	// A series without a model has that of the others, and each pod of a GPU has its own series.
	g, first := h.find(of("Hostname", "h", "UUID", "u", "namespace", "team", "pod", "a"))
	_, second := h.find(of("Hostname", "h", "UUID", "u", "namespace", "team", "pod", "b"))
	if g.model != "m" || len(g.series) != 3 || first == second {
		t.Errorf("%+v", g)
	}
}

// Workloads of allocations alone: hours by state, the device's activity of MIG, and the last busy time.
func TestFillAll(t *testing.T) {
	p := series.NewPeriod(monday, monday.Add(4*time.Hour), time.Hour)
	s := newSpace(p, "team")
	s.shares = true
	of := func(pod, resource, share, busy, idle, memory string) {
		a := s.allocation(allocationKey{"", "team", pod, "n1", pod})
		a.share, a.busy, a.idle, a.memory, a.resource = digits(0, share), digits(0, busy), digits(0, idle), digits(0, memory), resource
	}
	of("whole", "", "xxxx", "70-0", "-x-x", "12")
	of("mig", "nvidia.com/mig-3g.40gb", "44", "20", "-4", "3")
	s.join(newGPUFacts())
	s.fill(series.Span{From: 0, To: 4}, true)
	for _, l := range s.loads {
		want := map[quantity]float64{qAllocated: 4, qObserved: 3, qBusy: 0.7, qGap: 0.3, qIdle: 2, qMemory: 0.3, qBusiest: 0.7,
			qLastBusy: float64(monday.Unix() + 3600)}
		if l.key.name == "mig" {
			want = map[quantity]float64{qAllocated: 0.8, qObserved: 0.8, qBusy: 0.2, qGap: 0.2, qIdle: 0.4, qMemory: 0.3, qBusiest: 0.5,
				qLastBusy: float64(monday.Unix() + 3600)}
		}
		for q, v := range want {
			if math.Abs(l.sum[q]-v) > 1e-6 {
				t.Errorf("%s: quantity %d is %v, want %v", l.key.name, q, l.sum[q], v)
			}
		}
	}
	if len(s.loads) != 2 {
		t.Errorf("%d workloads", len(s.loads))
	}
}

// Each pod's series repeats the GPU's power, which counts once in each hour; what no GPU draws is left out.
func TestDCGMPowerOnce(t *testing.T) {
	var s scene
	for i, pod := range []string{"a", "b"} {
		l := map[string]string{"Hostname": "n1", "UUID": "u", "modelName": a100, "namespace": "team", "pod": pod}
		s.add("DCGM_FI_DEV_GPU_UTIL", l, constant(50))
		s.add("DCGM_FI_DEV_POWER_USAGE", l, constant(300+float64(i)))
	}
	d := s.must(t, func(o *Options) { o.DCGM = true })
	if near(t, "energy", *d.Fleet.EnergyKWh, 72); len(d.Sources) == 0 || d.Sources[0].Series != "DCGM_FI_DEV_GPU_UTIL" ||
		d.Sources[0].Data != "GPUs and workloads" || d.Sources[0].Hours != 240 {
		t.Errorf("%+v", d.Sources)
	}
}
