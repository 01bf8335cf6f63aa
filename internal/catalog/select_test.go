package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func families(s catalog.Selection) (list []string) {
	for _, f := range s.Families() {
		list = append(list, f.Name)
	}
	return list
}

func has(s catalog.Selection, name string) bool { return slices.Contains(families(s), name) }

// Each size has all of the one before, and no size silences an alert.
func TestSizes(t *testing.T) {
	var before []string
	for i, name := range catalog.Sizes() {
		s := catalog.Selection{Size: catalog.SizeNamed(name)}
		now := families(s)
		if i > 0 && len(now) <= len(before) || slices.ContainsFunc(before, func(f string) bool { return !slices.Contains(now, f) }) {
			t.Errorf("%s has %d families, the size before %d", name, len(now), len(before))
		}
		if silenced := s.Silenced(); len(silenced) > 0 {
			t.Errorf("with %s alerts cannot fire: %v", name, silenced)
		}
		before = now
	}
	if len(before) != len(catalog.All()) {
		t.Errorf("all has %d of %d families", len(before), len(catalog.All()))
	}
	if catalog.SizeNamed("") != catalog.SizeDefault || catalog.SizeNamed("huge") != catalog.SizeDefault {
		t.Error("an unknown size is not the default")
	}
}

func TestSelection(t *testing.T) {
	names := func(list ...string) *catalog.Names {
		t.Helper()
		n, useless, err := catalog.ParseNames(list)
		if err != nil || useless != nil {
			t.Fatal(n, useless, err)
		}
		return n
	}
	core := catalog.Selection{Size: catalog.SizeCore}
	power, noPower := core, core
	power.Groups, noPower.Groups = map[string]bool{"power": true}, map[string]bool{"power": false}
	allow := catalog.Selection{Size: catalog.SizeAll, Groups: map[string]bool{"power": true}, Allow: names("gpu_info, gpu_memory_.*_bytes")}
	deny := catalog.Selection{Size: catalog.SizeAll, Deny: names("gpu_xid_events_total", ".*_info")}
	for _, c := range []struct {
		what   string
		s      catalog.Selection
		family string
		is     bool
	}{
		{"core has what alerts read", core, "gpu_xid_events_total", true},
		{"core lacks what nothing reads", core, "gpu_power_limit_min_watts", false},
		{"default lacks it too", catalog.Selection{Size: catalog.SizeDefault}, "gpu_power_limit_min_watts", false},
		{"default has what the dashboard of a GPU reads", catalog.Selection{Size: catalog.SizeDefault}, "gpu_power_memory_watts", true},
		{"default lacks the durations by call", catalog.Selection{Size: catalog.SizeDefault}, "gpu_exporter_call_duration_seconds", false},
		{"what another flag enables needs no switch", core, "gpu_nvlink_link_up", true},
		{"a group is exported whole", power, "gpu_power_limit_min_watts", true},
		{"others are not touched", power, "gpu_gsp_mode", false},
		{"or not at all", noPower, "gpu_power_watts", false},
		{"only what is allowed", allow, "gpu_power_watts", false},
		{"names are whole", allow, "gpu_mig_memory_total_bytes", false},
		{"a pattern", allow, "gpu_memory_total_bytes", true},
		{"a name", allow, "gpu_info", true},
		{"denied by name", deny, "gpu_xid_events_total", false},
		{"denied by pattern", deny, "gpu_driver_info", false},
		{"not denied", deny, "gpu_xid_last_timestamp_seconds", true},
	} {
		if has(c.s, c.family) != c.is {
			t.Errorf("%s: %s exported is %v", c.what, c.family, !c.is)
		}
	}
	if got := deny.Silenced()["GPUXIDFatal"]; !slices.Contains(got, "gpu_xid_events_total") {
		t.Errorf("GPUXIDFatal is silenced by %v", got)
	}
}

// Values that nothing shipped reads are exported with the whole group, with an allowlist, or with everything.
func TestValues(t *testing.T) {
	view := catalogtest.FullView()
	for i := range view.GPUs {
		if m, ok := view.GPUs[i].Medium.Get(); ok {
			for _, c := range gpu.Clocks {
				m.Clocks[c] = 1
			}
		}
	}
	clocks := func(s catalog.Selection) (values []string) {
		t.Helper()
		for _, f := range s.Families() {
			if f.Name == "gpu_clock_hertz" {
				f.Read(view, func(_ float64, labels ...string) {
					if v := labels[len(labels)-1]; !slices.Contains(values, v) {
						values = append(values, v)
					}
				})
			}
		}
		return values
	}
	for _, c := range []struct {
		s    catalog.Selection
		want string
	}{
		{catalog.Selection{Size: catalog.SizeAll}, "graphics sm memory video"},
		{catalog.Selection{Size: catalog.SizeDefault}, "sm memory"},
		{catalog.Selection{Size: catalog.SizeCore, Groups: map[string]bool{"clocks": true}}, "graphics sm memory video"},
		{catalog.Selection{Size: catalog.SizeDefault, Allow: allowed(t, "gpu_clock_hertz")}, "graphics sm memory video"},
	} {
		if got := strings.Join(clocks(c.s), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.s, got, c.want)
		}
	}
	for _, f := range catalog.All() {
		if f.Values != nil && (f.Labels == nil || f.Read == nil) {
			t.Errorf("%s has no own label to select by, or no values", f.Name)
		}
	}
}

func TestParseNames(t *testing.T) {
	if n, useless, err := catalog.ParseNames([]string{"", " , "}); n != nil || useless != nil || err != nil {
		t.Error(n, useless, err)
	}
	if _, useless, err := catalog.ParseNames([]string{"gpu_power_watts,gpu_typo", "power"}); err != nil ||
		!slices.Equal(useless, []string{"gpu_typo", "power"}) {
		t.Error(useless, err)
	}
	for _, bad := range []string{"gpu_(", "gpu_)|(", "*"} {
		if _, _, err := catalog.ParseNames([]string{bad}); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A reading is not taken if no exported family needs it.
func TestUnread(t *testing.T) {
	for _, c := range []struct {
		s       catalog.Selection
		reading string
		unread  bool
	}{
		{catalog.Selection{Size: catalog.SizeDefault}, "power_limit_range", true},
		{catalog.Selection{Size: catalog.SizeAll}, "power_limit_range", false},
		{catalog.Selection{Size: catalog.SizeCore, Groups: map[string]bool{"power": true}}, "power_limit_range", false},
		{catalog.Selection{Size: catalog.SizeCore, Allow: allowed(t, "gpu_power_limit_max_watts")}, "power_limit_range", false},
		{catalog.Selection{Size: catalog.SizeAll, Deny: allowed(t, "gpu_power_limit_max_watts")}, "power_limit_range", false},
		{catalog.Selection{Size: catalog.SizeAll, Deny: allowed(t, "gpu_power_limit_m.*")}, "power_limit_range", true},
	} {
		if got := slices.Contains(c.s.Unread(), c.reading); got != c.unread {
			t.Errorf("%+v: %s unread is %v", c.s, c.reading, got)
		}
	}
}

func allowed(t *testing.T, expr string) *catalog.Names {
	t.Helper()
	n, _, err := catalog.ParseNames([]string{expr})
	must.OK(t, err)
	return n
}

// A group is exported whole or not at all, and no other changes with it.
func TestEachGroup(t *testing.T) {
	before := len(families(catalog.Selection{Size: catalog.SizeDefault}))
	for _, g := range catalog.Groups() {
		byDefault := 0
		for _, f := range g.Rows {
			if f.Size() <= catalog.SizeDefault {
				byDefault++
			}
		}
		for _, on := range []bool{true, false} {
			s := catalog.Selection{Size: catalog.SizeDefault, Groups: map[string]bool{g.Name: on}}
			want := before - byDefault
			if on {
				want += len(g.Rows)
			}
			if got := len(s.Families()); got != want {
				t.Errorf("%s %v: %d families, want %d", g.Name, on, got, want)
			}
			for alert, missing := range s.Silenced() {
				for _, name := range missing {
					if f, _ := catalog.Lookup(name); !slices.Contains(f.Alerts(), alert) || on {
						t.Errorf("%s %v silences %s by %s", g.Name, on, alert, name)
					}
				}
			}
		}
	}
}
