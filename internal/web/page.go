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

// page renders the latest View for a person. The page is one answer without scripts or outside assets.
func page(latest func() *gpu.View, compat nodeLink, logger *slog.Logger) http.Handler {
	t := template.Must(template.New("page").Funcs(template.FuncMap{
		"bytes": humanBytes, "percent": percent, "watts": watts, "age": age, "celsius": celsius, "pstate": pstate, "part": part,
	}).Parse(pageHTML))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := latest()
		if v == nil {
			v = &gpu.View{Notes: []string{"The driver was not asked yet."}}
		}
		var out bytes.Buffer
		shown := newNodePage(v)
		shown.Compat = compat
		if err := t.Execute(&out, shown); err != nil {
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

// part is a percentage for the length of a bar.
func part(of, whole gpu.Bytes) string {
	if whole == 0 {
		return "0"
	}
	return fmt.Sprintf("%.1f", min(100, 100*float64(of)/float64(whole)))
}

func percent(o gpu.Opt[gpu.Ratio]) string {
	if v, ok := o.Get(); ok {
		return fmt.Sprintf("%.0f\u00a0%%", float64(v)*100)
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
