package report_test

import (
	"bytes"
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/render"
)

var update = flag.Bool("update", false, "write the picture of the documentation")

// browse starts a browser with an empty profile, and collects its network requests and its errors.
func browse(t *testing.T) (ctx context.Context, requests, errs *[]string) {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true))
	alloc, cancelAlloc := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	ctx, cancelTime := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(func() { cancelTime(); cancel(); cancelAlloc() })
	requests, errs = &[]string{}, &[]string{}
	chromedp.ListenTarget(ctx, func(e any) {
		switch e := e.(type) {
		case *network.EventRequestWillBeSent:
			*requests = append(*requests, e.Request.URL)
		case *runtime.EventExceptionThrown:
			*errs = append(*errs, e.ExceptionDetails.Error())
		case *page.EventJavascriptDialogOpening:
			*errs = append(*errs, "dialog: "+e.Message)
		}
	})
	if err := chromedp.Run(ctx, network.Enable()); err != nil {
		t.Fatalf("Chromium does not start: %v (apt-get install chromium)", err)
	}
	return ctx, requests, errs
}

func open(t *testing.T, ctx context.Context, url string, width, height int64, dark bool) {
	t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	err := chromedp.Run(ctx, chromedp.EmulateViewport(width, height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.Navigate(url), chromedp.WaitVisible("main", chromedp.ByQuery))
	must.OK(t, err)
}

func evaluate[T any](t *testing.T, ctx context.Context, script string) T {
	t.Helper()
	var out T
	if err := chromedp.Run(ctx, chromedp.Evaluate(script, &out)); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out
}

// picture takes the top of the page, and with -update keeps it for the documentation.
func picture(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	var png []byte
	must.OK(t, chromedp.Run(ctx, chromedp.CaptureScreenshot(&png)))
	if len(png) < 10_000 {
		t.Errorf("the picture of %s is empty", name)
	}
	if *update {
		file := filepath.Join("..", "..", "docs", "images", name+".png")
		if _, err := os.Stat(file); err != nil {
			return // the documentation has no such picture
		}
		must.OK(t, os.WriteFile(file, png, 0o644))
	}
}

// served renders a document and serves it, alone, until the test ends.
func served(t *testing.T, d *document.Document) (url string) {
	t.Helper()
	var b bytes.Buffer
	must.OK(t, render.Write(&b, d, "html", render.Options{}))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(b.Bytes())
	}))
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// TestPage opens the report of a small fleet in a browser.
func TestPage(t *testing.T) {
	t.Parallel()
	p := built(t)
	config := drawn(4242, true, true)
	f, err := fleet.New(config)
	must.OK(t, err)
	length, step := 36*hour, 2*time.Minute
	if *update {
		length = 9 * day // a history worth a picture
	}
	from, to := begins, begins.Add(length)
	dir := t.TempDir()
	write(t, dir, f, from.Add(-10*time.Minute), to.Add(time.Minute), step)
	url, _ := p.serve(t, dir)
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	text := "currency: EUR\nenergy_per_kwh: 0.18\ngpus:\n- {model: '*H100*', per_hour: 2.8}\n- {model: '*', per_hour: 1.2}\n"
	must.OK(t, os.WriteFile(prices, []byte(text), 0o600))
	d := p.run(t, url, "--from="+from.Format(time.RFC3339), "--to="+to.Format(time.RFC3339), "--now="+to.Format(time.RFC3339),
		"--prices="+prices)
	if len(d.Advice) == 0 || len(d.Workloads) < 20 {
		t.Fatalf("%d workloads and %d pieces of advice are too few", len(d.Workloads), len(d.Advice))
	}
	at := served(t, d)
	ctx, requests, errs := browse(t)
	for _, view := range []struct {
		name          string
		width, height int64
		dark          bool
		media         string
	}{{"report", 1440, 900, false, ""}, {"report-dark", 1440, 900, true, ""}, {"report-phone", 390, 844, false, ""},
		{"report-print", 794, 1123, false, "print"}} {
		open(t, ctx, at, view.width, view.height, view.dark)
		if view.media != "" {
			must.OK(t, chromedp.Run(ctx, emulation.SetEmulatedMedia().WithMedia(view.media)))
			if !evaluate[bool](t, ctx, `[...document.querySelectorAll('details.advice > .body')].every(x => x.offsetHeight > 40)`) {
				t.Error("a command is not printed")
			}
		}
		const bottom = `document.querySelector('.decisions').getBoundingClientRect().bottom`
		if low := evaluate[float64](t, ctx, bottom); low > float64(view.height) {
			t.Errorf("%s: the decisions end %.0f pixels below the first screen", view.name, low-float64(view.height))
		}
		if over := evaluate[float64](t, ctx, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			t.Errorf("%s: the page is %v pixels wider than the screen", view.name, over)
		}
		if n := evaluate[int](t, ctx, `document.querySelectorAll('#hours .bar i').length`); n < 4 {
			t.Errorf("%s: the bar has %d parts", view.name, n)
		}
		picture(t, ctx, view.name)
	}

	open(t, ctx, at, 1360, 900, false)
	// Sorting, finding, unfolding.
	first := `document.querySelector('table.groups > tbody .open').textContent`
	before := evaluate[string](t, ctx, first)
	evaluate[any](t, ctx, `[...document.querySelectorAll('table.groups thead button')].find(b => b.textContent === 'Allocated, h').click()`)
	hours := evaluate[[]float64](t, ctx,
		`[...document.querySelectorAll('table.groups > tbody')].map(b => parseFloat(b.rows[0].querySelector('[data-l="Allocated, `+
			`h"]').dataset.v))`)
	for i := 1; i < len(hours); i++ {
		if hours[i] > hours[i-1] {
			t.Fatalf("sorted by allocated hours, %v is after %v", hours[i], hours[i-1])
		}
	}
	if before == "" || len(hours) != len(d.Workloads) {
		t.Errorf("%d rows of %d", len(hours), len(d.Workloads))
	}
	evaluate[any](t, ctx,
		`(() => { const f = document.getElementById('find'); f.value = 'notebook'; f.dispatchEvent(new Event('input')); })()`)
	shown := evaluate[[]string](t, ctx,
		`[...document.querySelectorAll('table.groups > tbody')].filter(b => !b.hidden).map(b => b.querySelector('.open').textContent)`)
	for _, n := range shown {
		if !strings.Contains(n, "notebook") {
			t.Errorf("%s is found under notebook", n)
		}
	}
	evaluate[any](t, ctx, `(() => { const f = document.getElementById('find'); f.value = ''; f.dispatchEvent(new Event('input')); `+
		`document.querySelector('.open').click(); })()`)
	if !evaluate[bool](t, ctx,
		`document.querySelector('.open').getAttribute('aria-expanded') === 'true' && document.querySelector('tr.more').offsetHeight > 40`) {
		t.Error("a workload does not unfold")
	}
	if evaluate[int](t, ctx, `[...document.querySelectorAll('a[href^="#"]')].filter(a => `+
		`!document.getElementById(a.getAttribute('href').slice(1))).length`) > 0 {
		t.Error("a link leads nowhere")
	}
	for _, u := range *requests {
		if u != at && !strings.HasSuffix(u, "/favicon.ico") {
			t.Errorf("the page requested %s", u)
		}
	}
	if len(*errs) > 0 {
		t.Errorf("errors of the browser: %v", *errs)
	}
}

// TestHostilePage opens a page full of names that are code.
func TestHostilePage(t *testing.T) {
	t.Parallel()
	names := []string{`<script>document.title='owned'</script>`, `"><img src=x onerror="document.title='owned'">`,
		`'><svg onload=alert(1)>`, `</script><script>alert(1)</script>`, `javascript:alert(1)`, "a\u202eb"}
	at := begins
	d := &document.Document{Schema: document.Schema, Generated: at,
		Period:   document.Span{From: at, To: at.Add(hour), StepSeconds: 300, Hours: 1},
		Currency: names[0], Partial: true, PartialReasons: names, Notes: []document.Note{{Code: "x", Text: names[1]}},
		Fleet:   document.Account{GPUs: 1, Hours: 1, States: document.States{Busy: 1}, Cost: new(float64), StateCost: &document.States{}},
		Sources: []document.Source{{Data: names[0], From: names[1], Series: names[2]}}}
	for i, n := range names {
		d.Models = append(d.Models, document.Account{Model: n, Hours: 1})
		d.Nodes = append(d.Nodes, document.Account{Node: n, Cluster: n, Model: n, Hours: 1})
		d.Workloads = append(d.Workloads, document.Workload{ID: n, Namespace: n, Name: n, Kind: n, Model: n, Sharing: n, Profile: n,
			Advice: "release", NoAdviceReason: n, Plot: &document.Plot{Busy: []float64{0.5}, Peak: []float64{0.6},
				Memory: []float64{float64(i)}, GPUs: []float64{1}}})
		d.Advice = append(d.Advice, document.Advice{Code: "release", Reason: n, Workload: n, Title: n, Evidence: n, Alternatives: n,
			Risk:   n,
			Change: n, ChangeIn: n, Confidence: n})
	}
	ctx, requests, errs := browse(t)
	open(t, ctx, served(t, d), 1000, 800, false)
	evaluate[any](t, ctx, `document.querySelectorAll('th button, .open, summary').forEach(b => b.click())`)
	if title := evaluate[string](t, ctx, `document.title`); !strings.HasPrefix(title, "GPU capacity report") {
		t.Errorf("the title is %q", title)
	}
	if n := evaluate[int](t, ctx,
		`document.querySelectorAll('img, main script, [onerror], [onload], a[href^="javascript"]').length`); n > 0 {
		t.Errorf("%d names became elements", n)
	}
	if text := evaluate[string](t, ctx, `document.querySelector('.open').textContent`); !slices.Contains(names, text) {
		t.Errorf("a name is shown as %q", text)
	}
	if slices.ContainsFunc(*requests, func(u string) bool {
		return !strings.HasPrefix(u, "http://127.0.0.1:") ||
			strings.HasSuffix(u, "/x")
	}) || len(*errs) > 0 {
		t.Errorf("requests %v, errors %v", *requests, *errs)
	}
}
