package hwcheck

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/gpu-exporter/gpu-exporter/test/process"
	"github.com/gpu-exporter/gpu-exporter/test/programs"
)

// build builds the exporter and the simulated node once.
var build = sync.OnceValues(func() (root string, err error) {
	if root, err = filepath.Abs(filepath.Join("..", "..", "..")); err != nil {
		return "", err
	}
	for _, p := range []programs.Program{programs.Exporter, programs.Standin} {
		if err := programs.Build(context.Background(), root, p); err != nil {
			return "", err
		}
	}
	return root, nil
})

// script writes an executable shell script.
func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// playSmi writes a program that answers as nvidia-smi: what it is asked for, from the GPU given.
func playSmi(t *testing.T, path string, c device) {
	t.Helper()
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&lines, "%s\t%s\n", name, c[name])
	}
	if err := os.WriteFile(path+".answers", []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	script(t, path, `for a in "$@"; do
  case "$a" in
    --help-query-gpu) exec /usr/bin/awk -F'\t' '{print "\"" $1 "\"\nWhat it is.\n"}' "$0.answers";;
    --query-gpu=*) asked="${a#--query-gpu=}";;
  esac
done
exec /usr/bin/awk -F'\t' -v asked="$asked" '
  {answer[$1] = $2}
  END {
    n = split(asked, names, ",")
    for (i = 1; i <= n; i++) {
      if (!(names[i] in answer)) { print "Field \"" names[i] "\" is not a valid field to query."; exit 2 }
      header = header (i > 1 ? ", " : "") names[i]
      values = values (i > 1 ? ", " : "") answer[names[i]]
    }
    print header; print values
  }' "$0.answers"
`)
}

// node is a machine with one GPU: an exporter on the fake driver, and an nvidia-smi that answers c.
type node struct {
	dir, root string
	flags     []string
}

func newNode(t *testing.T, scenario string, c device) node {
	t.Helper()
	root, err := build()
	if err != nil {
		t.Fatal(err)
	}
	n := node{dir: t.TempDir(), root: root}
	boards := filepath.Join(root, "testdata", "scenarios", "boards")
	if err := os.CopyFS(filepath.Join(n.dir, "boards"), os.DirFS(boards)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.dir, "node.scenario")
	if err := os.WriteFile(file, []byte(scenario), 0o644); err != nil {
		t.Fatal(err)
	}
	exporter := filepath.Join(n.dir, "gpu-exporter")
	script(
		t,
		exporter,
		fmt.Sprintf("PATH=%q\nexport PATH\nexec %q --quiet --scenario=%q -- %q \"$@\"\n", os.Getenv("PATH"),
			filepath.Join(root, "bin", "standin"), file, filepath.Join(root, "bin", "gpu-exporter")),
	)
	playSmi(t, filepath.Join(n.dir, "nvidia-smi"), c)
	n.flags = []string{"--exporter=" + exporter, "--nvidia-smi=" + filepath.Join(n.dir, "nvidia-smi"),
		"--out=" + n.report(), "--period=5s", "--record=false"}
	return n
}

func (n node) report() string { return filepath.Join(n.dir, "report.md") }

// run runs the whole program.
func (n node) run(t *testing.T, flags ...string) (code int, said, report string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var out bytes.Buffer
	code = Run(ctx, append(n.flags, flags...), &out, &out)
	text, err := os.ReadFile(n.report())
	if err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	return code, out.String(), string(text)
}

// h100 is a GPU that works 30 % of the time and is otherwise as testdata/h100.csv says: what would move with
// the work is held, but for what is measured.
const h100 = `scenario 1
title "An H100 at work"
symbols R580
system DriverVersion = "580.105.08"
system NVMLVersion = "13.580.105.08"
system CudaDriverVersion = 13000
include boards/h100-sxm.scenario
gpu 0 board=h100 pci=0000:18:00.0 minor=0 uuid=GPU-5a0e1100-8c1d-4e6b-9d10-000000000000 serial=1650000000100
  Temperature[gpu] = 29
  MarginTemperature = 58
  Field[82] = 37
  Field[185,gpu] = 69850
  Field[186,gpu] = 69620
  Field[83] = 69850*t
  ClockInfo[graphics] = 345
  ClockInfo[sm] = 345
  ClockInfo[mem] = 2619
  ClockInfo[video] = 765
process gpu=0 pid=4000 memory=1MiB busy=30% period=100ms dram=20%
`

// TestWholeRun lets the program check a GPU that is as nvidia-smi says, with a load: a compiler that makes a
// script stands for nvcc. All is good but one thing: the GPU of the scenario is at work from the start, so
// that nobody can tell what the load added.
func TestWholeRun(t *testing.T) {
	c := recordedGPU(t, "h100.csv")
	c["count"], c["utilization.gpu"], c["utilization.memory"] = "1", "30", "6"
	n := newNode(t, h100, c)
	script(t, filepath.Join(n.dir, "nvcc"), `while [ $# -gt 1 ]; do
  [ "$1" = -o ] && out="$2"
  shift
done
cat > "$out" <<'END'
#!/bin/sh
while :; do
  echo "$(date +%s.%N) 0.030"
  sleep 0.1
done
END
chmod +x "$out"
`)
	t.Setenv("PATH", n.dir+":"+os.Getenv("PATH"))
	code, said, report := n.run(t, "--load=nvcc")
	if code != exitFindings || !strings.HasSuffix(said, "result: 0 findings, 1 incomplete\n") {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"# NVIDIA H100 80GB HBM3, driver 580.105.08", "| load | a CUDA kernel built with nvcc |",
		"| energy against integrated power, idle | passed |", "| energy against integrated power, loaded | passed |",
		"| SM activity (GPM) against utilization, loaded | passed |", "| utilization against nvidia-smi, idle | passed |",
		"| time observed, loaded | passed |", "| fields of GPU 0 | passed |", "| fields under load of GPU 0 | passed |",
		"| stop | passed |",
		"| load | INCOMPLETE | another process kept the GPU busy 0.", "| memory.total | 81559 | 81559 | agrees |  |",
		"| nvmlDeviceGetFieldValues | "} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}

// TestManualLoad: the load is what the person says; here the GPU works 30 % of the time, and once that is
// what is said, once it is not.
func TestManualLoad(t *testing.T) {
	for _, row := range []struct {
		duty string
		code int
		want []string
	}{
		{"0.3", exitPassed, []string{"| busy seconds against a known load, loaded | passed |", "Result: passed.", "| idle | skipped |"}},
		{"0.4", exitFindings, []string{"| busy seconds against a known load, loaded | FINDING |", "Result: 1 findings, 0 incomplete."}},
	} {
		t.Run(row.duty, func(t *testing.T) {
			t.Parallel()
			c := recordedGPU(t, "h100.csv")
			c["count"], c["utilization.gpu"], c["utilization.memory"] = "1", "30", "6"
			code, said, report := newNode(t, h100, c).run(t, "--load=manual", "--duty="+row.duty)
			if code != row.code {
				t.Errorf("exit code %d:\n%s", code, said)
			}
			for _, want := range row.want {
				if !strings.Contains(report, want) {
					t.Errorf("the report lacks %q:\n%s", want, said)
				}
			}
		})
	}
}

// TestNoLoadAndOtherAnswers: a consumer GPU, nothing to make a load with, and an nvidia-smi that disagrees
// twice. What was not checked is said by name.
func TestNoLoadAndOtherAnswers(t *testing.T) {
	scenario := `scenario 1
symbols R535
system DriverVersion = "535.86.05"
system NVMLVersion = "12.535.86.05"
system CudaDriverVersion = 12020
include boards/rtx-4090.scenario
gpu 0 board=rtx4090 pci=0000:84:00.0 minor=0 uuid=GPU-40900000-9d3b-4c6e-8a50-000000000380
`
	c := recordedGPU(t, "rtx-4090.csv")
	c["power.limit"], c["ecc.mode.current"] = "400.00", "[N/A]"
	n := newNode(t, scenario, c)
	t.Setenv("PATH", n.dir) // no compiler, no Python, no encoder
	code, said, report := n.run(t)
	if code != exitFindings {
		t.Errorf("exit code %d:\n%s", code, said)
	}
	for _, want := range []string{
		"| power.limit | 400.00 | 450 | DIFFERS | power limit |", "| ecc.mode.current | [N/A] | 0 | ONLY EXPORTED |  |",
		"| load | INCOMPLETE | no load could be started (nvcc: nvcc is not installed torch: exec: \"python3\": executable file not found " +
			"in $PATH: ffmpeg: exec: ",
		"--load=manual", "Result: 1 findings, 1 incomplete.", "| energy against integrated power, idle | passed |",
		"| SM activity (GPM) against utilization, idle | skipped |", "| clocks.max.memory | 10501 | 10501 | agrees |  |",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if !strings.Contains(report,
		`DIFFERS: 1, ONLY EXPORTED: 1; ecc.mode.current ONLY EXPORTED (nvidia-smi "[N/A]", exporter "0"); `+
			`power.limit DIFFERS (nvidia-smi "400.00", exporter "450") |`) {
		t.Error("these are not the two findings of the fields, or not named in the summary")
	}
	if t.Failed() {
		t.Log(said, report)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	smi := func(name, text string) string {
		script(t, filepath.Join(dir, name), text)
		return "--nvidia-smi=" + filepath.Join(dir, name)
	}
	good := smi("good",
		"echo 'uuid, index, name, driver_version, compute_cap, mig.mode.current'\necho 'GPU-1, 0, A, 1, 8.9, [N/A]'\n")
	for name, row := range map[string]struct {
		flags []string
		want  string
	}{
		"no nvidia-smi": {[]string{"--nvidia-smi=" + filepath.Join(dir, "absent")}, "nvidia-smi not found"},
		"none on PATH":  {[]string{"--nvidia-smi=nvidia-smi-that-nobody-has"}, "nvidia-smi not found"},
		"no GPU":        {[]string{smi("none", "echo No devices were found\nexit 6\n")}, "no GPU to check: "},
		"no driver": {[]string{smi("driver", "echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA "+
			"driver.\"\nexit 9\n")}, "couldn't communicate"},
		"no exporter":  {[]string{good, "--exporter=" + filepath.Join(dir, "absent")}, "`make build`"},
		"no such GPU":  {[]string{good, "--exporter=/bin/true", "--gpu=7"}, "no GPU 7 (--gpu)"},
		"no such load": {[]string{"--load=heavy"}, "--load must be one of"},
		"no such duty": {[]string{"--duty=30"}, "--duty must be"},
		"no period":    {[]string{"--period=1s"}, "--period must be at least 3s, got 1s"},
		"an argument":  {[]string{"now"}, "unexpected now"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := Run(t.Context(), row.flags, &stdout, &stderr); code != exitRefused {
				t.Errorf("exit code %d", code)
			}
			if said := stderr.String(); !strings.Contains(said, row.want) || strings.Count(said, "\n") != 1 ||
				stdout.Len() > 0 {
				t.Errorf("%q, %q", said, stdout.String())
			}
		})
	}
}

// TestExporterThatEnds: an exporter that does not start is a finding, with what it said last.
func TestExporterThatEnds(t *testing.T) {
	dir := t.TempDir()
	c := recordedGPU(t, "h100.csv")
	playSmi(t, filepath.Join(dir, "nvidia-smi"), c)
	script(t, filepath.Join(dir, "gpu-exporter"), "echo gpu-exporter: it cannot be >&2\nexit 1\n")
	var out bytes.Buffer
	report := filepath.Join(dir, "report.md")
	code := Run(
		t.Context(),
		[]string{
			"--nvidia-smi=" + filepath.Join(dir, "nvidia-smi"),
			"--exporter=" + filepath.Join(dir, "gpu-exporter"),
			"--out=" + report,
		},
		&out,
		&out,
	)
	if code != exitFindings || !strings.Contains(out.String(), "it cannot be") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

// TestRecord: a journal is saved beside the report; an older one is replaced once the new one is complete.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	exporter, path := filepath.Join(dir, "gpu-exporter"), filepath.Join(dir, "hardware", "gpu.journal")
	const save = "[ \"$1\" = record ] || exit 2\ncase \"$2\" in --output=*) [ -e \"${2#--output=}\" ] && exit 3; echo %s > " +
		"\"${2#--output=}\";; esac\n"
	for _, row := range []struct{ script, outcome, detail, content string }{
		{fmt.Sprintf(save, "one"), passed, "gpu.journal", "one\n"},
		{fmt.Sprintf(save, "two"), passed, "gpu.journal", "two\n"},
		{"echo 'the driver is gone' >&2; exit 1\n", incomplete, "the driver is gone", "two\n"},
	} {
		script(t, exporter, row.script)
		if got := record(t.Context(), exporter, path); got.Outcome != row.outcome ||
			!strings.Contains(got.Detail, row.detail) {
			t.Errorf("%+v, want %s, %s", got, row.outcome, row.detail)
		}
		if text, err := os.ReadFile(path); string(text) != row.content {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// TestLoad: the load's log is clipped to the period; a load that exits or prints nothing is an error.
func TestLoad(t *testing.T) {
	l := &load{child: &process.Child{}, bursts: []burst{{9.5, 1}, {11, 0.3}, {12, 0.3}, {13.9, 0.3}}}
	if got := l.busy(10, 14); got < 0.2999 || got > 0.3001 { // 0.5 + 0.3 + 0.3 + 0.1 of 4
		t.Errorf("%v", got)
	}
	dir := t.TempDir()
	script(t, filepath.Join(dir, "nvcc"), "echo 'load.cu(3): error: no such GPU' >&2\nexit 1\n")
	script(t, filepath.Join(dir, "python3"), "echo 'ModuleNotFoundError: No module named torch' >&2\nexit 1\n")
	script(t, filepath.Join(dir, "ffmpeg"), "echo 'No capable devices found' >&2\nexit 1\n")
	t.Setenv("PATH", dir)
	_, err := startLoad(t.Context(), loadAuto, device{"uuid": "GPU-1", "compute_cap": "9.0"}, 0.3, time.Minute, dir)
	for _, want := range []string{"nvcc: ", "no such GPU", "torch: ", "No module named torch", "ffmpeg: ffmpeg exited",
		"No capable devices found"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no %q", err, want)
		}
	}
	script(t, filepath.Join(dir, "ffmpeg"), "exec /bin/sleep 60\n")
	l, err = startLoad(t.Context(), loadFfmpeg, device{"uuid": "GPU-1"}, 0.3, time.Minute, dir)
	if err != nil {
		t.Fatal(err)
	}
	if l.known || l.exited() != nil {
		t.Errorf("%+v", l)
	}
	if l.stop(); l.exited() == nil {
		t.Error("the load does not stop")
	}
}

// TestClaims plants a deviation beyond each claim's tolerance.
func TestClaims(t *testing.T) {
	encoder := 0.5
	reads := 3.0 // of each poll
	counters := func(at, busy, observed, joules, sm float64) *scrape {
		const u = `{uuid="GPU-1"} %g`
		s := parseText(
			t,
			fmt.Sprintf("gpu_last_read_timestamp_seconds{uuid=\"GPU-1\",poll=\"fast\"} %g\ngpu_busy_seconds_total"+u+
				"\ngpu_observed_seconds_total"+u+"\ngpu_energy_joules_total"+u+"\ngpu_sm_active_seconds_total"+u+
				"\ngpu_profiled_seconds_total"+u+
				"\ngpu_engine_utilization_ratio{uuid=\"GPU-1\",engine=\"encoder\"} %g\ngpu_device_up{uuid=\"GPU-1\"} 1\n",
				at, busy, observed, joules, sm, at, encoder),
		)
		s.calls["nvmlDeviceGetSamples"] = &histogram.FloatHistogram{Count: reads * at / fastPoll.Seconds()}
		return s
	}
	watch := func(p *period) *period {
		p.uuid, p.before = "GPU-1", counters(0, 0, 0, 0, 0)
		for i := range 5 {
			p.smi = append(
				p.smi,
				observation{
					float64(2 * i),
					map[string]float64{"power.draw": 100, "utilization.gpu": 30, "utilization.encoder": 50},
				},
			)
		}
		return p
	}
	known := &load{program: program{known: true, full: true}, duty: 0.3}
	planted := map[string]bool{}
	for _, row := range []struct {
		name  string
		load  *load
		after *scrape
		want  string // names of the claims that fail
	}{
		{"all hold", known, counters(10, 3, 10, 1000, 3), ""},
		{"less observed", known, counters(10, 2.4, 8, 1000, 3), "time observed"},
		{"more busy than the load", known, counters(10, 3.4, 10, 1000, 3.4), "busy seconds against a known load"},
		{"idle and busier than nvidia-smi", nil, counters(10, 4.1, 10, 1000, 3), "utilization against nvidia-smi"},
		{"more energy", nil, counters(10, 3, 10, 1051, 3), "energy against integrated power"},
		{"SM activity too low under a full load", known, counters(10, 3, 10, 1000, 2.4), "SM activity (GPM) against utilization"},
		{"SM activity low at idle", nil, counters(10, 3, 10, 1000, 2.4), ""},
		{"SM activity above busy", nil, counters(10, 3, 10, 1000, 3.6), "SM activity (GPM) against utilization"},
		{"more reads than rings", nil, func() *scrape {
			reads = 6
			defer func() { reads = 3 }()
			return counters(10, 3, 10, 1000, 3)
		}(), "reads of the sample rings"},
		{"encoder", &load{}, counters(10, 3, 10, 1000, 3), ""},
		{"encoder less used", &load{}, func() *scrape { encoder = 0.2; return counters(10, 3, 10, 1000, 3) }(), "encoder utilization"},
	} {
		p := watch(&period{load: row.load, after: row.after})
		var failed []string
		for _, c := range claims() {
			if (c.applies == nil || c.applies(p)) && c.check(p).Outcome != passed {
				failed = append(failed, c.name)
			}
		}
		if got := strings.Join(failed, ", "); got != row.want {
			t.Errorf("%s: fails %q, want %q", row.name, got, row.want)
		}
		planted[row.want] = true
	}
	for _, c := range claims() {
		if !planted[c.name] {
			t.Errorf("nothing was planted against the claim %q", c.name)
		}
	}
}
