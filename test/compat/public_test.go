package compat_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// judged is a verdict of gpu-migrate check.
type judged struct {
	Query, Verdict, Rewritten string
	Reasons, Settings         []string
}

var (
	// In place of Grafana's variables: everything.
	matcher  = regexp.MustCompile(`(=~?)"[^"]*\$[^"]*"`)
	ofJob    = regexp.MustCompile(`job=~?"[^"]*\$[^"]*"`)
	interval = regexp.MustCompile(`\[\$[^\]:]*`)
	bare     = regexp.MustCompile(`\$\{?\w+(:\w+)?\}?`)
	theirs   = regexp.MustCompile(`\b(DCGM_|nvidia_smi_)\w+`)
	// Queries that are empty on a healthy node, or that need another exporter.
	conditional = regexp.MustCompile(`[<>]|==|!= |amd_|kube_|node_|topk|\[[0-9]+[hd]`)
)

// notInDemo are families that no GPU of the demo has, or whose event does not happen in it.
var notInDemo = regexp.MustCompile(
	`FAN_SPEED|fan_speed|RETIRED|retired_pages|_NVLINK_|ENC_UTIL|FP64|memory_reserved|mig_|throttle_reasons|` +
		`encoder|ofa|jpeg|xid_|XID|volatile|aggregate|inforom|c2c|VGPU_LICENSE`)

// public asks what public dashboards, rules and adapters ask, and compares the verdicts of gpu-migrate with the answers. It takes the
// queries of one release: in testdata/public.csv are project, revision and path of each.
func (d database) public(t *testing.T, root, release, node string) (asked int) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "public.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, l := range lines[1:] {
		queries = append(queries, l[3])
	}
	program := filepath.Join(t.TempDir(), "gpu-migrate")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join(root, "cmd", "migrate")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	check := exec.Command(program, "check", "--output=json", "--rewrite", "-")
	check.Stdin = strings.NewReader(strings.Join(queries, "\n"))
	out, err := check.Output()
	if check.ProcessState.ExitCode() != 20 { // some are not supported
		t.Fatalf("gpu-migrate: %v\n%s", err, out)
	}
	var verdicts []judged
	if err := json.Unmarshal(out, &verdicts); err != nil || len(verdicts) != len(queries) {
		t.Fatalf("%d verdicts on %d queries: %v", len(verdicts), len(queries), err)
	}
	_, port, err := net.SplitHostPort(node)
	if err != nil {
		t.Fatal(err)
	}
	present := map[string]bool{}
	counts := map[string]int{}
	for _, v := range verdicts {
		if !slices.Contains(v.Settings, "--compat="+release) && (len(v.Settings) > 0 || !strings.HasPrefix(release, v.Query[:5])) {
			continue
		}
		asked++
		counts[v.Verdict]++
		var absent []string
		for _, name := range theirs.FindAllString(v.Query, -1) {
			if _, known := present[name]; !known {
				n, err := d.series(fmt.Sprintf(`count(last_over_time(%s[1m]))`, name))
				if err != nil {
					t.Fatal(err)
				}
				present[name] = n > 0
			}
			if !present[name] && !notInDemo.MatchString(name) && !slices.Contains(absent, name) {
				absent = append(absent, name)
			}
		}
		or := slices.ContainsFunc(v.Reasons, func(r string) bool { return strings.Contains(r, "other side of or") })
		switch is := v.Verdict != "not supported"; {
		case is && len(absent) > 0 && !or:
			t.Errorf("%s is said to be %s, and there is no %v", v.Query, v.Verdict, absent)
		case !is && len(absent) == 0:
			t.Errorf("%s is said to be not supported, and is: %v", v.Query, v.Reasons)
		case !is:
			continue
		}
		ask := func(q string) int {
			q = ofJob.ReplaceAllString(q, `job="gpu"`) // one job, or joins would find each GPU twice
			q = strings.ReplaceAll(interval.ReplaceAllString(matcher.ReplaceAllString(q, `=~".*"`), "[1m"), "9400", port)
			n, err := d.series(bare.ReplaceAllString(q, "1"))
			if err != nil {
				t.Errorf("%s: %v", q, err)
			}
			return n
		}
		n := ask(v.Query)
		if n == 0 && !conditional.MatchString(v.Query) && !notInDemo.MatchString(v.Query) {
			t.Errorf("%s has no answer", v.Query)
		}
		if v.Rewritten != "" && ask(v.Rewritten) == 0 && n > 0 {
			t.Errorf("%s has an answer, and rewritten not: %s", v.Query, v.Rewritten)
		}
	}
	t.Logf("%d public queries: %v", asked, counts)
	return asked
}

// Queries are found in every kind of file, also within ConfigMaps.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "gpu-migrate"), filepath.Join(dir, "all.yaml")
	build := exec.Command("go", "build", "-C", "../../cmd/migrate", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := `
kind: ConfigMap
data:
  board.json: |
    {"templating": {"list": [{"query": "label_values(DCGM_FI_DEV_GPU_TEMP, gpu)"}]},
     "panels": [{"targets": [{"expr": "DCGM_FI_DEV_SM_CLOCK"}]}]}
  rules.yaml: |
    groups: [{rules: [{alert: Hot, expr: DCGM_FI_DEV_MEMORY_TEMP > 90}]}]
---
kind: PrometheusRule
spec: {groups: [{rules: [{record: power, expr: sum(DCGM_FI_DEV_POWER_USAGE)}]}]}
---
kind: HorizontalPodAutoscaler
spec: {metrics: [{pods: {metric: {name: DCGM_FI_DEV_FB_USED}}}]}
---
kind: ScaledObject
spec: {triggers: [{metadata: {query: 'avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_pod=~"x.+"})'}}]}
---
rules: [{seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{pod!=""}', metricsQuery: 'avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'}]
---
groups: [{rules: [{alert: Link, expr: DCGM_EXP_P2P_STATUS == 0}, {alert: Own, expr: up == 0}]}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	check := exec.Command(program, "check", file)
	out, _ := check.Output()
	for _, want := range []string{"9 queries: 4 supported, 4 supported with a difference, 1 not supported",
		"DCGM_EXP_P2P_STATUS: links are exported",
		"compat.honorLabels=false", "Link: not supported"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if code := check.ProcessState.ExitCode(); code != 20 || t.Failed() {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
