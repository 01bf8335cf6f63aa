package expose_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// line is one sample of a text.
type line struct {
	series, family, instance string // series without the labels of the target
	value                    float64
	at                       time.Time
}

// readLine reads one sample. No label of the fleet needs an escape.
func readLine(t *testing.T, text string) line {
	t.Helper()
	head, rest, ok := strings.Cut(text, " ")
	if i := strings.LastIndexByte(text, '}'); i >= 0 {
		head, rest, ok = text[:i], text[i+2:], true
	}
	name, inside, _ := strings.Cut(head, "{")
	if !ok || strings.Contains(inside, `\`) {
		t.Fatalf("not a sample: %s", text)
	}
	l := line{family: name}
	var labels []string
	for inside != "" {
		var pair string
		pair, inside, _ = strings.Cut(inside, `",`)
		label, value, _ := strings.Cut(strings.TrimSuffix(pair, `"`), `="`)
		switch {
		case label == "instance":
			l.instance = value
		case label != "cluster" && label != "job" && value != "":
			labels = append(labels, label+"="+value)
		}
	}
	sort.Strings(labels)
	l.series = name + "{" + strings.Join(labels, ",") + "}"
	value, at, timed := strings.Cut(rest, " ")
	var err error
	if l.value, err = strconv.ParseFloat(value, 64); err != nil {
		t.Fatal(err)
	}
	if timed {
		milliseconds, err := strconv.ParseInt(at, 10, 64)
		must.OK(t, err)
		l.at = time.UnixMilli(milliseconds)
	}
	return l
}

// The history at a time is what was served then, sample by sample.
func TestHistoryIsWhatWasServed(t *testing.T) {
	f, err := fleet.New(fleet.Demo(5))
	must.OK(t, err)
	h := expose.History{From: someDay.Truncate(time.Minute), Step: 141*time.Second + 500*time.Millisecond}
	h.To = h.From.Add(10 * time.Minute)
	var b strings.Builder
	must.OK(t, h.Write(t.Context(), f, &b))
	type sample struct {
		instance, series string
		at               int64
	}
	written := map[sample]float64{}
	for _, text := range strings.Split(b.String(), "\n") {
		if text == "" || text[0] == '#' {
			continue
		}
		l := readLine(t, text)
		key := sample{l.instance, l.series, l.at.UnixMilli()}
		if _, twice := written[key]; twice {
			t.Fatalf("%v is written twice", key)
		}
		written[key] = l.value
	}
	// Another fleet, from the end to the beginning.
	at := h.From
	f, s := newServer(t, fleet.Demo(5), &at)
	for at = h.From.Add(4 * h.Step); !at.Before(h.From); at = at.Add(-h.Step) {
		pages := map[string]string{"main/kube-state-metrics": "/clusters/main/kube-state-metrics/metrics"}
		for i := range f.Len() {
			pages[f.Node(i).Name] = "/nodes/" + f.Node(i).Name + "/metrics"
		}
		for instance, path := range pages {
			code, page := get(s, path)
			if up := written[sample{instance, "up{}", at.UnixMilli()}]; up != map[int]float64{http.StatusOK: 1}[code] {
				t.Fatalf("%s at %v: up is %v, the status is %d", instance, at, up, code)
			}
			delete(written, sample{instance, "up{}", at.UnixMilli()})
			for _, text := range strings.Split(page, "\n") {
				if text == "" || text[0] == '#' || code != http.StatusOK {
					continue
				}
				l := readLine(t, text)
				key := sample{instance, l.series, at.UnixMilli()}
				if v, ok := written[key]; !ok || v != l.value {
					t.Fatalf("%v: served %v, written %v (%t)", key, l.value, v, ok)
				}
				delete(written, key)
			}
		}
	}
	for key := range written {
		t.Fatalf("%d samples were never served, such as %v", len(written), key)
	}
}

func TestHistoryOfOneFamilyAndNone(t *testing.T) {
	f, err := fleet.New(fleet.Demo(2))
	must.OK(t, err)
	h := expose.History{From: someDay, To: someDay.Add(time.Minute), Step: 30 * time.Second,
		Want: func(n string) bool { return n == "gpu_device_up" }}
	var b strings.Builder
	must.OK(t, h.Write(t.Context(), f, &b))
	if strings.Contains(b.String(), "kube_") || !strings.Contains(b.String(), "\ngpu_device_up{") ||
		!strings.Contains(b.String(), "\nup{") {
		t.Errorf("got %.300s", b.String())
	}
	h.To = h.From
	if err := h.Write(t.Context(), f, &b); err == nil {
		t.Error("a history without a step was written")
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	h.To = h.From.Add(time.Hour)
	if err := h.Write(gone, f, &b); err == nil {
		t.Error("a stopped history came to an end")
	}
	if err := h.Write(t.Context(), f, broken{}); err == nil {
		t.Error("a broken output was not noticed")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, fmt.Errorf("no room: %w", io.ErrShortWrite) }
