// Package browser_test looks at the node page in a real browser, Chromium without a window.
package browser_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the pictures of the documentation")

// serve runs the exporter on a scenario until the test ends, and returns the address of its page.
func serve(t *testing.T, scenario, pods string, node ...string) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"make", "build"}, {"go", "build", "-o", "bin/standin", "./cmd/standin"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	args := append([]string{"--quiet", "--scenario=" + scenario}, node...)
	if pods != "" {
		args = append(args, "--pods="+pods)
	}
	args = append(args, "--", filepath.Join(root, "bin", "gpu-exporter"), "--log.level=error", "--node-name=gpu-node-1", "--web.listen-address="+address)
	cmd := exec.Command(filepath.Join(root, "bin", "standin"), args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		res, err := http.Get("http://" + address + "/")
		if err == nil {
			res.Body.Close()
			return "http://" + address + "/"
		}
		if time.Now().After(end) {
			t.Fatalf("no page: %v", err)
		}
	}
}

// browse starts a browser with an empty profile.
func browse(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	alloc, cancelAlloc := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	ctx, cancelTime := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(func() { cancelTime(); cancel(); cancelAlloc() })
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("Chromium does not start: %v (apt-get install chromium)", err)
	}
	return ctx
}

func evaluate[T any](t *testing.T, ctx context.Context, script string) T {
	t.Helper()
	var out T
	if err := chromedp.Run(ctx, chromedp.Evaluate(script, &out)); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out
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
	if err != nil {
		t.Fatal(err)
	}
}

// picture writes a screenshot of the whole page into docs/images, with -update alone.
func picture(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	var png []byte
	if err := chromedp.Run(ctx, chromedp.FullScreenshot(&png, 100)); err != nil {
		t.Fatal(err)
	}
	if len(png) < 10_000 {
		t.Errorf("the picture of %s is empty", name)
	}
	if *update {
		dir := filepath.Join("..", "..", "docs", "images")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNodePage(t *testing.T) {
	url := serve(t, "testdata/scenarios/demo.scenario", "testdata/kubelet/demo.pods")
	history := 15 * time.Second
	if *update {
		history = 3 * time.Minute // a plot worth a picture
	}
	time.Sleep(history)
	ctx := browse(t)
	for _, view := range []struct {
		name          string
		width, height int64
		dark          bool
	}{{"node-page", 1280, 900, false}, {"node-page-dark", 1280, 900, true}, {"node-page-phone", 390, 844, false}, {"node-page-phone-dark", 390, 844, true}} {
		open(t, ctx, url, view.width, view.height, view.dark)
		if text := evaluate[string](t, ctx, `document.querySelector('main').innerText`); !strings.Contains(text, "ml-training/llama-pretrain-0") || !strings.Contains(text, "notebooks/jupyter-chidi") || !strings.Contains(text, "free") {
			t.Errorf("%s does not show who holds the GPUs:\n%s", view.name, text)
		}
		if n := evaluate[int](t, ctx, `document.querySelectorAll('section[aria-labelledby=GPUs] tbody tr').length`); n != 12 {
			t.Errorf("%s shows %d rows for eight GPUs and four instances", view.name, n)
		}
		// A page that scrolls sideways cannot be read on a phone.
		if over := evaluate[float64](t, ctx, `document.documentElement.scrollWidth - window.innerWidth`); over > 0 {
			t.Errorf("%s is %v pixels wider than its window", view.name, over)
		}
		if low := evaluate[[]string](t, ctx, contrastScript); len(low) > 0 {
			t.Errorf("%s has text of too little contrast: %s", view.name, strings.Join(low, "; "))
		}
		picture(t, ctx, view.name)
	}
}

// contrastScript lists texts whose contrast to the page is below 4.5 to 1, the WCAG's bound for ordinary text.
const contrastScript = `(() => {
  const parse = c => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const lum = ([r, g, b]) => { const f = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b) };
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const page = dark ? [18, 18, 18] : [255, 255, 255];
  const out = new Set();
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const l1 = lum(parse(getComputedStyle(e).color)), l2 = lum(page);
    const ratio = (Math.max(l1, l2) + 0.05) / (Math.min(l1, l2) + 0.05);
    if (ratio < 4.5) out.add(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2));
  }
  return [...out];
})()`

func TestPageIsReadableWithoutEyes(t *testing.T) {
	ctx := browse(t)
	open(t, ctx, serve(t, "testdata/scenarios/demo.scenario", "testdata/kubelet/demo.pods"), 1280, 900, false)
	for what, script := range map[string]string{
		"the language is told":             `document.documentElement.lang === 'en'`,
		"there is one main and one h1":     `document.querySelectorAll('main').length === 1 && document.querySelectorAll('h1').length === 1`,
		"every column has a heading":       `[...document.querySelectorAll('table')].every(t => t.querySelectorAll('th[scope=col]').length > 0)`,
		"every section is named":           `[...document.querySelectorAll('section')].every(s => document.getElementById(s.getAttribute('aria-labelledby')))`,
		"every picture says what it is":    `[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label'))`,
		"links can be reached by keyboard": `[...document.querySelectorAll('a')].every(a => a.tabIndex >= 0 && a.href)`,
		"nothing is loaded from elsewhere": `performance.getEntriesByType('resource').every(r => r.name.startsWith(location.origin))`,
		"there is no script":               `document.scripts.length === 0`,
	} {
		if !evaluate[bool](t, ctx, script) {
			t.Errorf("not so: %s", what)
		}
	}
	// The layout for phones takes the tables apart; to a screen reader they stay tables by their roles.
	if !evaluate[bool](t, ctx, `[...document.querySelectorAll('td')].every(d => d.getAttribute('role') === 'cell' && d.parentElement.getAttribute('role') === 'row' && d.closest('table').getAttribute('role') === 'table')`) {
		t.Error("a cell has not the roles that make it one")
	}
}

func TestPageRefreshesItself(t *testing.T) {
	ctx := browse(t)
	open(t, ctx, serve(t, "testdata/scenarios/demo.scenario", "testdata/kubelet/demo.pods"), 1280, 900, false)
	const read = `document.querySelector('.sub').innerText`
	first := evaluate[string](t, ctx, read)
	for end := time.Now().Add(25 * time.Second); evaluate[string](t, ctx, read) == first; time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 25 s the page still says %q", first)
		}
	}
}

// boards is a folder of one's own with the scenarios and their boards, for a scenario to include.
func boards(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "testdata", "scenarios"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestHostileNamesStayText(t *testing.T) {
	dir := boards(t)
	const evil = `<script>document.title='owned'</script><img src=x onerror=alert(1)>`
	scenario := filepath.Join(dir, "hostile.scenario")
	text := "scenario 1\ntitle \"hostile\"\ninclude boards/h100-sxm.scenario\nsymbols R580\nsystem DriverVersion = \"580\"\ngpu 0 board=h100 uuid=GPU-aaaaaaaa-0000-4000-8000-000000000000 pci=0000:18:00.0 minor=0\n  Name = \"" + evil + "\"\n"
	if err := os.WriteFile(scenario, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	pods := filepath.Join(dir, "hostile.pods")
	const evilPod = `<b>bold</b>"'&quot;<img`
	if err := os.WriteFile(pods, []byte("pod evil/"+strings.ReplaceAll(evilPod, "/", "")+" container "+evilPod+" nvidia.com/gpu=GPU-aaaaaaaa-0000-4000-8000-000000000000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	url := serve(t, scenario, pods)
	time.Sleep(3 * time.Second)
	ctx := browse(t)
	open(t, ctx, url, 1280, 900, false)
	if title := evaluate[string](t, ctx, `document.title`); strings.Contains(title, "owned") {
		t.Error("a name became a script")
	}
	text = evaluate[string](t, ctx, `document.querySelector('main').innerText`)
	if !strings.Contains(text, evil) || !strings.Contains(text, evilPod) {
		t.Errorf("the names are not shown as they are:\n%s", text)
	}
	if n := evaluate[int](t, ctx, `document.querySelectorAll('main img, main script, td b b, td div.use b').length`); n > 0 {
		t.Errorf("%d elements came out of names", n)
	}
}

func TestPageWithFaults(t *testing.T) {
	dir := boards(t)
	demo, err := os.ReadFile(filepath.Join(dir, "demo.scenario"))
	if err != nil {
		t.Fatal(err)
	}
	scenario := filepath.Join(dir, "faults-on-demo.scenario")
	text := string(demo) + "\nat 2s gpu 1 xid 79\nat 2s gpu 1 lose\nat 2s gpu 3 hang FieldValues\nat 2s gpu 0 xid 13\n"
	if err := os.WriteFile(scenario, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	url := serve(t, scenario, "testdata/kubelet/demo.pods")
	time.Sleep(12 * time.Second)
	ctx := browse(t)
	open(t, ctx, url, 1280, 900, false)
	page := evaluate[string](t, ctx, `document.body.innerText`)
	for _, want := range []string{"2 failed", "hung", "lost", "XID 79", "XID 13"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not show %q:\n%s", want, page)
		}
	}
	picture(t, ctx, "node-page-faults")
}

func TestPageWithoutADriver(t *testing.T) {
	url := serve(t, "testdata/scenarios/demo.scenario", "", "--no-driver")
	ctx := browse(t)
	open(t, ctx, url, 1280, 900, false)
	page := evaluate[string](t, ctx, `document.body.innerText`)
	for _, want := range []string{"No driver", "not-installed/libnvidia-ml.so.1"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not show %q:\n%s", want, page)
		}
	}
	if notes := evaluate[string](t, ctx, `[...document.querySelectorAll('.note')].map(n => n.innerText).join('|')`); notes == "" {
		t.Error("the page does not say what to do")
	} else {
		fmt.Println("note:", notes)
	}
	picture(t, ctx, "node-page-no-driver")
}
