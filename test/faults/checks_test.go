package faults_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// assertion is a query on Prometheus about a period of a row. In the query $n stands for the row's node as a matcher,
// $a and $b for its two GPUs, $w for the period as a range. It has a result only if something is wrong.
type assertion struct {
	from, to time.Duration // of the row's scenario
	query    string
}

// always: a series exists at every time, except for a scrape or two.
func always(from, to time.Duration, series string) assertion {
	return assertion{from + 3*time.Second, to, "absent_over_time(" + series + "[3s])[$w:1s]"}
}

// never: a series has no sample.
func never(from, to time.Duration, series string) assertion {
	return assertion{from, to, "(count by (node) (" + series + "))[$w:1s]"}
}

// is: a series exists at every time and has a value.
func is(from, to time.Duration, series string, value float64) []assertion {
	return []assertion{always(from, to, series), {from, to, fmt.Sprintf("(%s != %v)[$w:1s]", series, value)}}
}

// grows: a series grows by an amount within bounds.
func grows(from, to time.Duration, series string, least, most float64) []assertion {
	d := "(max_over_time(" + series + "[$w]) - min_over_time(" + series + "[$w]))"
	return []assertion{always(from, to, series), {from, to, fmt.Sprintf("%s < %v or %s > %v", d, least, d, most)}}
}

// checker checks one row.
type checker struct {
	*run
	t          *testing.T
	prometheus dashboard.Client
	queries    int
}

// full expands a query.
func (c *checker) full(query string, window time.Duration) string {
	n := `node="` + c.name + `"`
	return strings.NewReplacer("$n", n, "$a", n+`,uuid="`+GPUA+`"`, "$b", n+`,uuid="`+GPUB+`"`, "$w",
		fmt.Sprintf("%ds", int(window.Seconds()))).Replace(query)
}

func (c *checker) instant(query string, from, to time.Duration) []dashboard.Series {
	c.t.Helper()
	c.queries++
	text := c.full(query, to-from)
	if strings.HasSuffix(text, "]") {
		text = "count_over_time(" + text + ")"
	}
	series, err := c.prometheus.Instant(c.t.Context(), text, c.zero.Add(to))
	must.OK(c.t, err)
	return series
}

// none checks that an assertion has no result.
func (c *checker) none(what string, q assertion) {
	c.t.Helper()
	for i, s := range c.instant(q.query, q.from, q.to) {
		if i == 3 {
			c.t.Errorf("%s: and more", what)
			return
		}
		c.t.Errorf("%s, from %v to %v: %v: %v of %s", what, q.from, q.to, s.Points[0].Value, s.Labels, c.full(q.query, q.to-q.from))
	}
}

// check checks one row, and returns its line of the summary.
func (c *checker) check() string {
	c.names()
	c.zeros()
	c.sums()
	c.counters()
	if !c.noNeighbor {
		c.neighbor()
	}
	for _, q := range c.assertions {
		c.none("assertion", q)
	}
	detected, recovered := c.symptomTimes()
	fired := c.alerts()
	return fmt.Sprintf("%-18s %6s %6s %5d  %-56s %s", c.name, detected, recovered, c.queries, c.promise(), strings.Join(fired, ", "))
}

// names: only pods that existed are exported, each on its own GPU.
func (c *checker) names() {
	allowed := map[string]bool{}
	for _, p := range append([]string{"a ml/train-0", "b ml/train-1"}, c.others...) {
		allowed[p] = true
	}
	if c.pods != "" {
		allowed = map[string]bool{}
		for _, p := range c.others {
			allowed[p] = true
		}
	}
	named := map[string]bool{}
	for _, s := range c.instant(`count_over_time(count by (uuid, namespace, pod) ({__name__=~"gpu_container_.+",uuid!="",$n})[$w:1s])`, 0,
		ended) {
		dev := map[string]string{GPUA: "a", GPUB: "b"}[s.Labels["uuid"]]
		named[dev+" "+s.Labels["namespace"]+"/"+s.Labels["pod"]] = true
	}
	for name := range named {
		if !allowed[name] {
			c.t.Errorf("wrong pod: %s was exported, and only %v existed", name, slices.Sorted(maps.Keys(allowed)))
		}
	}
	if len(named) == 0 {
		c.t.Error("no pod was exported")
	}
}

// neverZero are the families for which zero is never a measured value: GPUs have power, processes memory.
var neverZero = []string{"gpu_power_watts", "gpu_power_instant_watts", "gpu_memory_total_bytes", "gpu_memory_free_bytes",
	"gpu_memory_used_bytes", "gpu_memory_reserved_bytes", "gpu_clock_hertz", "gpu_power_limit_watts",
	"gpu_temperature_celsius", "gpu_container_allocation_ratio", "gpu_container_memory_used_bytes", "gpu_container_processes"}

// zeros: no family of neverZero is ever zero.
func (c *checker) zeros() {
	for _, family := range neverZero {
		c.none("zero that was not measured", assertion{0, ended, "min_over_time(" + family + "{$n}[$w]) == 0"})
	}
	c.none("unallocated and allocated",
		assertion{0, ended,
			`(gpu_allocation_ratio{$n} == 0 and on (node, uuid) (max_over_time(gpu_container_allocation_ratio{$n}[$w]) > 0))[$w:1s]`})
	c.none("out of range",
		assertion{0, ended,
			`max_over_time(gpu_utilization_ratio{$n}[$w]) > 1 or max_over_time(gpu_power_watts{$n}[$w]) > 1000 or ` +
				`max_over_time(gpu_temperature_celsius{$n}[$w]) > 150 or max_over_time(gpu_allocation_ratio{$n}[$w]) > 1`})
}

// sums: at each scrape the containers and the unattributed rest add up to the GPU.
func (c *checker) sums() {
	parts := func(name string) string {
		return `sum by (node, uuid) ({__name__=~"gpu_container_` + name + `|gpu_unattributed_` + name + `",$n})`
	}
	c.none("busy seconds do not add up", assertion{started, ended,
		`(abs(gpu_busy_seconds_total{$n} - on (node, uuid) ` + parts("busy_seconds_total") + `) > 1e-6)[$w:1s]`})
	c.none("memory does not add up", assertion{started, ended,
		`(abs(gpu_memory_used_bytes{$n} - on (node, uuid) ` + parts("memory_used_bytes") + `) > 1)[$w:1s]`})
	// The driver counts energy since it was loaded; the difference must not change.
	rest := `(gpu_energy_joules_total{$n} - on (node, uuid) ` + parts("energy_joules_total") + `)[$w:1s]`
	if !c.restarts {
		c.none("energy does not add up", assertion{started, ended, `(max_over_time(` + rest + `) - min_over_time(` + rest + `)) > 0.01`})
	}
	c.none("attribution error", assertion{started, ended, `max_over_time(gpu_attribution_error_ratio{$n}[$w]) > 0.001`})
}

// counters: none decreases, across any absence.
func (c *checker) counters() {
	if c.restarts {
		return
	}
	for _, f := range catalog.All() {
		if f.Type == catalog.Counter {
			c.none("decreased", assertion{0, ended, "resets(" + f.Name + "{$n}[$w]) > 0"})
		}
	}
}

// neighbor: the other GPU is unaffected.
func (c *checker) neighbor() {
	for _, q := range is(started, ended, "gpu_device_up{$b}", 1) {
		c.none("the healthy GPU", q)
	}
	for _, family := range []string{"gpu_power_watts", "gpu_memory_used_bytes", "gpu_busy_seconds_total", "gpu_energy_joules_total"} {
		c.none("the healthy GPU", always(started, ended, family+"{$b}"))
	}
	// It is busy 60 % of the time.
	for _, q := range grows(started, ended, "gpu_busy_seconds_total{$b}", 0.52*(ended-started).Seconds(), 0.68*(ended-started).Seconds()) {
		c.none("the healthy GPU", q)
	}
	c.none("failed scrapes", assertion{started, ended, "avg_over_time(up{$n}[$w]) < 0.9"})
}

// symptomTimes returns when the documented series showed the fault, and when it no longer did.
func (c *checker) symptomTimes() (detected, recovered string) {
	c.t.Helper()
	if c.symptom == "" {
		return "-", "-"
	}
	c.queries++
	series, err := c.prometheus.Range(c.t.Context(), c.full(c.symptom, 0),
		dashboard.Window{From: c.zero, To: c.zero.Add(ended), Step: time.Second})
	must.OK(c.t, err)
	first, last := time.Duration(-1), time.Duration(-1)
	for _, s := range series {
		for _, p := range s.Points {
			at := p.At.Sub(c.zero)
			if at < c.fault.from && at > started {
				c.t.Errorf("%s at %v, before the fault", c.full(c.symptom, 0), at)
			}
			if at >= c.fault.from && (first < 0 || at < first) {
				first = at
			}
			last = max(last, at)
		}
	}
	if first < 0 {
		c.t.Errorf("the fault is not visible: no result of %s", c.full(c.symptom, 0))
		return "never", "-"
	}
	within := c.within
	if within == 0 {
		within = 6 * time.Second
	}
	if c.fault.from < started { // the exporters of all rows start at once: not before the first poll
		within = max(within, started-c.fault.from)
	}
	// Queries are a second apart; a busy machine may be a scrape and a poll late.
	if first > c.fault.from+within+3*time.Second {
		c.t.Errorf("%s after %v; it should take %v at most", c.full(c.symptom, 0), first-c.fault.from, within)
	}
	detected = fmt.Sprintf("%.0f", (first - c.fault.from).Seconds())
	if c.stays {
		return detected, "-"
	}
	if last > ended-4*time.Second {
		c.t.Errorf("not recovered: %s still at %v", c.full(c.symptom, 0), last)
		return detected, "never"
	}
	return detected, fmt.Sprintf("%.0f", max(0, last+time.Second-c.fault.to).Seconds())
}

// alerts: those of the row fired, and no others. Before its exporter has started, that one is down, and the alert is
// kept for a while.
func (c *checker) alerts() []string {
	c.t.Helper()
	fired := map[string]bool{}
	for _, s := range c.instant(
		`count by (alertname, uuid, source, xid, instance) (count_over_time(ALERTS{alertstate="firing",$n}[$w]) or `+
			`count_over_time(ALERTS{alertstate="firing",instance="`+c.address+`"}[$w]))`, usual.from, ended) {
		name := s.Labels["alertname"]
		switch s.Labels["uuid"] {
		case GPUA:
			name += " a"
		case GPUB:
			name += " b"
		}
		for _, l := range []string{"source", "xid"} {
			if s.Labels[l] != "" {
				name += " " + s.Labels[l]
			}
		}
		fired[name] = true
	}
	for _, name := range c.fires {
		if !fired[name] {
			c.t.Errorf("the alert %s did not fire; fired: %v", name, slices.Sorted(maps.Keys(fired)))
		}
	}
	for name := range fired {
		if !slices.Contains(c.fires, name) && !slices.Contains(c.mayFire, name) {
			c.t.Errorf("the alert %s fired, and the row does not name it", name)
		}
	}
	return slices.Sorted(maps.Keys(fired))
}
