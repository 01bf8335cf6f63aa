package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
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
			st := play(t, s, pods, "--compat="+release, "--compat.set=kubernetes-virtual-gpus=true")
			st.run(64 * time.Second)
			if !*update { // another test writes it
				st.golden(played)
			}
			st.run(66 * time.Second) // past the XID at 120 s
			var page, again bytes.Buffer
			if err := st.e.compat.WriteText(&page, false); err != nil {
				t.Error(err)
			}
			sameFile(t, filepath.Join("..", "..", "testdata", "golden", "compat", played+"-"+release+".prom"),
				regexp.MustCompile(`(?m)^(\w+_duration_seconds) .*$`).ReplaceAllString(page.String(), "$1 VARIES"))

			// A view has one page, however often it is written.
			if err := st.e.compat.WriteText(&again, false); err != nil || again.String() != page.String() {
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
	for _, args := range [][]string{{"--compat.listen-address=:9400"}, {"--compat.set=kubernetes-virtual-gpus=true"},
		{"--compat=dcgm-4.8", "--compat.shared-gpus=two"},
		{"--compat=dcgm-4.8", "--compat.listen-address=9400"}, {"--compat=dcgm-4.8", "--compat.set=label=serial"}} {
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

// Started as dcgm-exporter with bad input, the program ends with one line that names it, beside that of its start.
func TestStandInRefuses(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer busy.Close()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for args, want := range map[string]string{
		"--kubernetes --poll.fast=1s": "--poll.fast=1s is not",
		"-f /no/such.csv":             "collector file /no/such.csv: ",
		"-f " + file("fields.csv", "DCGM_FI_DEV_GPU_TEMP, gauge\n"):   "fields.csv: record 1",
		"-f " + file("type.csv", "DCGM_FI_DEV_GPU_TEMP, big, help\n"): `unknown type "big"`,
		"-m metrics": "want NAMESPACE:NAME",
		"-f " + file("good.csv", twoLines) + " -a " + busy.Addr().String(): "address already in use",
	} {
		cmd := exec.Command(machine.Binary(t), strings.Fields(args)...)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(out)), "\n"), func(l string) bool {
			return strings.Contains(l, "level=INFO") || strings.Contains(l, "level=WARN")
		})
		if !errors.As(err, &exit) || len(lines) != 1 || !strings.Contains(lines[0], want) {
			t.Errorf("%s: %v, not one line that names %q:\n%s", args, err, want, out)
		}
	}
}

const twoLines = "DCGM_FI_DEV_GPU_TEMP, gauge, help\nDCGM_FI_DEV_SM_CLOCK, gauge, help\n"
