package compat_test

import (
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// judged is a verdict of gpu-migrate check.
type judged struct {
	Query, Verdict, Rewritten string
	Reasons, Settings         []string
	Differences               []string
}

var (
	// In place of Grafana's variables: everything.
	matcher  = regexp.MustCompile(`(=~?)"[^"]*\$[^"]*"`)
	ofJob    = regexp.MustCompile(`job=~?"[^"]*\$[^"]*"`)
	ofPod    = regexp.MustCompile(`\b((?:exported_)?(?:pod|namespace|container))=~?"[^"$]+"`)
	interval = regexp.MustCompile(`\[\$[^\]:]*`)
	bare     = regexp.MustCompile(`\$\{?\w+(:\w+)?\}?`)
	theirs   = regexp.MustCompile(`\b(DCGM_|nvidia_smi_)\w+`)
	// Queries that are empty on a healthy node, or that need another exporter or its labels.
	conditional = regexp.MustCompile(`[<>]|==|!= |amd_|kube_|node_|det_gpu|hpc_job|kubernetes_node|topk|\[[0-9]+[hd]`)
)

// notInDemo are families that no GPU of the demo has, or whose event does not happen in it.
var notInDemo = regexp.MustCompile(
	`FAN_SPEED|fan_speed|RETIRED|retired_pages|_NVLINK_|ENC_UTIL|FP64|memory_reserved|mig_|throttle_reasons|` +
		`encoder|ofa|jpeg|xid_|XID|volatile|aggregate|inforom|c2c|VGPU_LICENSE`)

type exception struct {
	name   string
	empty  bool
	reason string
}

// unsupported are the queries that are not supported, with the reason; those that are empty with the other exporter too count
// as answered.
var unsupported = []exception{
	{"nvidia_smi_compute_app", true, "per process; nvidia_gpu_exporter has them with --collect.compute-apps only"},
	{"DCGM_FI_DEV_POWER_LIMIT", true, "DCGM has no such field; its name is DCGM_FI_DEV_POWER_MGMT_LIMIT"},
	{"DCGM_FI_DEV_GPU_UTIL_AVG", true, "a name that prometheus-adapter creates: supported where its file is checked too"},
	{"with ( filters", true, "MetricsQL, not PromQL"},
	{"label_move(", true, "MetricsQL, not PromQL"},
	{"(rate(DCGM_FI_DEV_XID_ERRORS{exported_pod=~\"$worker\"}))", true, "MetricsQL, not PromQL: rate without a range"},
	{"dcgm_scrape_seconds", true, "a constant of the dashboard"},
	{"DCGM_FI_DEV_LOW_UTIL_VIOLATION", false, "idle is not a limit of the clocks: gpu_time_seconds_total has it"},
}

// publicQueries are the lines of public.csv: project, revision, path and query.
func publicQueries(t *testing.T) [][]string {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "public.csv"))
	must.OK(t, err)
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	must.OK(t, err)
	return lines[1:]
}

// public asks what public dashboards, rules and adapters ask, and compares the verdicts of gpu-migrate with the answers. It takes the
// queries of one release: in testdata/public.csv are project, revision and path of each.
func (d database) public(t *testing.T, root, release, node string) (asked int) {
	t.Helper()
	var queries []string
	for _, l := range publicQueries(t) {
		queries = append(queries, l[3])
	}
	program := servers.Build(t, servers.Migrate)
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
	must.OK(t, err)
	open := 0
	for _, v := range verdicts {
		if v.Verdict != "not supported" {
			continue
		}
		i := slices.IndexFunc(unsupported, func(u exception) bool { return strings.Contains(v.Query, u.name) })
		if i < 0 {
			t.Errorf("%s is not supported, and not listed: %v", v.Query, v.Reasons)
		} else if !unsupported[i].empty {
			open++
		}
	}
	if len(verdicts) < 660 || open*100 > len(verdicts) {
		t.Errorf("%d of %d public queries have no answer", open, len(verdicts))
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
				must.OK(t, err)
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
			q = ofPod.ReplaceAllString(q, `$1=~".+"`)  // the pods of the demo have other names
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

var foreignFiles = flag.String("files", "", "directory with the files of testdata/public.csv, by project and path: see ./fetch")

// Whole foreign files have the queries, and so the verdicts, that TestConsumers compares with a real Prometheus.
func TestForeignFiles(t *testing.T) {
	if *foreignFiles == "" {
		t.Skip("the files are not part of the repository; ./fetch reads them")
	}
	listed := map[string]bool{}
	for _, l := range publicQueries(t) {
		listed[l[0]+"/"+l[2]+" "+l[3]] = true
	}
	comment := regexp.MustCompile(`(?m)^\s*#.*$`)
	program, files := servers.Build(t, servers.Migrate), 0
	err := filepath.WalkDir(*foreignFiles, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, *foreignFiles+"/")
		out, _ := exec.Command(program, "check", "--output=json", path).Output() // fails if queries are not supported
		var verdicts []judged
		if !json.Valid(out) {
			t.Logf("%-110s a template, not YAML", name)
			return nil
		}
		if err := json.Unmarshal(out, &verdicts); err != nil {
			return err
		}
		files++
		counts := map[string]int{}
		for _, v := range verdicts {
			counts[v.Verdict]++
			if q := strings.Join(strings.Fields(comment.ReplaceAllString(v.Query, "")), " "); !listed[name+" "+q] {
				t.Errorf("%s: %s is not in public.csv", name, q)
			}
		}
		t.Logf("%-110s %v", name, counts)
		return nil
	})
	if err != nil || files < 20 {
		t.Errorf("%d files were checked: %v", files, err)
	}
}

// Queries are found in every kind of file, also within ConfigMaps.
func TestFiles(t *testing.T) {
	program, file := servers.Build(t, servers.Migrate), filepath.Join(t.TempDir(), "all.yaml")
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
---
kind: List
items:
- kind: PrometheusRule
  metadata: {name: gpu, namespace: monitoring}
  spec: {groups: [{rules: [{alert: Gone, expr: 'absent(up{job=~".*dcgm.*"})'}]}]}
`
	must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	check := exec.Command(program, "check", file)
	out, _ := check.Output()
	for _, want := range []string{"10 queries: 4 supported, 5 supported with a difference, 1 not supported",
		"DCGM_EXP_P2P_STATUS: links are exported",
		"compat.honorLabels=false", "Link: not supported", ": PrometheusRule monitoring/gpu: Gone: supported with a difference",
		"use up{job=\"gpu-exporter\"}"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if code := check.ProcessState.ExitCode(); code != 20 || t.Failed() {
		t.Errorf("exit code %d\n%s", code, out)
	}
	// One line that names the file once, and no count of queries.
	missing := exec.Command(program, "check", file+".missing")
	if out, _ := missing.CombinedOutput(); missing.ProcessState.ExitCode() != 1 ||
		string(out) != "gpu-migrate: open "+file+".missing: no such file or directory\n" {
		t.Errorf("a missing file: %s", out)
	}
}
