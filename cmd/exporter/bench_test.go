package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/expose"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/fleet"
)

// What TestSimulationsAreComplete compares.
const (
	fleetFamily  = "read by a dashboard or rule, not served by the simulated fleet"
	testedFamily = "in no golden page and no test of the exporter"
	fleetSource  = "no data source of the simulated fleet"
	demoSource   = "no data source of the demo"
	benchFlag    = "set by the demo, the bench or the tests' exporter, and by nothing that is shipped"
	shippedFlag  = "set by something that is shipped, and by none of the demo, the bench and the tests' exporter"
	testedFlag   = "in no test"
)

const (
	simulatedHost = "the path of a simulated host; what is shipped has the real one (test/shipped)"
	noMIGActivity = "the fleet's GPUs are not partitioned; the demo's node, which has MIG devices, serves it beside the fleet"
	noOwnFaults   = "the fleet simulates faults of GPUs, not of the exporter; test/faults causes them"
	optional      = "opt-in, and off in the demo as by default; tests of cmd/exporter and test/shipped have it"
	outsideBench  = "a test of its own in cmd/exporter or test/"
)

// hidden is all that the simulations do not show of the exporter, each with its reason. Names are patterns of path.Match. An
// entry that is no longer needed fails the test.
var hidden = []struct{ where, what, reason string }{
	{fleetFamily, "gpu_mig_busy_seconds_total", noMIGActivity},
	{fleetFamily, "gpu_mig_observed_seconds_total", noMIGActivity},
	{fleetFamily, "gpu_mig_profiled_seconds_total", noMIGActivity},
	{fleetFamily, "gpu_mig_sm_active_seconds_total", noMIGActivity},
	{fleetFamily, "gpu_power_module_watts", "Grace Hopper and Grace Blackwell alone, of which the fleet has none; a golden page has it"},
	{fleetFamily, "gpu_fan_speed_ratio", "boards with fans, of which the fleet has none; golden pages have it"},
	{fleetFamily, "gpu_container_unresolved_devices", "the fleet's device IDs identify their GPUs; test/rules has the alert"},
	{fleetFamily, "gpu_container_mismatch", "the fleet has no container that uses a GPU of another; test/rules has the alert"},
	{fleetFamily, "gpu_exporter_call_errors_total", noOwnFaults},
	{fleetFamily, "gpu_exporter_panics_total", noOwnFaults},
	{fleetFamily, "gpu_exporter_rejected_values_total", noOwnFaults},

	{testedFamily, "gpu_protected_memory_*_bytes", "confidential computing: no recording has it; internal/nvml tests the call"},
	{testedFamily, "gpu_dram_encryption_mode*", "no recording has it; internal/nvml tests the call"},
	{testedFamily, "gpu_edpp_multiplier_ratio", "no recording has it; internal/nvml tests the call"},
	{testedFamily, "gpu_remapped_rows_inactive", "no recording has it; internal/nvml tests the call"},
	{testedFamily, "gpu_exporter_poll_duration_seconds", "the machine's own time, which golden pages leave out"},

	{fleetSource, "api", optional},
	{fleetSource, "cgroups", optional},
	{fleetSource, "checkpoint", optional},
	{fleetSource, "docker", optional},
	{fleetSource, "dra_checkpoint", optional},
	{fleetSource, "gpu_fractioning", optional},
	{fleetSource, "kmsg", optional},
	{fleetSource, "pod_logs", "the fleet has views, not processes"},
	{fleetSource, "podman", optional},
	{fleetSource, "processes", "the fleet has views, not processes"},
	{fleetSource, "resource_slices", optional},
	{fleetSource, "slurm_job_mapping", optional},
	{fleetSource, "visible", optional},

	{demoSource, "api", optional},
	{demoSource, "cgroups", "needs a driver and kernel that account memory by cgroup; TestCgroupMemory has them"},
	{demoSource, "checkpoint", optional},
	{demoSource, "docker", optional},
	{demoSource, "dra_checkpoint", optional},
	{demoSource, "gpu_fractioning", optional},
	{demoSource, "kmsg", "the machine's kernel log is not that of the simulated node"},
	{demoSource, "podman", optional},
	{demoSource, "resource_slices", optional},
	{demoSource, "slurm_job_mapping", optional},
	{demoSource, "visible", optional},

	{benchFlag, "kubelet.socket", simulatedHost},
	{benchFlag, "path.host", simulatedHost},

	{benchFlag, "metrics", "goldens have every metric; the demo has the default, TestSeries both smaller sizes"},
	{benchFlag, "call-deadline", "stepped tests have none in real time, tests of hung calls a short one"},
	{shippedFlag, "compat", outsideBench},
	{shippedFlag, "containers.socket", outsideBench},
	{shippedFlag, "kubelet", "the default; the unit and the compose file disable it, test/shipped starts them"},
	{shippedFlag, "kubelet.*", outsideBench},
	{shippedFlag, "log.format", "the chart sets the default"},
	{shippedFlag, "poll.kubelet", "the chart sets the default"},
	{shippedFlag, "slurm.*", outsideBench},
	{shippedFlag, "version", "prints and ends"},
	{shippedFlag, "web.config.file", outsideBench},

	{testedFlag, "collector.*", "TestEachGroup of internal/catalog switches each"},
	{testedFlag, "no-collector.*", "TestEachGroup of internal/catalog switches each"},
	{testedFlag, "kubelet.gpu-id-resource", "test/shipped sets it by the chart's value"},
	{testedFlag, "web.systemd-socket", "exporter-toolkit's; systemd-analyze verifies the socket unit"},
}

var (
	familyLine  = regexp.MustCompile(`(?m)^# TYPE (\S+) `)
	sourceLabel = regexp.MustCompile(`(?m)^gpu_exporter_source_up\{.*source="([^"]+)"`)
	flagLine    = regexp.MustCompile(`(?m)^ +(?:-., )?--(?:\[no-\])?([a-z][a-z.-]+)`)
)

// listed are those that a pattern finds.
func listed(pattern *regexp.Regexp, text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		out[m[1]] = true
	}
	return out
}

// texts are the files of the repository that match a pattern, with those of all directories below where it has none.
func texts(t *testing.T, patterns ...string) string {
	t.Helper()
	var out strings.Builder
	for _, pattern := range patterns {
		dir, file := filepath.Split(pattern)
		found := 0
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(p string, d os.DirEntry, err error) error {
			if ok, _ := filepath.Match(file, filepath.Base(p)); err != nil || d.IsDir() || !ok || filepath.Base(p) == "bench_test.go" {
				return err
			}
			b, err := os.ReadFile(p)
			out.Write(b)
			found++
			return err
		})
		if err != nil || found == 0 {
			t.Fatalf("%d files of %s: %v", found, pattern, err)
		}
	}
	return out.String()
}

// flagged are the flags that a text sets, as arguments or by their variables.
func flagged(flags map[string]bool, text string) map[string]bool {
	out := map[string]bool{}
	for f := range flags {
		variable := strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(f))
		if regexp.MustCompile(`--(no-)?`+regexp.QuoteMeta(f)+`([^a-z.-]|$)`).MatchString(text) ||
			regexp.MustCompile(`GPU_EXPORTER_`+variable+`([^A-Z_]|$)`).MatchString(text) {
			out[f] = true
		}
	}
	return out
}

// TestSimulationsAreComplete compares the exporter with what the simulated fleet, the demo, the bench and the tests show of
// it: a family, data source or flag that one of them lacks is in the table, with its reason.
func TestSimulationsAreComplete(t *testing.T) {
	t.Parallel()
	simulated, demo := fleetPages(t), texts(t, "testdata/golden/demo.prom")
	missing := map[string][]string{}
	need := func(where, what string, has bool) {
		if !has {
			missing[where] = append(missing[where], what)
		}
	}
	served, golden := listed(familyLine, simulated), listed(familyLine, texts(t, "testdata/golden/*.prom"))
	queries := texts(t, "dashboards/*.json", "alerts/*.rules.yaml")
	tests := texts(t, "cmd/exporter/*_test.go", "test/*.go")
	for _, f := range catalog.All() {
		word := regexp.MustCompile(`\b` + f.Name + `\b`)
		need(fleetFamily, f.Name, served[f.Name] || !word.MatchString(queries))
		need(testedFamily, f.Name, golden[f.Name] || word.MatchString(tests))
	}
	ofFleet, ofDemo := listed(sourceLabel, simulated), listed(sourceLabel, demo)
	for _, s := range allSources(t) {
		need(fleetSource, s, ofFleet[s])
		need(demoSource, s, ofDemo[s])
	}
	var help bytes.Buffer
	if _, err := parse([]string{"--help"}, &help, io.Discard); err == nil {
		t.Fatal("--help starts something")
	}
	flags := listed(flagLine, help.String())
	delete(flags, "help")
	if len(flags) < 40 {
		t.Fatalf("--help lists %d flags", len(flags))
	}
	bench := flagged(flags, texts(t, "cmd/standin/main.go", "internal/standin/machine/machine.go", "cmd/exporter/stepped_test.go",
		"test/measure/bench/*.go", "Makefile"))
	shipped := flagged(flags, texts(t, "deploy/systemd/gpu-exporter.service", "deploy/compose/compose.yaml", "deploy/kustomize/*.yaml",
		"deploy/helm/gpu-exporter/templates/*", "docs/install.md", "Makefile"))
	tested := flagged(flags, tests)
	for f := range flags {
		need(benchFlag, f, shipped[f] || !bench[f])
		need(shippedFlag, f, bench[f] || !shipped[f])
		need(testedFlag, f, tested[f])
	}
	used := make([]bool, len(hidden))
	for where, all := range missing {
		for _, what := range all {
			at := -1
			for i, h := range hidden {
				if ok, _ := path.Match(h.what, what); ok && h.where == where {
					at, used[i] = i, true
				}
			}
			if at < 0 {
				t.Errorf("%s: %s; add it there, or here with the reason", where, what)
			}
		}
	}
	for i, h := range hidden {
		if !used[i] || h.reason == "" {
			t.Errorf("%s: %s is there by now, or has no reason: remove the entry", h.where, h.what)
		}
	}
}

// fleetPages are the pages of the demo's fleet at six times of its two weeks.
func fleetPages(t *testing.T) string {
	t.Helper()
	config := fleet.Demo(1)
	f, err := fleet.New(config)
	must.OK(t, err)
	now := fleet.DefaultEpoch()
	s, err := expose.NewServer(f, func() time.Time { return now }, catalog.All())
	must.OK(t, err)
	var out strings.Builder
	for range 6 {
		for i := range f.Len() {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/nodes/"+f.Node(i).Name+"/metrics", nil))
			out.WriteString(w.Body.String())
		}
		now = now.Add(57 * time.Hour)
	}
	return out.String()
}

// allSources are the data sources of an exporter with everything enabled, and those that depend on the driver.
func allSources(t *testing.T) []string {
	t.Helper()
	c, err := parse([]string{"--node-name=node-1", "--kubelet.checkpoint=/none", "--kubelet.dra-checkpoint=/none",
		"--gpu-fractioning.map-dir=/none", "--kubernetes.pods", "--kubernetes.resource-slices", "--slurm.job-mapping-dir=/none",
		"--containers.socket=/none", "--containers.socket=/podman", "--containers.visible", "--kubernetes.api-server=https://none.invalid",
		"--web.listen-address=127.0.0.1:0"}, io.Discard, io.Discard)
	must.OK(t, err)
	e, err := newExporter(c, time.Now, func(error) {}, hooks{})
	must.OK(t, err)
	out := []string{gpu.SourceNVML, gpu.SourceEvents, gpu.SourcePodResources, gpu.SourceCheckpoint, gpu.SourceDRA, gpu.SourceFractions,
		gpu.SourceSlices, gpu.SourceAPI, gpu.SourceJobs, gpu.SourceVisible, gpu.SourceProcesses, gpu.SourceLogs, gpu.SourceCgroups}
	for _, s := range e.sources() {
		out = append(out, s.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
