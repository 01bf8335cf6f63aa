package browser_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// previewBoard has every kind of panel, two of them narrower than what they show.
const previewBoard = `{"uid":"gpu-test","title":"Every kind of panel","description":"Is anything drawn over anything else?","panels":[
 {"id":1,"type":"stat","title":"A number whose title is far too long for it","description":"What it means.","gridPos":{"x":0,"y":0,"w":3,"h":4},"targets":[{"refId":"A","expr":"one"}],"fieldConfig":{"defaults":{"unit":"bytes"}},"options":{"graphMode":"area"}},
 {"id":2,"type":"stat","title":"Several","gridPos":{"x":3,"y":0,"w":9,"h":4},"targets":[{"refId":"A","expr":"many","legendFormat":"{{pod}}"}],"fieldConfig":{"defaults":{"unit":"short"}},"options":{"textMode":"value_and_name"}},
 {"id":3,"type":"gauge","title":"Gauge","gridPos":{"x":12,"y":0,"w":3,"h":4},"targets":[{"refId":"A","expr":"one"}],"fieldConfig":{"defaults":{"unit":"percent"}}},
 {"id":4,"type":"stat","title":"Nothing","gridPos":{"x":15,"y":0,"w":3,"h":4},"targets":[{"refId":"A","expr":"none"}],"fieldConfig":{"defaults":{"unit":"short"}}},
 {"id":5,"type":"stat","title":"Filled","gridPos":{"x":18,"y":0,"w":6,"h":4},"targets":[{"refId":"A","expr":"one"}],"fieldConfig":{"defaults":{"unit":"watt","thresholds":{"mode":"absolute","steps":[{"color":"red","value":null}]}}},"options":{"colorMode":"background"}},
 {"id":6,"type":"timeseries","title":"Lines","gridPos":{"x":0,"y":4,"w":12,"h":8},"targets":[{"refId":"A","expr":"many","legendFormat":"{{pod}}"}],"fieldConfig":{"defaults":{"unit":"bytes","custom":{"fillOpacity":10}}},"options":{"legend":{"displayMode":"table","placement":"right","calcs":["mean","max","lastNotNull"]}}},
 {"id":7,"type":"timeseries","title":"Stack","gridPos":{"x":12,"y":4,"w":6,"h":8},"targets":[{"refId":"A","expr":"many","legendFormat":"{{pod}}"}],"fieldConfig":{"defaults":{"unit":"short","custom":{"fillOpacity":70,"stacking":{"mode":"percent"}}}}},
 {"id":8,"type":"bargauge","title":"Bars","gridPos":{"x":18,"y":4,"w":6,"h":8},"targets":[{"refId":"A","expr":"many","instant":true,"legendFormat":"{{pod}}"}],"fieldConfig":{"defaults":{"unit":"dtdurations","min":0}},"options":{"orientation":"horizontal"}},
 {"id":9,"type":"row","title":"Closed","collapsed":true,"gridPos":{"x":0,"y":12,"w":24,"h":1},"panels":[
  {"id":10,"type":"table","title":"Table","gridPos":{"x":0,"y":13,"w":12,"h":8},"targets":[{"refId":"A","expr":"many","instant":true,"format":"table"}],"fieldConfig":{"defaults":{"unit":"percentunit","max":1,"custom":{"cellOptions":{"type":"gauge"}}}}},
  {"id":11,"type":"state-timeline","title":"States","gridPos":{"x":12,"y":13,"w":6,"h":8},"targets":[{"refId":"A","expr":"many","legendFormat":"{{pod}}"}],"fieldConfig":{"defaults":{"unit":"none"}}},
  {"id":12,"type":"heatmap","title":"Heat","gridPos":{"x":18,"y":13,"w":6,"h":8},"targets":[{"refId":"A","expr":"many","legendFormat":"{{pod}}"}],"fieldConfig":{"defaults":{"unit":"short"}}}]},
 {"id":13,"type":"text","title":"Words","gridPos":{"x":0,"y":21,"w":24,"h":4},"options":{"mode":"markdown","content":"| what | do |\n|---|---|\n| a very long line that goes on and on | **read** it |"}}]}`

// answers plays a database: many series with long names, one of them hostile, over the window that is asked for.
func answers(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var from, to, step float64
		_, _ = fmt.Sscan(r.FormValue("start"), &from)
		_, _ = fmt.Sscan(r.FormValue("end"), &to)
		_, _ = fmt.Sscan(r.FormValue("step"), &step)
		if step == 0 {
			_, _ = fmt.Sscan(r.FormValue("time"), &to)
			from, step = to, 1
		}
		n := map[string]int{"one": 1, "many": 9, "none": 0}[r.FormValue("query")]
		result := []any{}
		for i := range n {
			pod := fmt.Sprintf("namespace-with-a-long-name/deployment-with-a-longer-name-%d", i)
			if i == 3 {
				pod = `<script>document.title='owned'</script><img src=x onerror="document.title='owned'">`
			}
			var values []any
			for at := from; at <= to; at += step {
				values = append(values, []any{at, fmt.Sprint((2 + math.Sin(at/3000+float64(i))) * 1e8)})
			}
			result = append(result, map[string]any{"metric": map[string]string{"pod": pod, "node": "n1"}, "values": values, "value": values[len(values)-1]})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"result": result}})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// preview draws the board into a file and returns its address.
func preview(t *testing.T) string {
	t.Helper()
	boards, out := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(boards, "gpu-test.json"), []byte(previewBoard), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "./preview", "--url", answers(t), "--boards", boards, "--from=-6h", "--out", out)
	cmd.Dir = ".."
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("preview: %v\n%s", err, text)
	}
	return "file://" + filepath.Join(out, "gpu-test.html")
}

// overScript lists panels that leave the page or lie on one another, and what is drawn beyond its panel. What
// can be scrolled or is cut off with dots is inside.
const overScript = `(() => {
  const out = [], panels = [...document.querySelectorAll('.panel')];
  const box = e => e.getBoundingClientRect();
  for (const p of panels) {
    const a = box(p), name = p.querySelector('h3').innerText;
    if (a.left < 0 || a.right > innerWidth + 0.5 || a.width < 40 || a.height < 40) out.push(name + ' is not on the page');
    for (const q of panels) {
      const b = box(q);
      if (p !== q && a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5) out.push(name + ' lies on ' + q.querySelector('h3').innerText);
    }
    const hides = e => { for (; e && e !== p; e = e.parentElement) if (getComputedStyle(e).overflowX !== 'visible') return true; return false };
    for (const e of p.querySelectorAll('.body *:not(svg *)')) {
      const b = box(e);
      if (b.width && !hides(e.parentElement) && (b.left < a.left - 1 || b.right > a.right + 1 || b.top < a.top - 1 || b.bottom > a.bottom + 1)) out.push(name + ': ' + e.tagName + '.' + e.className + ' is beyond its panel');
    }
  }
  for (const axis of document.querySelectorAll('.x-axis, .y-axis')) {
    const labels = [...axis.children].map(box);
    labels.forEach((a, i) => labels.slice(i + 1).forEach(b => {
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) out.push('labels of ' + axis.closest('.panel').querySelector('h3').innerText + ' lie on each other');
    }));
  }
  return [...new Set(out)];
})()`

func TestPreview(t *testing.T) {
	url := preview(t)
	ctx := browse(t)
	for _, dark := range []bool{false, true} {
		for _, width := range []int64{1280, 1440, 1920} {
			name := fmt.Sprintf("%d wide, dark %v", width, dark)
			open(t, ctx, url, width, 900, dark)
			if over := evaluate[float64](t, ctx, `document.documentElement.scrollWidth - window.innerWidth`); over > 0 {
				t.Errorf("%s: the page is %v pixels wider than its window", name, over)
			}
			if over := evaluate[[]string](t, ctx, overScript); len(over) > 0 {
				t.Errorf("%s: %s", name, strings.Join(over, "; "))
			}
			if low := evaluate[[]string](t, ctx, strings.ReplaceAll(previewContrast, "DARK", fmt.Sprint(dark))); len(low) > 0 {
				t.Errorf("%s: text of too little contrast: %s", name, strings.Join(low, "; "))
			}
		}
	}
	for what, script := range map[string]string{
		"a name stays a name":              `document.title !== 'owned' && !document.querySelector('main img')`,
		"there is no script":               `document.scripts.length === 0`,
		"nothing is loaded":                `performance.getEntriesByType('resource').length === 0`,
		"there is one main and one h1":     `document.querySelectorAll('main').length === 1 && document.querySelectorAll('h1').length === 1`,
		"it says that it is no Grafana":    `document.querySelector('.notice').innerText.includes('not Grafana')`,
		"every picture says what it is":    `[...document.querySelectorAll('svg')].every(s => s.hasAttribute('aria-label'))`,
		"every column has a heading":       `[...document.querySelectorAll('.table table, .legend-table table')].every(t => t.querySelectorAll('th[scope=col]').length > 0)`,
		"lines are drawn":                  `[...document.querySelectorAll('.is-timeseries path.stroke')].filter(p => p.getTotalLength() > 100).length === 18`,
		"an empty panel says so":           `document.querySelector('#panel-4').innerText.includes('No data')`,
		"a description can be read":        `document.querySelector('#panel-1').title === 'What it means.'`,
		"a closed row is shown and marked": `document.querySelector('h2').innerText.includes('closed in Grafana')`,
	} {
		if !evaluate[bool](t, ctx, script) {
			t.Errorf("not so: %s", what)
		}
	}
}

// previewContrast lists texts that are hard to read on what is behind them: below 4.5 to 1, or 3 to 1 for large
// ones. Colors are read off a canvas, which knows every notation.
const previewContrast = `(() => {
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = c => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = c; pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data] };
  const lum = ([r, g, b]) => { const f = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b) };
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c } return DARK ? [17, 18, 23] : [244, 245, 245] };
  const out = new Set();
  for (const e of document.querySelectorAll('body *:not(svg *)')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const l1 = lum(rgb(getComputedStyle(e).color)), l2 = lum(behind(e));
    const ratio = (Math.max(l1, l2) + 0.05) / (Math.min(l1, l2) + 0.05);
    if (ratio < (parseFloat(getComputedStyle(e).fontSize) >= 24 ? 3 : 4.5)) out.add(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2));
  }
  return [...out];
})()`
