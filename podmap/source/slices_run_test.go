package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// lister returns a SliceLister of the script, which logs to log.
func (s *script) lister(log io.Writer) *SliceLister {
	l := NewSliceLister(s.options(), Options{Clock: s.clock, Logger: slog.New(slog.NewTextHandler(log, nil)), MaxAge: time.Minute})
	l.client = &http.Client{Transport: s}
	l.sleep = s.sleep
	return l
}

func sliceOf(uuid string) string {
	return `{"items":[{"spec":{"driver":"d","pool":{"name":"p"},"devices":[{"name":"x","attributes":{"uuid":{"string":"` + uuid +
		`"}}}]}}]}`
}

// Lists follow each other in five minutes, after failures sooner; the last one is used meanwhile, and announced when it
// changes.
func TestRetriesOfSlices(t *testing.T) {
	broken := errors.New("refused")
	s := newScript(step{text: sliceOf("A"), begins: time.Second, lasts: 2 * time.Second}, step{err: broken}, step{err: broken},
		step{text: `{"items":`}, step{err: broken}, step{err: broken}, step{err: broken}, step{err: broken}, step{text: sliceOf("B")})
	var log strings.Builder
	l := s.lister(&log)
	var changes, seen []string
	uuid := func() string {
		if d := l.Value().Device("d", "x"); d != nil {
			return d.UUID
		}
		return "none"
	}
	l.api.Changed = func() { changes = append(changes, uuid()) }
	l.sleep = func(ctx context.Context, d time.Duration) {
		seen = append(seen, fmt.Sprintf("%v %s %d", d, uuid(), l.Source().Errors))
		if len(seen) == 1 && l.Source().Duration != gpu.Some(3*time.Second) {
			t.Errorf("took %v", l.Source().Duration)
		}
		s.sleep(ctx, d)
	}
	s.run(t, l.Run)
	// The list is 5 min 30 s old at the fifth failure, and 6 min 2 s at the sixth: it is used for six minutes.
	want := []string{"5m0s A 0", "2s A 1", "4s A 2", "8s A 3", "16s A 4", "32s A 5", "1m0s none 6", "1m0s none 7", "5m0s B 7"}
	if !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
	if !slices.Equal(changes, []string{"A", "B"}) {
		t.Errorf("changes %q", changes)
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		_, line, _ = strings.Cut(line, "level=")
		got = append(got, strings.TrimSpace(line))
	}
	if want := []string{`WARN msg="cannot list resource slices" err="http://api: refused"`,
		`WARN msg="cannot list resource slices" err="http://api: read the list: EOF"`,
		`WARN msg="cannot list resource slices" err="http://api: refused"`,
		`INFO msg="resource slices listed again" after_failures=7`}; !slices.Equal(got,
		want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A list that has failed is used for MaxAge beyond the interval of lists, and not a moment longer.
func TestAgeOfSlices(t *testing.T) {
	s := newScript(step{text: sliceOf("A")}, step{err: errors.New("refused")})
	l := s.lister(io.Discard)
	if l.Value() != nil || l.Source().Message != "no response from the API server yet" {
		t.Errorf("before: %+v", l.Source())
	}
	listed := s.now
	s.run(t, l.Run)
	for after, used := range map[time.Duration]bool{6 * time.Minute: true, 6*time.Minute + 1: false} {
		s.now = listed.Add(after)
		if l.Value() != nil != used || strings.Contains(l.Source().Message, "no longer used") == used {
			t.Errorf("%v after the list: %+v", after, l.Source())
		}
	}
	s = newScript(step{text: sliceOf("A")})
	l = s.lister(io.Discard)
	s.run(t, l.Run)
	if s.now = s.now.Add(24 * time.Hour); l.Value() == nil || !l.Source().Up {
		t.Error("nothing has failed")
	}
}

// The versions of the group are tried from the newest, the one that was there last time first.
func TestVersionsOfSlices(t *testing.T) { synctest.Test(t, versionsOfSlices) }

func versionsOfSlices(t *testing.T) {
	missing, ok, broken := step{status: 404}, step{text: `{}`}, step{status: 500, text: "out of order"}
	for _, c := range []struct {
		name    string
		steps   []step
		want    string
		message string
	}{
		{"the newest", []step{ok, ok}, "v1 v1", ""},
		{"an older one, which is kept", []step{missing, ok, ok}, "v1 v1beta2 v1beta2", ""},
		{"the server is upgraded", []step{missing, missing, ok, missing, ok, ok}, "v1 v1beta2 v1beta1 v1beta1 v1 v1", ""},
		{"none", []step{missing, missing, missing}, "v1 v1beta2 v1beta1",
			"http://api: the server has no resource slices: it is older than Kubernetes 1.32, or they are disabled"},
		{"another error ends the search", []step{missing, broken}, "v1 v1beta2", "http://api: HTTP 500: out of order"},
		{"refused", []step{{status: 403}}, "v1",
			"http://api: forbidden: grant the service account list on resourceslices by a ClusterRole"},
		{"a list that cannot be read is of no version", []step{missing, {text: `[`}, ok}, "v1 v1beta2 v1", ""},
	} {
		s := newScript(c.steps...)
		l := s.lister(io.Discard)
		var got []string
		var deadlines []time.Duration
		l.client.Transport = observer{s, func(r *http.Request) {
			at, _ := r.Context().Deadline()
			deadlines = append(deadlines, time.Until(at).Round(time.Second))
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/apis/resource.k8s.io/"), "/resourceslices"))
			if r.URL.RawQuery != "fieldSelector=spec.nodeName%3Dn1&resourceVersion=0" || r.Header.Get("Accept") != "application/json" {
				t.Errorf("%v", r.URL)
			}
		}}
		s.run(t, l.Run)
		got = got[:len(s.requests)] // but for that which ended the script
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if src := l.Source(); src.Up != (c.message == "") || src.Message != c.message || src.Name != gpu.SourceSlices {
			t.Errorf("%s: %+v", c.name, src)
		}
		for i, b := range s.bodies {
			if !b.closed || s.contexts[i].Err() == nil || deadlines[i] != 30*time.Second {
				t.Errorf("%s: request %d: closed %v, %v, deadline %v", c.name, i, b.closed, s.contexts[i].Err(), deadlines[i])
			}
		}
	}
}

// What is kept of a device, in all versions of the format.
func TestDevicesOfSlices(t *testing.T) {
	taints := func(n int) string {
		return strings.TrimSuffix(strings.Repeat(`{"key":"k","effect":"NoSchedule"},`, n), ",")
	}
	for _, c := range []struct{ name, device, want string }{
		{"nothing", `"name":"x"`, `{UUID: PCI: Capacity:map[] Taints:[]}`},
		{"attributes with a domain or without", `"name":"x","attributes":{"gpu.nvidia.com/uuid":{"string":"GPU-1"},` +
			`"resource.kubernetes.io/pciBusID":{"string":"0000:41:00.0"}}`,
			`{UUID:GPU-1 PCI:0000:41:00.0 Capacity:map[] Taints:[]}`},
		{"the address by its older name", `"name":"x","attributes":{"pcieBusID":{"string":"0000:41:00.0"},"type":{"string":"gpu"}}`,
			`{UUID: PCI:0000:41:00.0 Capacity:map[] Taints:[]}`},
		{"capacity", `"name":"x","capacity":{"memory":{"value":"80Gi"},"hami.io/cores":{"value":"100"}}`,
			`{UUID: PCI: Capacity:map[cores:100 memory:80Gi] Taints:[]}`},
		{"v1beta1", `"name":"x","basic":{"attributes":{"uuid":{"string":"GPU-1"}},"capacity":{"memory":{"value":"1Gi"}},` +
			`"taints":[{"key":"b","value":"1","effect":"NoExecute"}]}`,
			`{UUID:GPU-1 PCI: Capacity:map[memory:1Gi] Taints:[{Key:b Value:1 Effect:NoExecute}]}`},
		{"no control characters", `"name":"x","taints":[{"key":"a\u001b","value":"b\n","effect":"c\u0007"}]`,
			"{UUID: PCI: Capacity:map[] Taints:[{Key:a\u241b Value:b\u240a Effect:c\u2407}]}"},
		{"as many taints as a device may have", `"name":"x","taints":[` + taints(16) + `]`,
			`{UUID: PCI: Capacity:map[] Taints:[` + strings.TrimSpace(strings.Repeat("{Key:k Value: Effect:NoSchedule} ", 16)) + `]}`},
		// A ResourceSlice in the JSON of k8s.io/api v0.37.2, resource/v1/types.go: DeviceTaint.
		{"the driver's taint", `"name":"x","taints":[{"key":"gpu.nvidia.com/xid","value":"79","effect":"NoExecute",` +
			`"timeAdded":"2026-11-01T00:00:00Z"}]`,
			`{UUID: PCI: Capacity:map[] Taints:[{Key:gpu.nvidia.com/xid Value:79 Effect:NoExecute}]}`},
		{"more", `"name":"x","taints":[` + taints(17) + `]`,
			`{UUID: PCI: Capacity:map[] Taints:[` + strings.TrimSpace(strings.Repeat("{Key:k Value: Effect:NoSchedule} ", 16)) + `]}`},
	} {
		got, err := ReadSlices(strings.NewReader(`{"kind":"ResourceSliceList","metadata":{"resourceVersion":"1"},"items":[{"spec":` +
			`{"driver":"d","pool":{"name":"p"},"devices":[{` + c.device + `}]}}],"later":[1]}`))
		if err != nil || fmt.Sprintf("%+v", *got.Device("d", "x")) != c.want {
			t.Errorf("%s: %+v, %v\nwant %s", c.name, got.Device("d", "x"), err, c.want)
		}
	}
	var none *Slices
	if none.Device("d", "x") != nil {
		t.Error("a device of no list")
	}
}

// Pools are a driver's, and only the newest generation of each counts.
func TestPoolsOfSlices(t *testing.T) {
	slice := func(driver, pool string, generation int, names ...string) string {
		var devices []string
		for _, n := range names {
			devices = append(devices, `{"name":"`+n+`","attributes":{"uuid":{"string":"`+driver+pool+fmt.Sprint(generation)+`"}}}`)
		}
		return fmt.Sprintf(`{"spec":{"driver":%q,"pool":{"name":%q,"generation":%d},"devices":[%s]}}`, driver, pool, generation,
			strings.Join(devices, ","))
	}
	for _, c := range []struct {
		name   string
		slices []string
		want   string // driver/device=UUID
	}{
		{"what the newer generation lacks is gone", []string{slice("d", "p", 1, "x", "y"), slice("d", "p", 2, "x")}, "d/x=dp2"},
		{"in any order", []string{slice("d", "p", 2, "x"), slice("d", "p", 1, "x", "y")}, "d/x=dp2"},
		{"of one generation all", []string{slice("d", "p", 2, "x"), slice("d", "p", 2, "y")}, "d/x=dp2 d/y=dp2"},
		{"generations of another pool", []string{slice("d", "p", 1, "x"), slice("d", "q", 2, "y")}, "d/x=dp1 d/y=dq2"},
		{"of another driver", []string{slice("d", "p", 1, "x"), slice("e", "p", 2, "x")}, "d/x=dp1 e/x=ep2"},
		{"one name in two pools is of neither", []string{slice("d", "p", 1, "x"), slice("d", "q", 1, "x"), slice("d", "r", 1, "x")},
			"d/x="},
		{"generation 0", []string{slice("d", "p", 0, "x"), slice("d", "p", 0, "y")}, "d/x=dp0 d/y=dp0"},
	} {
		table, err := ReadSlices(strings.NewReader(`{"items":[` + strings.Join(c.slices, ",") + `]}`))
		if err != nil {
			t.Fatal(c.name, err)
		}
		var got []string
		for key, d := range *table {
			got = append(got, key[0]+"/"+key[1]+"="+d.UUID)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if _, err := ReadSlices(strings.NewReader(`{"items":[{"spec":{"driver":7}}]}`)); err == nil {
		t.Error("a number is a driver's name")
	}
	many := func(n int) string {
		return `{"items":[{"spec":{"devices":[` + strings.TrimSuffix(strings.Repeat(`{},`, n), ",") + `]}},{"spec":{"devices":[{}]}}]}`
	}
	if _, err := ReadSlices(strings.NewReader(many(maxDevices - 1))); err != nil {
		t.Errorf("as many devices as a node may have: %v", err)
	}
	if _, err := ReadSlices(strings.NewReader(many(maxDevices))); err == nil || err.Error() != "more than 16384 devices on one node" {
		t.Errorf("one more: %v", err)
	}
}
