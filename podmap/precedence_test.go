package podmap

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// A pod to which the kubelet has allocated GPUs, known or not, has none by the annotations of a scheme that requests nothing
// of the kubelet: it would have two GPUs, of which one is another pod's.
func TestListedPodsHaveWhatIsListed(t *testing.T) {
	annotated := &source.Pod{UID: "u", Annotations: map[string]string{
		"scheduling.koordinator.sh/device-allocated": `{"gpu":[{"id":"` + GPUC + `"}]}`}}
	for _, c := range []struct{ devices, want string }{
		{"", "a/p/c koordinator.sh/gpu C ? shared"},
		{" nvidia.com/gpu=" + GPUA, "a/p/c nvidia.com/gpu A 1"},
		{" nvidia.com/gpu=" + GPUA + "-1", "a/p/c nvidia.com/gpu unresolved 1"},
		{" gpu.nvidia.com:x=gpu-3", "a/p/c gpu.nvidia.com A 1"},
	} {
		m := newClock().source(&fakeKubelet{pods: pods("a/p/c"+c.devices, "koordinator-system/koordlet-x2k8p/koordlet")})
		m.watch = &fakeWatch{source.NewPods(map[gpu.PodName]*source.Pod{{Namespace: "a", Pod: "p"}: annotated})}
		wantLines(t, poll(t, m), c.want)
	}
}

// A failure of the kubelet is logged when it is new, and its end once.
func TestLogOfTheKubelet(t *testing.T) {
	var log strings.Builder
	k := &fakeKubelet{pods: pods("a/p/c nvidia.com/gpu=" + GPUA)}
	m := newMap(Options{Clock: newClock().time, Logger: slog.New(slog.NewTextHandler(&log, nil))}, k)
	for _, err := range []error{errors.New("one"), errors.New("one"), errors.New("two"), nil, nil, errors.New("two")} {
		k.err = err
		if got := m.Poll(t.Context()); !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		_, line, _ = strings.Cut(line, "level=")
		got = append(got, strings.TrimSpace(line))
	}
	if want := []string{`WARN msg="cannot list pod resources" err="/run/k.sock: one"`,
		`WARN msg="cannot list pod resources" err="/run/k.sock: two"`, `INFO msg="pod resources listed again" after_failures=3`,
		`WARN msg="cannot list pod resources" err="/run/k.sock: two"`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
