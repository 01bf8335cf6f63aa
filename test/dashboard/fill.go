package dashboard

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Window is the time range and resolution of a dashboard.
type Window struct {
	From, To time.Time
	// Step is the resolution of range queries; Scrape the scrape interval that the data source is configured with.
	Step, Scrape time.Duration
}

// RateInterval is Grafana's $__rate_interval: at least four scrapes.
func (w Window) RateInterval() time.Duration { return max(w.Step+w.Scrape, 4*w.Scrape) }

// Values are the values of variables by name. A missing one means All.
type Values map[string][]string

// use finds a variable; $1 is label_replace's.
var use = regexp.MustCompile(`\$\{([A-Za-z_]\w*)(?::(\w+))?\}|\$([A-Za-z_]\w*)`)

// Fill replaces variables and macros as Grafana does for a Prometheus source: several values of a variable
// become a regular expression. A variable that the dashboard does not have is an error.
func (d Dashboard) Fill(expr string, values Values, w Window) (string, error) {
	var err error
	out := use.ReplaceAllStringFunc(expr, func(m string) string {
		parts := use.FindStringSubmatch(m)
		name, format := parts[1]+parts[3], parts[2]
		switch name {
		case "__rate_interval":
			return duration(w.RateInterval())
		case "__interval":
			return duration(w.Step)
		case "__interval_ms":
			return strconv.FormatInt(w.Step.Milliseconds(), 10)
		case "__range":
			return duration(w.To.Sub(w.From))
		case "__range_s":
			return strconv.FormatInt(int64(math.Round(w.To.Sub(w.From).Seconds())), 10)
		case "__range_ms":
			return strconv.FormatInt(w.To.Sub(w.From).Milliseconds(), 10)
		}
		for _, v := range d.Variables {
			if v.Name == name {
				return v.text(values[name], format)
			}
		}
		err = fmt.Errorf("dashboard %s has no variable %s: %s", d.UID, name, expr)
		return m
	})
	return out, err
}

// text returns the chosen values as a part of a query.
func (v Variable) text(chosen []string, format string) string {
	switch {
	case len(chosen) == 0 && v.Type == "datasource":
		return "prometheus"
	case len(chosen) == 0 && (v.Type == "textbox" || v.Type == "constant" || v.Type == "custom"):
		return strings.TrimSpace(strings.Split(v.Query, ",")[0])
	case len(chosen) == 0 && v.AllValue != "":
		return v.AllValue
	case len(chosen) == 0:
		return ".*"
	case format == "raw" || (len(chosen) == 1 && !v.Multi && !v.All):
		return strings.Join(chosen, "|")
	}
	quoted := make([]string, len(chosen))
	for i, c := range chosen {
		// In a PromQL string a backslash has to be written twice.
		quoted[i] = strings.ReplaceAll(regexp.QuoteMeta(c), `\`, `\\`)
	}
	if len(quoted) == 1 {
		return quoted[0]
	}
	return "(" + strings.Join(quoted, "|") + ")"
}

// duration formats a duration as PromQL does.
func duration(d time.Duration) string {
	if d%time.Second != 0 {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return fmt.Sprintf("%ds", int64(d.Seconds()))
}
