// Package chromium loads pages in Chromium without a window, for tests of what a user sees.
package chromium

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

var update = flag.Bool("update", false, "write the pictures of the documentation")

// Update reports whether the pictures of the documentation are to be written.
func Update() bool { return *update }

// Tab is a browser with an empty profile and one tab.
type Tab struct {
	t   testing.TB
	ctx context.Context
	// Requests are the URLs loaded; Errors are JavaScript exceptions and dialogs.
	Requests, Errors []string
}

// New starts a browser that ends with the test.
func New(t testing.TB) *Tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	alloc, cancelAlloc := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	ctx, cancelTime := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(func() { cancelTime(); cancel(); cancelAlloc() })
	tab := &Tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(e any) {
		switch e := e.(type) {
		case *network.EventRequestWillBeSent:
			tab.Requests = append(tab.Requests, e.Request.URL)
		case *runtime.EventExceptionThrown:
			tab.Errors = append(tab.Errors, e.ExceptionDetails.Error())
		case *page.EventJavascriptDialogOpening:
			tab.Errors = append(tab.Errors, "dialog: "+e.Message)
		}
	})
	if err := chromedp.Run(ctx, network.Enable()); err != nil {
		t.Fatalf("Chromium does not start: %v (apt-get install chromium)", err)
	}
	return tab
}

// Open loads a page in a window of this size and waits for its main element.
func (tab *Tab) Open(url string, width, height int64, dark bool) {
	tab.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	err := chromedp.Run(tab.ctx, chromedp.EmulateViewport(width, height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.Navigate(url), chromedp.WaitVisible("main", chromedp.ByQuery))
	must.OK(tab.t, err)
}

// Evaluate returns the value of a JavaScript expression on a page that is complete: while one that refreshes itself is
// replaced, its elements are absent.
func Evaluate[T any](tab *Tab, script string) (out T) {
	tab.t.Helper()
	complete := "(() => { if (document.readyState !== 'complete') throw new Error('the page is loading'); return (" + script + ") })()"
	servers.Until(tab.t, script, func() error {
		return chromedp.Run(tab.ctx, chromedp.Evaluate(complete, &out))
	})
	return out
}

// Picture takes a screenshot of what is in the window, or of the whole page. With -update it replaces the picture of that
// name in docs/images, if there is one.
func (tab *Tab) Picture(name string, whole bool) {
	tab.t.Helper()
	var png []byte
	action := chromedp.CaptureScreenshot(&png)
	if whole {
		action = chromedp.FullScreenshot(&png, 100)
	}
	must.OK(tab.t, chromedp.Run(tab.ctx, action))
	if len(png) < 10_000 {
		tab.t.Errorf("the picture of %s is empty", name)
	}
	if *update {
		file := filepath.Join(servers.Root(tab.t), "docs", "images", name+".png")
		if _, err := os.Stat(file); err != nil {
			return
		}
		must.OK(tab.t, os.WriteFile(file, png, 0o644))
	}
}
