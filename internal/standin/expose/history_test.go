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
		seconds, err := strconv.ParseFloat(at, 64)
		if err != nil {
			t.Fatal(err)
		}
		l.at = time.UnixMilli(int64(seconds*1000 + 0.5))
	}
	return l
}

// What the history says of a moment is what was served then, sample by sample; nothing more, nothing less.
func TestHistoryIsWhatWasServed(t *testing.T) {
	f, err := fleet.New(fleet.Demo(5))
	if err != nil {
		t.Fatal(err)
	}
	h := expose.History{From: someDay.Truncate(time.Minute), Step: 141*time.Second + 500*time.Millisecond, Memory: 1 << 16}
	h.To = h.From.Add(10 * time.Minute)
	var b strings.Builder
	if err := h.Write(t.Context(), f, &b); err != nil {
		t.Fatal(err)
	}
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
			t.Fatalf("%v stands twice", key)
		}
		written[key] = l.value
	}
	// Another fleet, asked from the end to the beginning.
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
				t.Fatalf("%s at %v: up is %v, the page answers %d", instance, at, up, code)
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

// OpenMetrics wants each family in one piece, its facts before its samples, each series in one piece with time
// going forward, and the end marked.
func TestHistoryIsOpenMetrics(t *testing.T) {
	f, err := fleet.New(fleet.Demo(2))
	if err != nil {
		t.Fatal(err)
	}
	h := expose.History{From: someDay, To: someDay.Add(8 * time.Minute), Step: 45 * time.Second, Memory: 1 << 20}
	var b strings.Builder
	if err := h.Write(t.Context(), f, &b); err != nil {
		t.Fatal(err)
	}
	text, ended := strings.CutSuffix(b.String(), "# EOF\n")
	if !ended || strings.Contains(text, "# EOF") {
		t.Fatal("the end is not marked, or not the end")
	}
	family, kind := "", ""
	seen := map[string]bool{}
	var last line
	for _, textLine := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if fact, is := strings.CutPrefix(textLine, "# "); is {
			words := strings.SplitN(fact, " ", 3)
			if words[0] == "HELP" {
				if seen["# "+words[1]] {
					t.Fatalf("family %s stands twice", words[1])
				}
				seen["# "+words[1]] = true
				family = words[1]
			}
			if words[0] == "TYPE" {
				kind = words[2]
			}
			if words[0] == "UNIT" && !strings.HasSuffix(family, "_"+words[2]) {
				t.Errorf("family %s does not end in its unit %s", family, words[2])
			}
			if words[1] != family {
				t.Fatalf("%s stands under %s", textLine, family)
			}
			continue
		}
		l := readLine(t, textLine)
		want := map[string][]string{"counter": {"_total"}, "gauge": {""}, "histogram": {"_count", "_sum", "_bucket"}}[kind]
		ok := false
		for _, suffix := range want {
			ok = ok || l.family == family+suffix
		}
		if !ok {
			t.Fatalf("%s stands under the %s %s", l.family, kind, family)
		}
		full := l.instance + l.series
		if full != last.instance+last.series {
			if seen[full] {
				t.Fatalf("series %s is not in one piece", full)
			}
			seen[full] = true
		} else if !l.at.After(last.at) {
			t.Fatalf("series %s goes back in time", full)
		}
		last = l
	}
}

func TestHistoryOfOneFamilyAndNone(t *testing.T) {
	f, err := fleet.New(fleet.Demo(2))
	if err != nil {
		t.Fatal(err)
	}
	h := expose.History{From: someDay, To: someDay.Add(time.Minute), Step: 30 * time.Second, Want: func(n string) bool { return n == "gpu_device_up" }}
	var b strings.Builder
	if err := h.Write(t.Context(), f, &b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "kube_") || !strings.Contains(b.String(), "\ngpu_device_up{") || !strings.Contains(b.String(), "\nup{") {
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
