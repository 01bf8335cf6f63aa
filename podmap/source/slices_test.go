package source

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The lister finds the version that the server has, keeps it, and goes on after a failure.
func TestSliceLister(t *testing.T) {
	a := newAPIServer(t)
	a.list = respond(`{"items":[{"spec":{"driver":"d","nodeName":"n1","pool":{"name":"n1","generation":3},"devices":[`,
		`{"name":"x","basic":{"attributes":{"uuid":{"string":"GPU-1"},"n":{"int":3},"b":{"bool":true}},`,
		`"capacity":{"memory":{"value":"1Gi"}}}}]}}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := NewSliceLister(a.options(), Options{Clock: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler),
		MaxAge: time.Minute})
	if s := l.Source(); s.Up || s.Name != gpu.SourceSlices || l.Value() != nil {
		t.Errorf("before anything: %+v", s)
	}
	round := 0
	l.sleep = func(_ context.Context, d time.Duration) {
		round++
		switch round {
		case 1:
			if got := l.Value().Device("d", "x"); got == nil || got.UUID != "GPU-1" ||
				got.Capacity["memory"] != "1Gi" || d != slicesInterval {
				t.Errorf("%+v, next in %v", got, d)
			}
			a.mu.Lock()
			a.list = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
			a.mu.Unlock()
		case 2:
			if s := l.Source(); s.Up || !strings.Contains(s.Message, "grant the service account list on resourceslices by a ClusterRole") ||
				l.Value().Device("d", "x") == nil || d > 4*time.Second {
				t.Errorf("refused: %+v, next in %v", s, d)
			}
			now = now.Add(slicesInterval + 2*time.Minute)
			if l.Value() != nil {
				t.Error("too old, and used")
			}
			cancel()
		}
	}
	l.Run(ctx)
	want := []string{"slices v1 spec.nodeName=n1", "slices v1beta2 spec.nodeName=n1",
		"slices v1beta1 spec.nodeName=n1", "slices v1beta1 spec.nodeName=n1"}
	if got := a.seen(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestReadSlices(t *testing.T) {
	list := func(specs ...string) string { return `{"items":[{"spec":` + strings.Join(specs, `},{"spec":`) + `}]}` }
	spec := func(pool, generation, uuid string) string {
		return `{"driver":"d","pool":{"name":"` + pool + `","generation":` + generation +
			`},"devices":[{"name":"x","attributes":{"uuid":{"string":"` + uuid + `"}}}]}`
	}
	for text, want := range map[string]string{
		list(spec("p", "1", "A"), spec("p", "2", "B")): "B",
		list(spec("p", "2", "B"), spec("p", "1", "A")): "B",
		list(spec("p", "1", "A"), spec("q", "1", "B")): "", // of two pools of one driver
	} {
		got, err := ReadSlices(strings.NewReader(text))
		if err != nil || got.Device("d", "x").UUID != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	// A pool of two slices, which have one generation.
	text := list(spec("p", "1", "A"), strings.ReplaceAll(spec("p", "1", "B"), `"x"`, `"y"`))
	if got, err := ReadSlices(strings.NewReader(text)); err != nil || got.Device("d", "x") == nil || got.Device("d", "x").UUID != "A" ||
		got.Device("d", "y") == nil || got.Device("d", "y").UUID != "B" {
		t.Errorf("%s: %+v, %v", text, got, err)
	}
	// A ResourceSlice in the JSON of k8s.io/api v0.37.2, resource/v1/types.go: DeviceTaint.
	got, err := ReadSlices(strings.NewReader(list(`{"driver":"d","pool":{"name":"p"},"devices":[{"name":"x","taints":[{"key":` +
		`"gpu.nvidia.com/xid","value":"79","effect":"NoExecute","timeAdded":"2026-11-01T00:00:00Z"}]}]}`)))
	if err != nil || !slices.Equal(got.Device("d", "x").Taints,
		[]gpu.Taint{{Key: "gpu.nvidia.com/xid", Value: "79", Effect: "NoExecute"}}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "{", `{"items":[{"spec":{"driver":7}}]}`} {
		if _, err := ReadSlices(strings.NewReader(text)); err == nil {
			t.Errorf("%q is a list", text)
		}
	}
	many := `{"driver":"d","pool":{"name":"p"},"devices":[` + strings.Repeat(`{"name":"x"},`, maxDevices) + `{"name":"x"}]}`
	if _, err := ReadSlices(strings.NewReader(list(many))); err == nil {
		t.Error("no bound")
	}
}
