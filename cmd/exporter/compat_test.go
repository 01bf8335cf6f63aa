package main

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// The page under the names of dcgm-exporter, byte for byte, after 130 s: of the lively node, and of a MIG board. The
// page under our own names is the same with the flag as without.
func TestCompatGolden(t *testing.T) {
	list := cases{}
	for _, name := range []string{"demo/dcgm-4.8", "h100-mig/dcgm-4.8", "h100-mig/dcgm-4.9", "demo/nvidia-smi"} {
		played, release, _ := strings.Cut(name, "/")
		list.add(branchOf(played), name, func(t *testing.T) {
			s, pods := load(t, played)
			st := play(t, s, pods, "--compat="+release, "--compat.shared-gpus=copies")
			st.run(64 * time.Second)
			if !*update { // another test writes it
				st.golden(played)
			}
			st.run(66 * time.Second) // past the XID at 120 s
			var page, again bytes.Buffer
			if err := st.e.compat.WriteText(&page, false, nil); err != nil {
				t.Error(err)
			}
			sameFile(t, filepath.Join("..", "..", "testdata", "golden", "compat", played+"-"+release+".prom"),
				regexp.MustCompile(`(?m)^(\w+_duration_seconds) .*$`).ReplaceAllString(page.String(), "$1 VARIES"))

			// A view has one page, however often it is written.
			if err := st.e.compat.WriteText(&again, false, nil); err != nil || again.String() != page.String() {
				t.Errorf("a second scrape of the same view differs (%v)", err)
			}
		})
	}
	list.run(t)
}

// The real program serves the page on a path of its own, in the text format alone, and not without the flag.
func TestCompatPage(t *testing.T) {
	t.Parallel()
	second, err := standin.FreeAddress()
	must.OK(t, err)
	p := node(t, twoGPUs, twoPods).start("--compat=dcgm-4.8", "--compat.listen-address="+second)
	p.until(t, "the GPUs are read", func(s series) error { _, err := s.one("gpu_energy_joules_total", GPUA); return err })
	page, err := testkit.Client{}.Get(t.Context(), p.Base()+compat.DCGM48.Path(), "Accept",
		"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
	must.OK(t, err)
	if page.Status != http.StatusOK || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d, %s\n%s", page.Status, page.Header.Get("Content-Type"), page.Text)
	}
	families, err := testkit.Families(page.Text)
	must.OK(t, err)
	energy := families["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]
	if energy.GetType() != dto.MetricType_COUNTER || len(energy.Metric) != 2 {
		t.Errorf("the energy is %v", energy)
	}
	for name := range families {
		if !strings.HasPrefix(name, "DCGM_") {
			t.Errorf("%s is on the page", name)
		}
	}
	// The second address has the same page where dcgm-exporter has it.
	if text, err := (testkit.Client{}).Fetch(t.Context(), "http://"+second+"/metrics"); err != nil ||
		!strings.Contains(text, "DCGM_FI_DEV_GPU_TEMP") || strings.Contains(text, "\ngpu_") {
		t.Errorf("%s has %v\n%s", second, err, text)
	}

	without := node(t, twoGPUs, twoPods).start()
	without.until(t, "the GPUs are read", func(s series) error { _, err := s.one("gpu_energy_joules_total", GPUA); return err })
	if status, _, err := without.get(compat.DCGM48.Path()); status != http.StatusNotFound {
		t.Errorf("without the flag the response is %d, %v", status, err)
	}
}

func TestCompatFlag(t *testing.T) {
	for _, args := range [][]string{{"--compat=dcgm-4.7"}, {"--compat=dcgm"}, {"--compat"}} {
		if _, err := parse(args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v passes", args)
		} else if len(args[0]) > len("--compat") && !strings.Contains(err.Error(), "dcgm-4.8") {
			t.Errorf("%v: the error does not say what there is: %v", args, err)
		}
	}
	for _, args := range [][]string{{"--compat.listen-address=:9400"}, {"--compat.shared-gpus=copies"},
		{"--compat=dcgm-4.8", "--compat.shared-gpus=two"},
		{"--compat=dcgm-4.8", "--compat.listen-address=9400"}, {"--compat=dcgm-4.8", "--compat.device-label=serial"}} {
		if _, err := parse(args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "compat") &&
			!strings.Contains(err.Error(), "enum") {
			t.Errorf("%v: %v", args, err)
		}
	}
	for _, release := range append(compat.Releases(), "") {
		if _, err := parse([]string{"--compat=" + release}, io.Discard, io.Discard); err != nil {
			t.Errorf("--compat=%s: %v", release, err)
		}
	}
}
