// Package browser_test loads the node page in Chromium.
package browser_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/test/chromium"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// serve runs the exporter on a node until the test ends, and returns the URL of its page.
func serve(t *testing.T, node *machine.Node, flags ...string) string {
	t.Helper()
	node.Name = "gpu-node-1"
	page := node.Start(t, machine.Options{Flags: append(flags, "--log.level=error")}).Base() + "/"
	servers.Until(t, "the first poll", func() error {
		text, err := servers.Fetch(page)
		if err == nil && strings.Contains(text, "first poll has not finished") {
			err = errors.New("it has not finished")
		}
		return err
	})
	return page
}

func demo(t *testing.T) *machine.Node { return machine.Shipped(t, "demo", "demo") }

func read(t *testing.T, path ...string) string {
	t.Helper()
	text := must.Read(t, filepath.Join(append([]string{"..", "..", "testdata"}, path...)...))
	return text
}

func TestNodePage(t *testing.T) {
	t.Parallel()
	url := serve(t, demo(t))
	history := 15 * time.Second
	if chromium.Update() {
		history = 3 * time.Minute // enough for a plot in a picture
	}
	time.Sleep(history)
	tab := chromium.New(t)
	for _, view := range []struct {
		name          string
		width, height int64
		dark          bool
	}{
		{"node-page", 1280, 900, false},
		{"node-page-dark", 1280, 900, true},
		{"node-page-phone", 390, 844, false},
		{"node-page-phone-dark", 390, 844, true},
	} {
		tab.Open(url, view.width, view.height, view.dark)
		text := chromium.Evaluate[string](tab, `document.querySelector('main').innerText`)
		for _, want := range []string{"ml-training/llama-pretrain-0", "notebooks/jupyter-chidi", "unallocated"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not show %q:\n%s", view.name, want, text)
			}
		}
		if n := chromium.Evaluate[int](tab, `document.querySelectorAll('section[aria-labelledby=gpus] tbody tr').length`); n != 12 {
			t.Errorf("%s shows %d rows for eight GPUs and four instances", view.name, n)
		}
		// A page that scrolls sideways cannot be read on a phone.
		if over := chromium.Evaluate[float64](tab, `document.documentElement.scrollWidth - window.innerWidth`); over > 0 {
			t.Errorf("%s is %v pixels wider than its window", view.name, over)
		}
		if low := chromium.Evaluate[[]string](tab, contrastScript); len(low) > 0 {
			t.Errorf("%s has text of too little contrast: %s", view.name, strings.Join(low, "; "))
		}
		tab.Picture(view.name, true)
	}
}

// contrastScript lists texts whose contrast to the page is below 4.5 to 1, the limit of WCAG 2.1 AA for ordinary text.
const contrastScript = `(() => {
  const parse = c => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const linear = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 };
  const lum = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
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

func TestPageIsAccessible(t *testing.T) {
	t.Parallel()
	tab := chromium.New(t)
	tab.Open(serve(t, demo(t)), 1280, 900, false)
	for what, script := range map[string]string{
		"the language is set": `document.documentElement.lang === 'en'`,
		"there is one main and one " +
			"h1": `document.querySelectorAll('main').length === 1 && document.querySelectorAll('h1').length === 1`,
		"every column has a " +
			"heading": `[...document.querySelectorAll('table')].every(t => t.querySelectorAll('th[scope=col]').length > 0)`,
		"every section is " +
			"named": `[...document.querySelectorAll('section')].every(s => document.getElementById(s.getAttribute('aria-labelledby')))`,
		"every picture has a label":        `[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label'))`,
		"links can be reached by keyboard": `[...document.querySelectorAll('a')].every(a => a.tabIndex >= 0 && a.href)`,
		"nothing is loaded from elsewhere": `performance.getEntriesByType('resource').every(r => r.name.startsWith(location.origin))`,
		"there is no script":               `document.scripts.length === 0`,
		// The layout for phones takes the tables apart; for a screen reader their roles keep them tables.
		"every cell has its roles": `[...document.querySelectorAll('td')].every(d => d.getAttribute('role') === 'cell' &&
			d.parentElement.getAttribute('role') === 'row' && d.closest('table').getAttribute('role') === 'table')`,
	} {
		if !chromium.Evaluate[bool](tab, script) {
			t.Errorf("false: %s", what)
		}
	}
}

func TestPageRefreshesItself(t *testing.T) {
	t.Parallel()
	tab := chromium.New(t)
	tab.Open(serve(t, demo(t)), 1280, 900, false)
	const read = `document.querySelector('.sub').innerText`
	first := chromium.Evaluate[string](tab, read)
	servers.Until(t, "another page", func() error {
		if text := chromium.Evaluate[string](tab, read); text == first {
			return fmt.Errorf("it still shows %q", text)
		}
		return nil
	})
}

func TestHostileNamesStayText(t *testing.T) {
	t.Parallel()
	const (
		gpu      = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
		model    = `<script>document.title='owned'</script><img src=x onerror=alert(1)>`
		pod      = `<b>bold<b>"'&quot;<img`
		scenario = "scenario 1\ntitle \"hostile\"\ninclude boards/h100-sxm.scenario\nsymbols R580\nsystem DriverVersion = \"580\"\n" +
			"gpu 0 board=h100 uuid=" + gpu + " pci=0000:18:00.0 minor=0\n  Name = \"" + model + "\"\n"
	)
	url := serve(t, machine.Parse(t, scenario, "pod evil/"+pod+" container "+pod+" nvidia.com/gpu="+gpu+"\n"))
	tab := chromium.New(t)
	open(t, tab, url, pod)
	if title := chromium.Evaluate[string](tab, `document.title`); strings.Contains(title, "owned") {
		t.Error("a name became a script")
	}
	text := chromium.Evaluate[string](tab, `document.querySelector('main').innerText`)
	if !strings.Contains(text, model) || !strings.Contains(text, pod) {
		t.Errorf("the names are not shown as they are:\n%s", text)
	}
	if n := chromium.Evaluate[int](tab, `document.querySelectorAll('main img, main script, td b b, td div.use b').length`); n > 0 {
		t.Errorf("names became %d elements", n)
	}
}

func TestPageWithFaults(t *testing.T) {
	t.Parallel()
	const faults = "\nat 2s gpu 1 xid 48\nat 2s gpu 1 lose\nat 2s gpu 3 hang FieldValues\nat 2s gpu 0 xid 13\n"
	url := serve(t, machine.Parse(t, read(t, "scenarios", "demo.scenario")+faults, read(t, "kubelet", "demo.pods")))
	tab := chromium.New(t)
	open(t, tab, url, "2 failed", "hung", "lost", "XID 48", "XID 13")
	tab.Picture("node-page-faults", true)
}

func TestPageWithoutADriver(t *testing.T) {
	t.Parallel()
	n := demo(t)
	n.Library = "/not-installed/libnvidia-ml.so.1"
	tab := chromium.New(t)
	open(t, tab, serve(t, n), "No driver", "/not-installed/libnvidia-ml.so.1")
	if chromium.Evaluate[int](tab, `document.querySelectorAll('.note').length`) == 0 {
		t.Error("the page does not advise what to do")
	}
	tab.Picture("node-page-no-driver", true)
}

// open opens the page again and again until it shows all texts.
func open(t *testing.T, tab *chromium.Tab, url string, texts ...string) {
	t.Helper()
	servers.Until(t, "the page", func() error {
		tab.Open(url, 1280, 900, false)
		page := chromium.Evaluate[string](tab, `document.body.innerText`)
		for _, want := range texts {
			if !strings.Contains(page, want) {
				return fmt.Errorf("it does not show %q:\n%s", want, page)
			}
		}
		return nil
	})
}
