package web

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"sync"

	"github.com/prometheus/common/expfmt"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

//go:embed page.html
var pageHTML string

// notPolled is the reason of an empty page just after the start.
const notPolled = "the driver has not been polled yet"

// page renders the latest View, without scripts or external assets.
func page(latest func() *gpu.View, compat nodeLink, logger *slog.Logger) http.Handler {
	parsed := sync.OnceValue(func() *template.Template { // most nodes' pages are never requested
		return template.Must(template.New("page").Funcs(template.FuncMap{
			"bytes": humanBytes, "percent": percent, "watts": watts, "age": age, "celsius": celsius, "pstate": pstate,
			"share": share,
		}).Parse(pageHTML))
	})
	pages := &cache{latest: latest}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "+
			"form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		pages.send(w, r, expfmt.TypeUnknown, func(page io.Writer, v *gpu.View) {
			if v == nil {
				v = &gpu.View{Notes: []string{notPolled}}
			}
			var out bytes.Buffer
			if err := parsed().Execute(&out, newNodePage(v, compat)); err != nil {
				logger.Error("failed to render the node page", "err", err)
				fmt.Fprintf(&out, "failed to render the page: %v", err)
			}
			_, _ = io.WriteString(page, gpu.PrintableText(out.String()))
		})
	})
}

// The functions below format values; an absent one is a dash, never a zero.
