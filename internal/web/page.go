package web

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

//go:embed page.html
var pageHTML string

// notPolled is the reason of an empty page just after the start.
const notPolled = "the driver has not been polled yet"

// page renders the latest View, without scripts or external assets.
func page(latest func() *gpu.View, compat nodeLink, logger *slog.Logger) http.Handler {
	t := template.Must(template.New("page").Funcs(template.FuncMap{
		"bytes": humanBytes, "percent": percent, "watts": watts, "age": age, "celsius": celsius, "pstate": pstate,
		"share": share,
	}).Parse(pageHTML))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := latest()
		if v == nil {
			v = &gpu.View{Notes: []string{notPolled}}
		}
		var out bytes.Buffer
		if err := t.Execute(&out, newNodePage(v, compat)); err != nil {
			logger.Error("failed to render the landing page", "err", err)
			http.Error(w, "failed to render the page: "+err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "+
			"form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		w.Write(out.Bytes())
	})
}

// The functions below format values; an absent one is a dash, never a zero.

const absent = "–"

func format[T any](o gpu.Opt[T], layout string, of func(T) any) string {
	if v, ok := o.Get(); ok {
		return fmt.Sprintf(layout, of(v))
	}
	return absent
}

func percent(o gpu.Opt[gpu.Ratio]) string {
	return format(o, "%.0f\u00a0%%", func(r gpu.Ratio) any { return float64(r) * 100 })
}

func watts(o gpu.Opt[gpu.Watts]) string {
	return format(o, "%.0f W", func(w gpu.Watts) any { return float64(w) })
}

func celsius(o gpu.Opt[gpu.Celsius]) string {
	return format(o, "%.0f °C", func(c gpu.Celsius) any { return float64(c) })
}

func pstate(o gpu.Opt[int]) string { return format(o, "P%d", func(p int) any { return p }) }

func humanBytes(b gpu.Bytes) string {
	const unit = 1024
	if b < unit {
		return fmt.Sprintf("%d B", b)
	}
	v, prefix := float64(b)/unit, 0
	for ; v >= unit && prefix < 4; prefix++ {
		v /= unit
	}
	return fmt.Sprintf("%.3g %ciB", v, "KMGTP"[prefix])
}

// share is a percentage for the length of a bar.
func share(of, total gpu.Bytes) string {
	if total == 0 {
		return "0"
	}
	return fmt.Sprintf("%.1f", min(100, 100*float64(of)/float64(total)))
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
