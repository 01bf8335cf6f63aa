package compat_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// Collector files of dcgm-exporter and of other projects have the families, types and help that they list, but for what is
// said to be absent.
func TestCollectorFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/collectors/*.csv")
	if err != nil || len(files) < 5 {
		t.Fatalf("%q, %v", files, err)
	}
	absent := map[string]string{
		"default-counters.csv":     "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
		"dcp-metrics-included.csv": "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
		"soperator.csv": "DCGM_FI_DEV_VGPU_LICENSE_STATUS DCGM_FI_PROCESS_NAME DCGM_FI_CUDA_DRIVER_VERSION DCGM_FI_DEV_NAME " +
			"DCGM_FI_DEV_MINOR_NUMBER",
	}
	for _, path := range files {
		fields, err := compat.ParseCollectors([]byte(must.Read(t, path)))
		must.OK(t, err)
		p := pageOf(t, compat.Options{Release: compat.DCGM48, Collectors: fields})
		name := filepath.Base(path)
		if got := strings.Join(p.Absent(), " "); got != absent[name] {
			t.Errorf("%s: absent are %s", name, got)
		}
		labels := 0
		for _, f := range fields {
			row, ok := p.rows[f.Field]
			switch {
			case f.Type == "label":
				labels++
			case slices.Contains(p.Absent(), f.Field):
			case !ok || string(row.Type) != f.Type || row.Help != f.Help && f.Help != "":
				t.Errorf("%s: %+v is %s, %s", name, f, row.Type, row.Help)
			}
		}
		withoutLabels := slices.Contains([]string{"private-ai-demo.csv", "prometheus-engine.csv"}, name)
		if want := len(fields) - labels; labels == 0 && !withoutLabels || len(p.rows) > want || len(p.rows) < want-1 {
			t.Errorf("%s: %d families and %d labels of %d lines", name, len(p.rows), labels, len(fields))
		}
	}
}

// The fields that dcgm-exporter's image has are built in.
func TestShippedCollectors(t *testing.T) {
	shipped, err := compat.ShippedCollectors()
	must.OK(t, err)
	file, err := compat.ParseCollectors([]byte(must.Read(t, "testdata/collectors/default-counters.csv")))
	must.OK(t, err)
	fields := func(all []compat.Collector) (out []string) {
		for _, c := range all {
			switch c.Field {
			case "DCGM_FI_DEV_VGPU_LICENSE_STATUS": // absent
			case "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": // a gauge here, as its value is one there
				out = append(out, c.Field)
			default:
				out = append(out, c.Field+" "+c.Type)
			}
		}
		slices.Sort(out)
		return out
	}
	if a, b := fields(shipped), fields(file); !slices.Equal(a, b) {
		t.Errorf("%q\n%q", a, b)
	}
}

func TestCollectorsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"DCGM_FI_DEV_GPU_TEMP, gauge":                "record 1",
		"DCGM_FI_DEV_GPU_TEMP, gauge, a, b":          "want a field, a type and a help text",
		"DCGM_FI_DEV_GPU_TEMP, gague, Temperature":   `unknown type "gague"`,
		"250, DCGM_FI_DEV_FB_TOTAL, gauge":           `"250" is no DCGM field`,
		"DCGM_FI_DEV_GPU_TEMP, gauge, \"Temperature": "quote",
	} {
		if got, err := compat.ParseCollectors([]byte("# a comment\n" + text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	// Fields of releases 1.x, and those that are unknown here, are absent; a field that stands twice is one family.
	fields, err := compat.ParseCollectors([]byte("dcgm_gpu_temp, gauge, a\nDCGM_FI_NEW, gauge, b\nDCGM_FI_DEV_GPU_TEMP, counter, c\n" +
		"DCGM_FI_DEV_GPU_TEMP, gauge, d\n"))
	must.OK(t, err)
	p := pageOf(t, compat.Options{Release: compat.DCGM49, Collectors: fields})
	if !slices.Equal(p.Absent(), []string{"dcgm_gpu_temp", "DCGM_FI_NEW"}) || len(p.rows) != 1 ||
		p.rows["DCGM_FI_DEV_GPU_TEMP"].Help != "c" {
		t.Errorf("%v, %v", p.Absent(), p.rows)
	}
}

// Names of either release have its unit, whatever the others of the file; the labels are those of the file.
func TestCollectorsOfBothReleases(t *testing.T) {
	v := catalogtest.FullView()
	v.GPUs[0].Serial = "1654321"
	v.Pods = []gpu.PodRef{{Namespace: "ml", Pod: "train-0", UID: "u-1"}}
	page := func(text string, s compat.Settings) page {
		fields, err := compat.ParseCollectors([]byte(text))
		must.OK(t, err)
		return pageOf(t, compat.Options{Release: compat.DCGM48, Collectors: fields, Settings: s})
	}
	old := page("DCGM_FI_DEV_SM_CLOCK, gauge, a\nDCGM_FI_DEV_SERIAL, label, b", compat.Settings{NoPodUID: true})
	equal(t, "4.8", old.series(t, v, "DCGM_FI_DEV_SM_CLOCK", "gpu", "Hostname", "hostname", "DCGM_FI_DRIVER_VERSION", "DCGM_FI_DEV_SERIAL",
		"pod", "pod_uid"), map[string]float64{"0 node-1 node-1  1654321 train-0 ": 1980})
	both := page("DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, a\nDCGM_FI_DEV_MEM_CLOCK, gauge, b\nDCGM_FI_SYSTEM_DRIVER_VERSION, label, c",
		compat.Settings{NoHostname: true, OldLabels: true, Dashes: true})
	equal(t, "4.9", both.series(t, v, "DCGM_FI_DEV_SM_CLOCK_HERTZ", "gpu", "hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION", "modelName", "uuid",
		"pod_namespace", "pod_name"), map[string]float64{
		"0  580.105.08 NVIDIA-H100-80GB-HBM3 GPU-11111111-1111-1111-1111-111111111111 ml train-0": 1980e6})
	if got := both.series(t, v, "DCGM_FI_DEV_MEM_CLOCK", "gpu"); got["0"] > 1e5 {
		t.Errorf("a name of 4.8 has the unit of 4.9: %v", got)
	}
}

func TestDevices(t *testing.T) {
	v := catalogtest.FullView()
	v.GPUs[1].Medium = v.GPUs[0].Medium
	all := map[string]float64{"0 ": 0, "1 7": 0}
	for text, want := range map[string]map[string]float64{
		"f": all, "g": {"0 ": 0, "1 ": 0}, "g:0": {"0 ": 0}, "g:1-3": {"1 ": 0}, "g:7": {}, "i": {"1 7": 0}, "i:0": {"1 7": 0}, "i:1,2": {},
	} {
		d, err := compat.ParseDevices(text)
		must.OK(t, err)
		fields, err := compat.ShippedCollectors()
		must.OK(t, err)
		p := pageOf(t, compat.Options{Release: compat.DCGM48, Collectors: fields, Settings: compat.Settings{Devices: d}})
		got := p.series(t, v, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "gpu", "GPU_I_ID")
		for k := range got {
			got[k] = 0
		}
		equal(t, text, got, want)
	}
	for _, text := range []string{"", "x", "f:0", "g:", "g:a", "g:3-1", "g:0,", "g:0-9999999", "g:-1", "i:1:2"} {
		if d, err := compat.ParseDevices(text); err == nil {
			t.Errorf("%s: %+v", text, d)
		}
	}
}

// The windows of the families DCGM_EXP_* are settings.
func TestWindowOfXIDs(t *testing.T) {
	fields := []compat.Collector{{Field: "DCGM_EXP_XID_ERRORS_COUNT", Type: "gauge", Help: "a"}}
	for window, want := range map[time.Duration]map[string]float64{0: {"13 300000": 5}, time.Minute: {"13 60000": 1},
		10 * time.Minute: {"13 600000": 7}} {
		p := pageOf(t, compat.Options{Release: compat.DCGM48, Collectors: fields, Settings: compat.Settings{XIDWindow: window}})
		var last *gpu.View
		for i := range 16 {
			v := catalogtest.FullView()
			v.At = v.At.Add(time.Duration(i) * 30 * time.Second)
			v.GPUs = v.GPUs[:1]
			v.GPUs[0].XIDs = []gpu.XIDCount{{XID: 13, Count: uint64(i / 2)}}
			p.Published(v)
			last = v
		}
		equal(t, window.String(), p.series(t, last, "DCGM_EXP_XID_ERRORS_COUNT", "xid", "window_size_in_ms"), want)
	}
}

// A page that replaces another has its history.
func TestReplacedPage(t *testing.T) {
	p := newPage(t, compat.DCGM48)
	then, now := minuteLater()
	p.Published(then)
	fields := []compat.Collector{{Field: "DCGM_FI_DEV_GPU_UTIL", Type: string(catalog.Gauge), Help: "a"}}
	next, err := p.With(compat.Options{Release: compat.DCGM48, Copies: true, Collectors: fields})
	must.OK(t, err)
	read := func(f catalog.Family) (n int) {
		f.Read(now, func(float64, ...string) { n++ })
		return n
	}
	if got, want := read(next.Families()[0]), read(p.rows["DCGM_FI_DEV_GPU_UTIL"]); got != want || want == 0 {
		t.Errorf("%d series instead of %d", got, want)
	}
}
