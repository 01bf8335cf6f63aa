// Command preview serves a page that draws the dashboards with Grafana's own components (its npm packages), without
// Grafana, from a Prometheus-compatible API. It can also check every dashboard in Chromium, or write pictures of them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

type config struct {
	root, api, listen, pictures, theme string
	check                              bool
	width                              int64
	views                              []string
}

// narrow is the width of the second window that a check draws the dashboards in.
const narrow = 1280

func main() {
	var c config
	flag.StringVar(&c.root, "root", "..", "Root directory of the repository.")
	flag.StringVar(&c.api, "url", "http://127.0.0.1:8428", "URL of the Prometheus-compatible API to query.")
	flag.StringVar(&c.listen, "listen", "127.0.0.1:0", "Address to serve the dashboards on.")
	flag.BoolVar(&c.check, "check", false, "Load all dashboards in Chromium and print how each panel is drawn, as JSON lines.")
	flag.StringVar(&c.pictures, "pictures", "", "Load all dashboards in Chromium and write dashboard-UID.png to this directory.")
	flag.Int64Var(&c.width, "width", 1600, "Width of the window in pixels.")
	flag.StringVar(&c.theme, "theme", "dark", "Theme of the pictures: dark or light.")
	flag.Func("view", "Query string to load a dashboard with, repeatable: gpu-node?var-node=n1.",
		func(text string) error { c.views = append(c.views, text); return nil })
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "preview:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config) error {
	handler, uids, err := newHandler(ctx, c)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	base := "http://" + listener.Addr().String()
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	if c.check || c.pictures != "" {
		return browse(ctx, c, base, uids)
	}
	fmt.Println("the dashboards are at", base)
	select {
	case err := <-serving:
		return err
	case <-ctx.Done():
		return nil
	}
}

// newHandler builds the page and returns what serves it, and the UIDs of the dashboards.
func newHandler(ctx context.Context, c config) (http.Handler, []string, error) {
	api, err := url.Parse(c.api)
	if err != nil {
		return nil, nil, err
	}
	source := filepath.Join(c.root, "test", "preview")
	cmd := exec.CommandContext(ctx, filepath.Join(source, "build"))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, nil, fmt.Errorf("build the page: %w", err)
	}
	var uids []string
	var all []json.RawMessage
	files, err := filepath.Glob(filepath.Join(c.root, "dashboards", "*.json"))
	if err != nil || len(files) == 0 {
		return nil, nil, fmt.Errorf("no dashboards in %s (run make generate): %w", c.root, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, nil, err
		}
		uids, all = append(uids, strings.TrimSuffix(filepath.Base(f), ".json")), append(all, text)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(filepath.Join(c.root, ".cache", "preview", "app"))))
	mux.Handle("/{$}", http.RedirectHandler("/d/gpu-fleet", http.StatusFound))
	mux.Handle("/api/v1/", httputil.NewSingleHostReverseProxy(api))
	mux.HandleFunc("/d/", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(source, "index.html"))
	})
	mux.HandleFunc("/dashboards", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(all) })
	return mux, uids, nil
}

// browse loads the dashboards in Chromium. What a panel could not draw, and every JavaScript error, is an error.
func browse(ctx context.Context, c config, base string, uids []string) error {
	ctx, cancelAll := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("hide-scrollbars", true))...)
	defer cancelAll()
	ctx, cancel := chromedp.NewContext(ctx)
	defer cancel()
	views := slices.Clone(c.views)
	for _, uid := range uids {
		if !slices.ContainsFunc(c.views, func(v string) bool { return strings.HasPrefix(v, uid+"?") }) {
			views = append(views, uid+"?")
		}
	}
	if err := chromedp.Run(ctx); err != nil { // one browser for all of them
		return err
	}
	var failed []error
	for _, view := range views {
		if err := load(ctx, c, base, view); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", view, err))
		}
	}
	return errors.Join(failed...)
}

// drawn is how the page drew a panel; see app.tsx.
type drawn struct {
	Dashboard string   `json:"dashboard"`
	ID        int      `json:"id"`
	Panel     string   `json:"panel"`
	State     string   `json:"state"`
	Error     string   `json:"error,omitempty"`
	Empty     []string `json:"empty"` // queries without a series
	// Faults are what could not be read: cut titles and columns, rows left out, unknown values drawn as 0 %.
	Faults []string `json:"faults"`
	Width  int64    `json:"width"` // of the window
}

// cost is what a page took to draw, in terms that do not depend on what else the machine does.
type cost struct {
	Dashboard string `json:"dashboard"`
	// CPU is the processor time of the page's main thread, in seconds, the page's own code included.
	CPU float64 `json:"cpu"`
	// Start is the time until Grafana's components are loaded, Wall that from then to the last change of the page, in seconds.
	Start   float64 `json:"start"`
	Wall    float64 `json:"wall"`
	Queries int     `json:"queries"`
	Bytes   int     `json:"bytes"` // of the answers
}

// measure reads the processor time of the page's main thread.
func (c *cost) measure(ctx context.Context) error {
	metrics, err := performance.GetMetrics().Do(ctx)
	for _, m := range metrics {
		if m.Name == "TaskDuration" {
			c.CPU = m.Value
		}
	}
	return err
}

func load(ctx context.Context, c config, base, view string) error {
	ctx, cancel := chromedp.NewContext(ctx) // a tab of its own
	defer cancel()
	ctx, cancelTime := context.WithTimeout(ctx, 2*time.Minute)
	defer cancelTime()
	var failed []error
	chromedp.ListenTarget(ctx, func(event any) {
		if thrown, ok := event.(*runtime.EventExceptionThrown); ok {
			failed = append(failed, thrown.ExceptionDetails)
		}
	})
	address := base + "/d/" + view + "&theme=" + c.theme
	if c.check {
		address += "&rows=open"
	}
	var panels []drawn
	uid, _, _ := strings.Cut(view, "?")
	spent := cost{Dashboard: uid}
	settled := chromedp.Poll(`window.settled?.()`, nil, chromedp.WithPollingTimeout(0))
	// The window is high enough for a whole dashboard: tables draw only the rows that are in it.
	err := chromedp.Run(ctx, performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks),
		chromedp.EmulateViewport(c.width, 6000), chromedp.Navigate(address), settled,
		chromedp.ActionFunc(func(ctx context.Context) error { return spent.measure(ctx) }),
		chromedp.Evaluate(`answers()`, &spent), chromedp.Evaluate(`report()`, &panels))
	if err != nil {
		return errors.Join(append(failed, err)...)
	}
	show := func(width int64) {
		for _, p := range panels {
			p.Dashboard, p.Width = uid, width
			if p.State == "error" {
				failed = append(failed, fmt.Errorf("panel %q: %s", p.Panel, p.Error))
			}
			if c.check {
				_ = json.NewEncoder(os.Stdout).Encode(p)
			}
		}
	}
	show(c.width)
	if c.check {
		_ = json.NewEncoder(os.Stdout).Encode(spent)
		panels = nil
		err := chromedp.Run(ctx, chromedp.EmulateViewport(narrow, 6000), chromedp.Evaluate(`unsettle()`, nil), settled,
			chromedp.Evaluate(`report()`, &panels))
		if err != nil {
			return errors.Join(append(failed, fmt.Errorf("at %d px: %w", narrow, err))...)
		}
		show(narrow)
	}
	if c.pictures != "" {
		// The clip is inside the window: a capture beyond it would lay the page out again.
		clip := &page.Viewport{Width: float64(c.width), Scale: 1}
		var png []byte
		err := chromedp.Run(ctx, chromedp.Evaluate(`document.querySelector('main').offsetHeight`, &clip.Height),
			chromedp.ActionFunc(func(ctx context.Context) (err error) {
				png, err = page.CaptureScreenshot().WithClip(clip).Do(ctx)
				return err
			}))
		if err != nil {
			return err
		}
		failed = append(failed, os.WriteFile(filepath.Join(c.pictures, "dashboard-"+uid+".png"), png, 0o644))
	}
	return errors.Join(failed...)
}
