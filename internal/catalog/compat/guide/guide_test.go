package guide_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat/guide"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// Every label that dcgm-exporter can set is in labels.csv, and what labels.csv says is what the page has.
func TestLabelsOfUpstream(t *testing.T) {
	labels, err := guide.Labels()
	must.OK(t, err)
	listed := map[string]guide.Label{}
	for _, l := range labels {
		listed[l.Name] = l
		if named := l.Here != ""; named == (l.Is == "equal") {
			t.Errorf("%s is %s, with the text %q", l.Name, l.Is, l.Here)
		}
	}
	text := must.Read(t, "testdata/dcgm-exporter-labels.txt")
	theirs := map[string]bool{"(pod labels)": true}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); fields[0] != "#" {
			for _, name := range fields[1:] {
				theirs[name] = true
				if _, ok := listed[name]; !ok {
					t.Errorf("%s of %s is not listed", name, fields[0])
				}
			}
		}
	}
	for name, l := range listed {
		if theirs[name] != (l.Upstream != "") {
			t.Errorf("%s: upstream has it: %v, labels.csv names %q", name, theirs[name], l.Upstream)
		}
	}
	for _, release := range []compat.Release{compat.DCGM48, compat.DCGM49} {
		here := map[string]bool{"(pod labels)": true}
		p, err := compat.New(compat.Options{Release: release, DeviceLabels: compat.DeviceLabels()})
		must.OK(t, err)
		for _, f := range p.Families() {
			for _, l := range f.Labels {
				here[l] = true
			}
		}
		// The differences between the releases.
		if release == compat.DCGM49 {
			if here["Hostname"] || here["DCGM_FI_DRIVER_VERSION"] || !here["DCGM_FI_SYSTEM_DRIVER_VERSION"] {
				t.Errorf("the labels of 4.9 are those of 4.8")
			}
			here["Hostname"], here["DCGM_FI_DRIVER_VERSION"] = true, true
			delete(here, "DCGM_FI_SYSTEM_DRIVER_VERSION")
		}
		for name, l := range listed {
			if here[name] == (l.Is == "absent") {
				t.Errorf("%s: %s is %s, and the page has it: %v", release, name, l.Is, here[name])
			}
			delete(here, name)
		}
		for name := range here {
			t.Errorf("%s: %s is not listed", release, name)
		}
	}
}

// What programs that check queries learn of a page.
func TestEntries(t *testing.T) {
	entries, err := guide.Entries(compat.DCGM48)
	if err != nil || len(entries) < 120 {
		t.Fatal(len(entries), err)
	}
	i := slices.IndexFunc(entries, func(e guide.Entry) bool { return e.Name == "DCGM_FI_DEV_SM_CLOCK" })
	if e := entries[i]; e.Query != `gpu_clock_hertz{clock="sm"}` || e.Factor != 1e-6 || e.Differs != "" ||
		!slices.Contains(e.Labels, "UUID") {
		t.Errorf("%+v", e)
	}
	for name, want := range map[string]bool{"DCGM_FI_PROF_PIPE_INT_ACTIVE": true, "DCGM_EXP_P2P_STATUS": true, "peer_gpu": true,
		"vgpu": false, "DCGM_FI_DEV_NOTHING": false} {
		if _, _, ok := guide.Missing(name); ok != want {
			t.Errorf("%s is listed as missing: %v", name, ok)
		}
	}
}

// Every name of dcgm-exporter in the pages is in the table, or in its list of what is missing; internal/architecture checks ours.
func TestGuidesNameWhatExists(t *testing.T) {
	theirs := regexp.MustCompile(`\bDCGM_[A-Z0-9_]*[A-Z0-9]\b(?:_?\*)?`)
	table, err := guide.Markdown()
	must.OK(t, err)
	for _, file := range []string{"dcgm-exporter.md", "nvidia-gpu-exporter.md"} {
		text := must.Read(t, filepath.Join("..", "..", "..", "..", "docs", file))
		for _, name := range theirs.FindAllString(text, -1) {
			if !strings.Contains(table, "`"+strings.TrimSuffix(name, "(")) && !strings.HasSuffix(name, "*") {
				t.Errorf("%s names %s, which the table does not have", file, name)
			}
		}
	}
}
