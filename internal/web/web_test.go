package web

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	toolkit "github.com/prometheus/exporter-toolkit/web"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/catalogtest"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// metricsOf is a registry as a page.
type metricsOf struct{ prometheus.Gatherer }

func (m metricsOf) WriteText(out io.Writer, openMetrics bool) error {
	families, err := m.Gather()
	format := expfmt.FmtText
	if openMetrics {
		format = expfmt.FmtOpenMetrics_1_0_0
	}
	e := expfmt.NewEncoder(out, format)
	for _, f := range families {
		err = errors.Join(err, e.Encode(f))
	}
	return errors.Join(err, e.(expfmt.Closer).Close())
}

func serve(t *testing.T, view *gpu.View, alive error) *httptest.Server {
	t.Helper()
	registry := prometheus.NewRegistry()
	s := NewServer(Options{Latest: func() *gpu.View { return view }, Metrics: metricsOf{registry},
		Own: registry, Alive: func() error { return alive },
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	ts := httptest.NewServer(s.Handler)
	t.Cleanup(ts.Close)
	return ts
}

func get(t *testing.T, ts *httptest.Server, path string) (*http.Response, string) {
	t.Helper()
	res, err := http.Get(ts.URL + path)
	must.OK(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must.OK(t, err)
	return res, string(body)
}

func TestPageShowsTheNode(t *testing.T) {
	ts := serve(t, catalogtest.FullView(), nil)
	res, body := get(t, ts, "/")
	if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("%s, %s", res.Status, res.Header.Get("Content-Type"))
	}
	for _, want := range []string{"node-1", "580.105.08", "NVIDIA H100 80GB HBM3", "ml/train-0", "web/serve-0",
		"1g.10gb",
		"lost: fell off the bus", "60\u00a0%", "300 W", "aliyun.com/gpu-mem", "Set hostPID: true.",
		"also visible in <code>web/serve-0 api</code>",
		// All that is exported of a GPU is on the page: fans, ECC, modes, processes.
		"gpu_fan_speed_ratio fan=0", "gpu_ecc_errors_total severity=", "gpu_persistence_mode", "gpu_compute_mode mode=default",
		"gpu_ecc_mode", "gpu_fabric_health health=healthy", "gpu_encoder_sessions", "python3", "compute graphics", "1980 MHz"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	// The lost GPU's last readings are not live.
	if strings.Contains(body, "1 W") && strings.Contains(body, ">1 W<") {
		t.Error("the page shows a reading of a lost GPU")
	}
	if csp := res.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("content security policy is %q", csp)
	}
}

func TestPageWithoutAnything(t *testing.T) {
	for name, v := range map[string]*gpu.View{"nil": nil,
		"no driver": {Node: "n", Notes: []string{"No NVIDIA driver yet: install it."}}} {
		res, body := get(t, serve(t, v, nil), "/")
		if res.StatusCode != 200 || !strings.Contains(body, "No driver") {
			t.Errorf("%s: %s\n%s", name, res.Status, body)
		}
	}
}

func TestHealth(t *testing.T) {
	full := catalogtest.FullView()
	for name, c := range map[string]struct {
		view           *gpu.View
		alive          error
		healthy, ready int
	}{
		"up":        {full, nil, 200, 200},
		"no view":   {nil, nil, 200, 503},
		"no driver": {&gpu.View{Notes: []string{"No driver."}}, nil, 200, 503},
		"loop dead": {full, errors.New("the loop stopped"), 503, 200},
	} {
		ts := serve(t, c.view, c.alive)
		if res, _ := get(t, ts, "/-/healthy"); res.StatusCode != c.healthy {
			t.Errorf("%s: healthy: %d, want %d", name, res.StatusCode, c.healthy)
		}
		if res, _ := get(t, ts, "/-/ready"); res.StatusCode != c.ready {
			t.Errorf("%s: ready: %d, want %d", name, res.StatusCode, c.ready)
		}
	}
}

// No method changes anything, and none is echoed.
func TestOtherPathsAndMethods(t *testing.T) {
	ts := serve(t, catalogtest.FullView(), nil)
	if res, _ := get(t, ts, "/nothing"); res.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown path: %s", res.Status)
	}
	for _, path := range []string{"/", "/metrics", "/-/healthy", "/-/ready"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodTrace,
			http.MethodOptions, "GIMME"} {
			req, err := http.NewRequest(method, ts.URL+path, nil)
			must.OK(t, err)
			res, err := http.DefaultClient.Do(req)
			must.OK(t, err)
			res.Body.Close()
			if res.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %s", method, path, res.Status)
			}
		}
	}
}

// The YAML parser writes one line per error; ours is a single line.
func TestConfigurationErrorIsOneLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yml")
	must.OK(t, os.WriteFile(path, []byte("basic_auth_user: {}\nother: 1\n"), 0o600))
	_, err := Listen(&toolkit.FlagConfig{WebConfigFile: &path})
	if err == nil || strings.ContainsAny(err.Error(), "\n\r") || !strings.Contains(err.Error(), "basic_auth_user") {
		t.Errorf("the error is %q", err)
	}
}

func TestGPUsWithTheSameLacksAreOneLine(t *testing.T) {
	v := catalogtest.FullView()
	lacks := []string{"fan_speed", "nvlink_errors_symbol"}
	v.GPUs[0].Activity.Unmeasured = nil
	v.NotOffered = []gpu.NotOffered{{GPU: v.GPUs[0].UUID, Readings: lacks}, {GPU: v.GPUs[1].UUID, Readings: lacks},
		{GPU: v.GPUs[2].UUID}}
	if _, body := get(t, serve(t, v, nil), "/"); !strings.Contains(body,
		`<td role="cell" data-l="GPU" class="n"><div>0, 1</div></td><td role="cell" data-l="Reason" class="state"><div>`+
			`not supported by the GPU or its driver</div></td><td role="cell" data-l="Readings"><div class="dim">`+
			`fan speed, NVLink errors symbol</div>`) || strings.Contains(body, ">2</div>") {
		t.Error("the two GPUs are not one row")
	}
}

// A container that uses a GPU without an allocation is shown with it: marked if that is a mismatch, plain if it is not
// or not yet known to be one.
func TestUsersWithoutAllocation(t *testing.T) {
	v := catalogtest.FullView()
	uuid := v.GPUs[0].UUID
	v.Containers[0].Mismatch = nil // the GPU is allocated to it
	user := func(namespace, pod, name string, mismatch ...string) gpu.ContainerGPU {
		return gpu.ContainerGPU{Container: gpu.Container{Namespace: namespace, Pod: pod, Name: name}, GPU: uuid,
			Mismatch: mismatch}
	}
	stray, ended := user("ml", "stray-0", "sh", "used_not_allocated"), user("ml", "ended-0", "sh", "used_not_allocated")
	stray.Memory, ended.Ended = gpu.Some(gpu.Bytes(3<<30)), true
	v.Containers = append(v.Containers, stray, user("ml", "other-0", "sh", "used_other_gpu"), user("", "docker/<b>web", ""), ended)
	_, body := get(t, serve(t, v, nil), "/")
	for _, want := range []string{
		`<span class="warn">used by</span> <code>ml/stray-0</code> <span class="dim">sh</span><br>` +
			`<span class="warn">3 GiB, activity not measured; no GPU is allocated to it`,
		`<code>ml/other-0</code> <span class="dim">sh</span><br>` +
			`<span class="warn">activity not measured; another GPU is allocated to it</span>`,
		`<span class="dim">used by</span> <code>docker/&lt;b&gt;web</code><br><span class="dim">activity not measured</span>`,
		`<b class="warn">1</b> used without allocation`, "Missing permission: processes. "} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, "ended-0") || strings.Count(body, "used by</span>") != 3 {
		t.Errorf("users: %s", body)
	}
	v.Containers, v.Features = nil, nil
	if _, body := get(t, serve(t, v, nil), "/"); strings.Contains(body, "used by") ||
		strings.Contains(body, "Missing permission") {
		t.Error("a mismatch or a disabled feature is shown that does not exist")
	}
}

func TestCompatPageIsLinked(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "OTHER"}, func() float64 { return 1 }))
	own := prometheus.NewRegistry()
	s := NewServer(Options{Latest: catalogtest.FullView, Metrics: metricsOf{own}, Own: own,
		Compat: &Compat{Path: "/metrics/other", Name: "another 1.0", Metrics: metricsOf{registry}},
		Alive:  func() error { return nil }, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	ts := httptest.NewServer(s.Handler)
	t.Cleanup(ts.Close)
	if _, body := get(t, ts, "/"); !strings.Contains(body, `<a href="metrics/other">metrics as another 1.0</a>`) {
		t.Error("the node page has no link")
	}
	if res, body := get(t, ts, "/metrics/other"); res.StatusCode != 200 || !strings.Contains(body, "\nOTHER 1\n") {
		t.Errorf("%s\n%s", res.Status, body)
	}
	if _, body := get(t, ts, "/metrics"); strings.Contains(body, "OTHER") {
		t.Error("the other names are on the exporter's own page")
	}
	if _, body := get(t, serve(t, catalogtest.FullView(), nil), "/"); strings.Contains(body, "metrics as") {
		t.Error("the page links to an exposition that does not exist")
	}
}
