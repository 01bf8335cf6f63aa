package alerts

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
)

// Config is what a user may change. Default returns the configuration of the shipped files.
type Config struct {
	// ClusterLabel is the label of the cluster in a Prometheus with several; series without it work as well.
	ClusterLabel string
	// RunbookURL is the address of a runbook, with {alert} for the alert's name in lower case.
	RunbookURL string
	// DashboardURL is the address of Grafana; without it alerts have no link to a dashboard.
	DashboardURL string
	// Job is the regular expression of the exporter's job in up.
	Job string
	// Resource is the regular expression of GPU resources in the spelling of kube-state-metrics.
	Resource string
	// Scale multiplies every duration, including the intervals of groups: 1/60 turns an hour into a minute, for tests.
	Scale float64
	// Labels are added to every alert.
	Labels map[string]string
	// Prices are those of a GPU-hour by model, in any currency.
	Prices map[string]float64
	// Alerts overrides single alerts, by name.
	Alerts map[string]Override
}

// Override overrides one alert. Zero fields keep the default.
type Override struct {
	Enabled  *bool
	Severity Severity
	// For and KeepFiringFor are Prometheus durations: 15m; 0s for none.
	For, KeepFiringFor string
	// Parameters are values by name: numbers, or durations for periods.
	Parameters map[string]string
	// Labels are added to the alert's.
	Labels map[string]string
}

// Default returns the configuration of the shipped files.
func Default() Config {
	return Config{
		ClusterLabel: "cluster",
		RunbookURL:   catalog.Documentation + "alerts.md#{alert}",
		Job:          jobRE,
		Resource:     resourceRE,
		Scale:        1,
	}
}

var (
	labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	spans     = regexp.MustCompile(`^(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?$`)
)

// parseDuration reads a duration as Prometheus writes it.
func parseDuration(text string) (time.Duration, error) {
	m := spans.FindStringSubmatch(text)
	if m == nil || text == "" {
		return 0, fmt.Errorf("%q is not a duration such as 90s, 15m or 1h30m", text)
	}
	var d time.Duration
	for i, unit := range []time.Duration{7 * day, day, hour, minute, time.Second, time.Millisecond} {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.ParseInt(m[i+1], 10, 32)
		if err != nil || n > int64(10*365*day/unit) {
			return 0, fmt.Errorf("%q is longer than ten years", text)
		}
		d += time.Duration(n) * unit
	}
	return d, nil
}

// FormatDuration writes a duration as Prometheus reads it, in days and not in weeks: 7d.
func FormatDuration(d time.Duration) string {
	if d < time.Millisecond {
		return "0s"
	}
	var b strings.Builder
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{day, "d"}, {hour, "h"}, {minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	return b.String()
}

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// check looks at everything but the alerts' own knobs.
func (c Config) check() error {
	switch {
	case !labelName.MatchString(c.ClusterLabel):
		return fmt.Errorf("clusterLabel: %q is not a label name", c.ClusterLabel)
	case !strings.Contains(c.RunbookURL, "{alert}"):
		return fmt.Errorf("runbookURL: %q must contain {alert}, which stands for the alert's name", c.RunbookURL)
	case !(c.Scale > 0) || c.Scale > 1:
		return fmt.Errorf("scale: must be above 0 and at most 1, got %v", c.Scale)
	}
	for _, p := range []struct{ name, pattern string }{{"job", c.Job}, {"resource", c.Resource}} {
		if _, err := regexp.Compile(p.pattern); err != nil || p.pattern == "" ||
			strings.ContainsAny(p.pattern, "\"\\\n") {
			return fmt.Errorf("%s: %q must be a regular expression without quotes and backslashes", p.name, p.pattern)
		}
	}
	for model, price := range c.Prices {
		if model == "" || !(price >= 0) || math.IsInf(price, 1) {
			return fmt.Errorf("prices.%s: must be a price of at least 0 for the name of a model, got %v", model, price)
		}
	}
	known := Alerts()
	for _, name := range slices.Sorted(maps.Keys(c.Alerts)) {
		if !slices.ContainsFunc(known, func(a Alert) bool { return a.Name == name }) {
			return fmt.Errorf("alerts.%s: no such alert; docs/alerts.md lists them", name)
		}
	}
	return checkLabels("labels", c.Labels)
}

func checkLabels(where string, labels map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !labelName.MatchString(name) || name == "alertname" || name == "severity" {
			return fmt.Errorf("%s.%s: this label cannot be set here", where, name)
		}
	}
	return nil
}

// apply returns the alert as the configuration wants it, with the values of its knobs by name.
func (o Override) apply(a Alert) (Alert, error) {
	fail := func(parameter, format string, args ...any) (Alert, error) {
		return Alert{}, fmt.Errorf("alerts.%s.%s: %s", a.Name, parameter, fmt.Sprintf(format, args...))
	}
	if o.Enabled != nil {
		a.Off = !*o.Enabled
	}
	if o.Severity != "" {
		if !slices.Contains([]Severity{Critical, Warning, Info}, o.Severity) {
			return fail("severity", "%q must be critical, warning or info", o.Severity)
		}
		a.Severity = o.Severity
	}
	for _, d := range []struct {
		name, text string
		into       *time.Duration
	}{{"for", o.For, &a.For}, {"keepFiringFor", o.KeepFiringFor, &a.Keep}} {
		if d.text == "" {
			continue
		}
		v, err := parseDuration(d.text)
		if err != nil {
			return fail(d.name, "%v", err)
		}
		*d.into = v
	}
	a.Parameters = slices.Clone(a.Parameters)
	for _, name := range slices.Sorted(maps.Keys(o.Parameters)) {
		at := slices.IndexFunc(a.Parameters, func(k Parameter) bool { return k.Name == name })
		if at < 0 {
			return fail(name, "the alert has no such parameter; docs/alerts.md lists them")
		}
		k, text := &a.Parameters[at], o.Parameters[name]
		if k.Duration > 0 {
			d, err := parseDuration(text)
			switch {
			case err != nil:
				return fail(name, "%v", err)
			case d < minute:
				return fail(name, "must be at least 1m, got %s", text)
			}
			k.Duration = d
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		switch {
		case err != nil || math.IsNaN(v):
			return fail(name, "%q is not a number", text)
		case v < k.Min || v > k.Max:
			return fail(name, "must be between %s and %s, got %s", formatNumber(k.Min), formatNumber(k.Max), text)
		}
		k.Number = v
	}
	if err := checkLabels("alerts."+a.Name+".labels", o.Labels); err != nil {
		return Alert{}, err
	}
	return a, nil
}
