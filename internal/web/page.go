package web

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

//go:embed page.html
var pageHTML string

// page renders the latest View for a person. The page is one answer without scripts or outside assets.
func page(latest func() *gpu.View, logger *slog.Logger) http.Handler {
	t := template.Must(template.New("page").Funcs(template.FuncMap{
		"bytes": humanBytes, "percent": percent, "watts": watts, "age": age, "since": since, "celsius": celsius, "pstate": pstate,
		"memory": func(o gpu.Opt[gpu.Memory]) gpu.Memory { return o.Or(gpu.Memory{}) },
	}).Parse(pageHTML))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := latest()
		if v == nil {
			v = &gpu.View{Notes: []string{"The driver was not asked yet."}}
		}
		var out bytes.Buffer
		if err := t.Execute(&out, newNodePage(v)); err != nil {
			logger.Error("cannot render the landing page", "err", err)
			http.Error(w, "the page cannot be rendered: "+err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		w.Write(out.Bytes())
	})
}

// nodePage is what the template shows: the View, and beside it what the template cannot work out.
type nodePage struct {
	*gpu.View
	Driver *gpu.System // nil without a driver
	Rows   []cardRow
}

// cardRow is one card of the table with its holders.
type cardRow struct {
	*gpu.Card
	Fast      *gpu.Fast
	Medium    *gpu.Medium
	Slow      *gpu.Slow
	Memory    *gpu.Memory
	Holders   []gpu.ContainerHolding
	Instances []instanceRow
}

type instanceRow struct {
	gpu.InstanceActivity
	Holders []gpu.ContainerHolding
}

func newNodePage(v *gpu.View) nodePage {
	p := nodePage{View: v}
	if s, ok := v.System.Get(); ok {
		p.Driver = &s
	}
	for i := range v.Cards {
		c := &v.Cards[i]
		row := cardRow{Card: c}
		// What was last read of a card that cannot be read now is not shown as if it were live.
		if c.State == gpu.CardUp {
			row.Fast, row.Medium, row.Slow = c.Fast.Or(nil), c.Medium.Or(nil), c.Slow.Or(nil)
		}
		if row.Medium != nil {
			if m, ok := row.Medium.Memory.Get(); ok {
				row.Memory = &m
			}
		}
		for _, in := range c.Instances {
			row.Instances = append(row.Instances, instanceRow{in, holders(v, c.UUID, func(h gpu.UUID) bool {
				return h != "" && (h == in.UUID || slices.ContainsFunc(in.Compute, func(ci gpu.ComputeInstance) bool { return ci.UUID == h }))
			})})
		}
		row.Holders = holders(v, c.UUID, func(in gpu.UUID) bool { return in == "" })
		p.Rows = append(p.Rows, row)
	}
	return p
}

func holders(v *gpu.View, card gpu.UUID, instance func(gpu.UUID) bool) []gpu.ContainerHolding {
	var out []gpu.ContainerHolding
	for _, h := range v.Holdings {
		if h.Card == card && instance(h.Instance) {
			out = append(out, h)
		}
	}
	return out
}

// The functions below spell values for a person. Absent is a dash, never a zero.

const absent = "–"

func humanBytes(b gpu.Bytes) string {
	const unit = 1024
	if b < unit {
		return fmt.Sprintf("%d B", b)
	}
	v, at := float64(b)/unit, 0
	for ; v >= unit && at < 4; at++ {
		v /= unit
	}
	return fmt.Sprintf("%.3g %ciB", v, "KMGTP"[at])
}

func percent(o gpu.Opt[gpu.Ratio]) string {
	if v, ok := o.Get(); ok {
		return fmt.Sprintf("%.0f %%", float64(v)*100)
	}
	return absent
}

func watts(o gpu.Opt[gpu.Watts]) string {
	if v, ok := o.Get(); ok {
		return fmt.Sprintf("%.0f W", float64(v))
	}
	return absent
}

func celsius(o gpu.Opt[gpu.Celsius]) string {
	if v, ok := o.Get(); ok {
		return fmt.Sprintf("%.0f °C", float64(v))
	}
	return absent
}

func pstate(o gpu.Opt[int]) string {
	if v, ok := o.Get(); ok {
		return fmt.Sprintf("P%d", v)
	}
	return absent
}

func age(now time.Time, o gpu.Opt[time.Time]) string {
	if t, ok := o.Get(); ok {
		return since(now, t)
	}
	return "never"
}

func since(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < 2*time.Second:
		return "just now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}
