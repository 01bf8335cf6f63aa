package faults_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// question is something that Prometheus is asked about a time of a row. In the query $n stands for the row's node as
// a matcher, $a and $b for its two GPUs, $w for the time as a range. An answer says what is wrong: there must be none.
type question struct {
	from, to time.Duration // of the row's scenario
	query    string
}

// always wants a series at every moment, but for a scrape or two.
func always(from, to time.Duration, series string) question {
	return question{from + 3*time.Second, to, "absent_over_time(" + series + "[3s])[$w:1s]"}
}

// never wants no sample of a series.
func never(from, to time.Duration, series string) question {
	return question{from, to, "(count by (node) (" + series + "))[$w:1s]"}
}

// is wants a series at every moment, with that value.
func is(from, to time.Duration, series string, value float64) []question {
	return []question{always(from, to, series), {from, to, fmt.Sprintf("(%s != %v)[$w:1s]", series, value)}}
}

// grows wants a series to grow by at least so much, and at most.
func grows(from, to time.Duration, series string, least, most float64) []question {
	d := "(max_over_time(" + series + "[$w]) - min_over_time(" + series + "[$w]))"
	return []question{always(from, to, series), {from, to, fmt.Sprintf("%s < %v or %s > %v", d, least, d, most)}}
}

// inquiry asks about one row.
type inquiry struct {
	*stage
	t          *testing.T
	prometheus dashboard.Client
	asked      int
}

// full writes a query out.
func (c *inquiry) full(query string, window time.Duration) string {
	n := `node="` + c.name + `"`
	return strings.NewReplacer("$n", n, "$a", n+`,uuid="`+GPUA+`"`, "$b", n+`,uuid="`+GPUB+`"`, "$w", fmt.Sprintf("%ds", int(window.Seconds()))).Replace(query)
}

func (c *inquiry) instant(query string, from, to time.Duration) []dashboard.Series {
	c.t.Helper()
	c.asked++
	text := c.full(query, to-from)
	if strings.HasSuffix(text, "]") {
		text = "count_over_time(" + text + ")"
	}
	series, err := c.prometheus.Instant(c.t.Context(), text, c.zero.Add(to))
	if err != nil {
		c.t.Fatal(err)
	}
	return series
}

// none wants no answer.
func (c *inquiry) none(what string, q question) {
	c.t.Helper()
	for i, s := range c.instant(q.query, q.from, q.to) {
		if i == 3 {
			c.t.Errorf("%s: and more", what)
			return
		}
		c.t.Errorf("%s, from %v to %v: %v: %v of %s", what, q.from, q.to, s.Points[0].Value, s.Labels, c.full(q.query, q.to-q.from))
	}
}

// ask asks all of one row, and returns its line of the summary.
func (c *inquiry) ask() string {
	c.names()
	c.zeros()
	c.sums()
	c.counters()
	if !c.noNeighbour {
		c.neighbour()
	}
	for _, q := range c.questions {
		c.none("what is seen", q)
	}
	seen, well := c.symptomTimes()
	fired := c.alerts()
	return fmt.Sprintf("%-18s %6s %6s %5d  %-56s %s", c.name, seen, well, c.asked, c.promise, strings.Join(fired, ", "))
}

// names: over all the time nobody is named but who was there, each on his own GPU.
func (c *inquiry) names() {
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
	for _, s := range c.instant(`count_over_time(count by (uuid, namespace, pod) ({__name__=~"gpu_container_.+",uuid!="",$n})[$w:1s])`, 0, ended) {
		dev := map[string]string{GPUA: "a", GPUB: "b"}[s.Labels["uuid"]]
		named[dev+" "+s.Labels["namespace"]+"/"+s.Labels["pod"]] = true
	}
	for name := range named {
		if !allowed[name] {
			c.t.Errorf("wrong pod: %s was named, and only %v ever were there", name, slices.Sorted(maps.Keys(allowed)))
		}
	}
	if len(named) == 0 {
		c.t.Error("no pod was ever named")
	}
}

// neverZero are the families of which a zero is never measured here: GPUs have power, processes memory.
var neverZero = []string{"gpu_power_watts", "gpu_power_instant_watts", "gpu_memory_total_bytes", "gpu_memory_free_bytes", "gpu_memory_used_bytes", "gpu_memory_reserved_bytes", "gpu_clock_hertz", "gpu_power_limit_watts",
	"gpu_temperature_celsius", "gpu_container_allocation_ratio", "gpu_container_memory_used_bytes", "gpu_container_processes"}

// zeros: what cannot be zero never was.
func (c *inquiry) zeros() {
	for _, family := range neverZero {
		c.none("false zero", question{0, ended, "min_over_time(" + family + "{$n}[$w]) == 0"})
	}
	c.none("free, and held", question{0, ended, `(gpu_allocation_ratio{$n} == 0 and on (node, uuid) (max_over_time(gpu_container_allocation_ratio{$n}[$w]) > 0))[$w:1s]`})
	c.none("more than there is", question{0, ended, `max_over_time(gpu_utilization_ratio{$n}[$w]) > 1 or max_over_time(gpu_power_watts{$n}[$w]) > 1000 or max_over_time(gpu_temperature_celsius{$n}[$w]) > 150 or max_over_time(gpu_allocation_ratio{$n}[$w]) > 1`})
}

// sums: at each scrape the containers' parts and the rest are the GPU.
func (c *inquiry) sums() {
	parts := func(name string) string {
		return `sum by (node, uuid) ({__name__=~"gpu_container_` + name + `|gpu_unattributed_` + name + `",$n})`
	}
	c.none("busy seconds do not close", question{begun, ended, `(abs(gpu_busy_seconds_total{$n} - on (node, uuid) ` + parts("busy_seconds_total") + `) > 1e-6)[$w:1s]`})
	c.none("memory does not close", question{begun, ended, `(abs(gpu_memory_used_bytes{$n} - on (node, uuid) ` + parts("memory_used_bytes") + `) > 1)[$w:1s]`})
	// The driver counts energy since long before; the difference to the parts must not change.
	rest := `(gpu_energy_joules_total{$n} - on (node, uuid) ` + parts("energy_joules_total") + `)[$w:1s]`
	if !c.restarts {
		c.none("energy does not close", question{begun, ended, `(max_over_time(` + rest + `) - min_over_time(` + rest + `)) > 0.01`})
	}
	c.none("it says so itself", question{begun, ended, `max_over_time(gpu_attribution_error_ratio{$n}[$w]) > 0.001`})
}

// counters: none fell, over any absence.
func (c *inquiry) counters() {
	if c.restarts {
		return
	}
	for _, f := range catalog.All() {
		if f.Type == catalog.Counter {
			c.none("fell", question{0, ended, "resets(" + f.Name + "{$n}[$w]) > 0"})
		}
	}
}

// neighbor: the other GPU knows nothing of it.
func (c *inquiry) neighbour() {
	for _, q := range is(begun, ended, "gpu_device_up{$b}", 1) {
		c.none("the healthy GPU", q)
	}
	for _, family := range []string{"gpu_power_watts", "gpu_memory_used_bytes", "gpu_busy_seconds_total", "gpu_energy_joules_total"} {
		c.none("the healthy GPU", always(begun, ended, family+"{$b}"))
	}
	// It works 60 % of the time.
	for _, q := range grows(begun, ended, "gpu_busy_seconds_total{$b}", 0.52*(ended-begun).Seconds(), 0.68*(ended-begun).Seconds()) {
		c.none("the healthy GPU", q)
	}
	c.none("unanswered", question{begun, ended, "avg_over_time(up{$n}[$w]) < 0.9"})
}

// symptomTimes looks when the documented series said which fault it is, and when it was over.
func (c *inquiry) symptomTimes() (seen, well string) {
	c.t.Helper()
	if c.symptom == "" {
		return "-", "-"
	}
	c.asked++
	series, err := c.prometheus.Range(c.t.Context(), c.full(c.symptom, 0), dashboard.Window{From: c.zero, To: c.zero.Add(ended), Step: time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	first, last := time.Duration(-1), time.Duration(-1)
	for _, s := range series {
		for _, p := range s.Points {
			at := p.At.Sub(c.zero)
			if at < c.fault.from && at > begun {
				c.t.Errorf("%s at %v, before anything happened", c.full(c.symptom, 0), at)
			}
			if at >= c.fault.from && (first < 0 || at < first) {
				first = at
			}
			last = max(last, at)
		}
	}
	if first < 0 {
		c.t.Errorf("nothing says what happened: no answer to %s", c.full(c.symptom, 0))
		return "never", "-"
	}
	within := c.within
	if within == 0 {
		within = 6 * time.Second
	}
	if first > c.fault.from+within {
		c.t.Errorf("%s after %v; it should take %v at most", c.full(c.symptom, 0), first-c.fault.from, within)
	}
	seen = fmt.Sprintf("%.0f", (first - c.fault.from).Seconds())
	if c.stays {
		return seen, "-"
	}
	if last > ended-4*time.Second {
		c.t.Errorf("not well again: %s still at %v", c.full(c.symptom, 0), last)
		return seen, "never"
	}
	return seen, fmt.Sprintf("%.0f", max(0, last+time.Second-c.fault.to).Seconds())
}

// alerts: those fired that the row names, and no other.
func (c *inquiry) alerts() []string {
	c.t.Helper()
	fired := map[string]bool{}
	for _, s := range c.instant(`count by (alertname, uuid, source, xid, instance) (count_over_time(ALERTS{alertstate="firing",$n}[$w]) or count_over_time(ALERTS{alertstate="firing",instance="`+c.address+`"}[$w]))`, 0, ended) {
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
