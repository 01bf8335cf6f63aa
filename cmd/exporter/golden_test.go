package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/scenario"
)

// load reads a scenario of testdata and the pods that belong to it, if any.
func load(t *testing.T, name string) (*scenario.Scenario, string) {
	t.Helper()
	s, err := standin.Scenario(name)
	must.OK(t, err)
	pods, err := os.ReadFile(filepath.Join("..", "..", "testdata", "kubelet", name+".pods"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return s, string(pods)
}

// scenarioNames lists the scenarios of testdata.
func scenarioNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "scenarios", "*.scenario"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".scenario"))
	}
	return names
}

// One golden per scenario: the whole exposition after 64 s, byte for byte. The driver's clock, the rings and
// the kubelet's responds are those of the scenario, so nothing in it depends on the machine. Then and later, doctor says
// of the scenario what the exposition says.
func TestGolden(t *testing.T) {
	list := cases{}
	for _, name := range scenarioNames(t) {
		list.add(branchOf(name), name, func(t *testing.T) {
			s, pods := load(t, name)
			st := play(t, s, pods)
			st.run(64 * time.Second)
			st.golden(name)
			for range 3 {
				st.agreesWithDoctor()
				st.run(50 * time.Second)
			}
		})
	}
	list.run(t)
}

// branchOf returns the driver branch of a scenario of testdata, which it or what it includes states.
func branchOf(name string) string {
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "scenarios", name+".scenario"))
	line := regexp.MustCompile(`(?m)^(symbols|include) ([\w-]+)(\.scenario)?$`).FindSubmatch(text)
	switch {
	case err != nil || line == nil:
		return "newest" // the default of scenario.Parse
	case string(line[1]) == "symbols":
		return string(line[2])
	}
	return branchOf(string(line[2]))
}

// Every golden belongs to a scenario: one that nobody compares is dead weight.
func TestGoldensHaveScenarios(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "golden", "*.prom"))
	must.OK(t, err)
	names := scenarioNames(t)
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".prom"); !slices.Contains(names, name) {
			t.Errorf("%s has no scenario", f)
		}
	}
}

// A GPU that works 30 % of the time shows a rate of busy over observed seconds of 0.300, whatever the
// interval at which it is scraped.
func dutyCycleIsExactAtAnyScrapeInterval(t *testing.T) {
	s := parseScenario(t, twoGPUs+"load gpu=0 busy=30% period=1s\nload gpu=1 busy=30% period=7s\n")
	st := play(t, s, twoPods)
	st.run(60 * time.Second)
	type scrape struct{ busy, observed float64 }
	read := func(dev string) scrape {
		now := st.series()
		busy, err := now.one("gpu_busy_seconds_total", dev)
		must.OK(t, err)
		observed, err := now.one("gpu_observed_seconds_total", dev)
		must.OK(t, err)
		return scrape{busy, observed}
	}
	for _, interval := range []time.Duration{time.Second, 15 * time.Second, 60 * time.Second} {
		// Prometheus sees the scrapes alone; over ten minutes they must come to the truth.
		window := 10 * time.Minute
		first := map[string]scrape{GPUA: read(GPUA), GPUB: read(GPUB)}
		last := first
		previous := first
		sinceScrape := time.Duration(0)
		for spent := time.Duration(0); spent < window; spent += fastPoll {
			st.run(fastPoll)
			for sinceScrape += fastPoll; sinceScrape >= interval; sinceScrape -= interval {
				now := map[string]scrape{GPUA: read(GPUA), GPUB: read(GPUB)}
				for dev := range now {
					if now[dev].busy < previous[dev].busy || now[dev].observed < previous[dev].observed {
						t.Fatalf("a counter of %s fell", dev)
					}
				}
				previous, last = now, now
			}
		}
		for dev, end := range last {
			rate := (end.busy - first[dev].busy) / (end.observed - first[dev].observed)
			if math.Abs(rate-0.3) > 0.005 {
				t.Errorf("scraped every %v, %s shows %.4f, not 0.300", interval, dev, rate)
			}
			if observed := end.observed - first[dev].observed; math.Abs(observed-window.Seconds()) > 0.02*window.Seconds() {
				t.Errorf("scraped every %v, %s was observed for %.1f s of %v", interval, dev, observed, window)
			}
		}
	}
}

// The same in real time, with the real binary.
func TestDutyCycleInRealTime(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs+"load gpu=0 busy=30% period=200ms\n", twoPods)
	p := m.start()
	first := p.until(t, "the GPU is observed", func(s series) error {
		v, err := s.one("gpu_observed_seconds_total", GPUA)
		if err == nil && v < 1 {
			err = fmt.Errorf("only %v s", v)
		}
		return err
	})
	delta := func(last series, family string) (float64, error) {
		a, errA := first.one(family, GPUA)
		b, errB := last.one(family, GPUA)
		return b - a, errors.Join(errA, errB)
	}
	last := p.until(t, "5 s are observed", func(s series) error {
		v, err := delta(s, "gpu_observed_seconds_total")
		if err == nil && v < 5 {
			err = fmt.Errorf("only %v s", v)
		}
		return err
	})
	busy, errBusy := delta(last, "gpu_busy_seconds_total")
	observed, errObserved := delta(last, "gpu_observed_seconds_total")
	if errBusy != nil || errObserved != nil || math.Abs(busy/observed-0.3) > 0.02 {
		t.Errorf("%.1f s show %.4f, not 0.300 (%v, %v)", observed, busy/observed, errBusy, errObserved)
	}
}

// A counter whose HELP says that it counts since the exporter started is 0 at the first poll, not the driver's total. Later, when
// the rings are read in every third poll, no time of work is counted as not busy before its samples were read.
func countersSinceTheStart(t *testing.T) {
	s, pods := load(t, "demo")
	n, err := standin.ParsePods("pods", strings.NewReader(pods))
	must.OK(t, err)
	st := furnish(t, s, n)
	st.control.Advance(time.Hour) // of the driver, before the exporter starts
	st.begin(st.control.Time, func(error) { t.Error("the program requests a re-execution") }, hooks{})
	t.Cleanup(st.close)
	st.step()
	all, err := st.e.metrics.Gather()
	must.OK(t, err)
	counters := 0
	for _, f := range all {
		if !strings.Contains(f.GetHelp(), "since the exporter started") {
			continue
		}
		for _, m := range f.Metric {
			if counters++; m.Counter.GetValue() > 60 { // seconds of the driver's sample ring, at the most
				t.Errorf("%s begins at %v", f.GetName(), m.Counter.GetValue())
			}
		}
	}
	if counters == 0 {
		t.Error("no such counter")
	}
	const trained = `uuid="GPU-5a0e1100-8c1d-4e6b-9d10-000000000000"` // busy for 90 % of the time
	for seconds := 0.0; seconds < 84; {
		st.run(fastPoll)
		seconds += fastPoll.Seconds()
		now := st.series()
		for _, family := range []string{"gpu_time_seconds_total", "gpu_container_unused_seconds_total"} {
			if unused := sum(now.match(family, trained, `state="gap"`)); unused > 0.1*seconds+0.2 {
				t.Errorf("after %v s %s has %.1f s of gap", seconds, family, unused)
			}
		}
		if of := sum(now.match("gpu_time_seconds_total", trained)); math.Abs(of-seconds) > 1e-6 {
			t.Errorf("after %v s the states add up to %v s", seconds, of)
		}
	}
}
