// Package docs_test checks the documentation: it runs the commands that are marked, renders what the others install, parses every query,
// and compares flags with the programs' help and the scrape configurations with the chart. internal/architecture checks links, metric names
// and make targets.
package docs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-exporter/gpu-exporter/alerts"
	"github.com/gpu-exporter/gpu-exporter/dashboards"
	"github.com/gpu-exporter/gpu-exporter/internal/architecture"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/catalog/compat"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/queries"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// block is a fenced block of a page.
type block struct {
	path string
	architecture.Block
}

// root returns the root directory of the repository.
var root = servers.Root

func fileText(t *testing.T, path ...string) string {
	t.Helper()
	return must.Read(t, filepath.Join(append([]string{root(t)}, path...)...))
}

// read returns the blocks of every page, and the pages' prose by path.
func read(t *testing.T) (blocks []block, prose map[string]string) {
	t.Helper()
	pages, err := architecture.Pages(root(t))
	must.OK(t, err)
	prose = map[string]string{}
	for _, p := range pages {
		prose[p.Path] = p.Prose
		for _, b := range p.Blocks {
			blocks = append(blocks, block{p.Path, b})
		}
	}
	return blocks, prose
}

func promtool(t *testing.T) string {
	t.Helper()
	// Of the service discoveries Kubernetes' alone: the clouds' make the build long.
	path := filepath.Join(root(t), "bin", "promtool-kubernetes")
	out, err := run(t, filepath.Join(root(t), "tools", "prometheus"), "go", "build", "-tags", "remove_all_sd,enable_kubernetes_sd",
		"-o", path, "github.com/prometheus/prometheus/cmd/promtool")
	if err != nil {
		t.Fatalf("build promtool: %v\n%s", err, out)
	}
	return path
}

func run(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestComparison: our own column has the numbers of alerts and dashboards as they are.
func TestComparison(t *testing.T) {
	text := must.Read(t, filepath.Join("..", "..", "docs", "evidence", "truth.md"))
	groups, err := alerts.Default().AlertRules()
	must.OK(t, err)
	n := 0
	for _, g := range groups {
		n += len(g.Rules)
	}
	if want := fmt.Sprintf("| alerts, dashboards | %d, tested; %d |", n, len(dashboards.All())); !strings.Contains(text, want) {
		t.Errorf("docs/evidence/truth.md does not say %q", want)
	}
}

// Users have at most 14 pages, and all pages together 24,000 words that are written by hand, blocks included; two templates are
// counted in place of the pages that are rendered from them.
func TestPagesAreFewAndShort(t *testing.T) {
	total := 0
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md", "alerts/*.tmpl", "test/measure/page/*.tmpl"} {
		files, err := filepath.Glob(filepath.Join(root(t), pattern))
		if err != nil || len(files) == 0 || pattern == "docs/*.md" && len(files) > 15 { // with the list of pages
			t.Errorf("%s: %d files: %v", pattern, len(files), err)
		}
		for _, f := range files {
			text := regexp.MustCompile(`{{[^}]*}}`).ReplaceAllString(must.Read(t, f), "")
			if strings.HasSuffix(f, ".md") {
				text = architecture.Handwritten(text)
			}
			if n := len(strings.Fields(text)); !strings.Contains(f, "performance") {
				t.Logf("%5d %s", n, f[len(root(t))+1:])
				total += n
			}
		}
	}
	if t.Logf("%5d in all", total); total > 24_000 {
		t.Errorf("%d words, 24,000 at most", total)
	}
}

// Every query parses and reads metrics and labels that exist.
func TestQueries(t *testing.T) {
	blocks, _ := read(t)
	// Users run these in one cluster, where each GPU is scraped once.
	known := queries.Metrics()
	rules := map[string]bool{} // expressions of alerts, which test/rules runs
	groups, err := alerts.Default().AlertRules()
	must.OK(t, err)
	for _, g := range groups {
		for _, r := range g.Rules {
			rules[strings.TrimSpace(r.Expr)] = true
		}
	}
	for name, labels := range known {
		known[name] = slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return l == "cluster" })
	}
	known["kube_node_status_capacity"] = queries.Labels{"job", "instance", "node", "resource", "unit"}
	for _, release := range compat.Releases() {
		page, err := compat.New(compat.Options{Release: compat.Release(release)})
		must.OK(t, err)
		for _, f := range page.Families() {
			known[f.Name] = append(queries.Labels{"job", "instance"}, f.AllLabels()...)
		}
	}
	check, n := queries.Checker{Known: known, OneTarget: true}, 0
	for _, b := range blocks {
		if b.Language != "promql" || rules[strings.TrimSpace(b.Text)] {
			continue
		}
		n++
		// A block is one query, or several of one line each.
		list := []string{b.Text}
		if _, err := parser.NewParser(parser.Options{}).ParseExpr(b.Text); err != nil {
			list = strings.Split(strings.TrimSpace(b.Text), "\n")
		}
		for _, q := range list {
			if b.path == filepath.Join("docs", "metrics.md") {
				// test/prometheus runs the catalog's examples; here they only have to parse.
				if _, err := parser.NewParser(parser.Options{}).ParseExpr(q); err != nil {
					t.Errorf("%s:%d: %v in\n%s", b.path, b.Line, err, q)
				}
				continue
			}
			if _, err := check.Answer(q); err != nil && !strings.Contains(err.Error(), "newer than Prometheus 2.42") {
				t.Errorf("%s:%d: %v in\n%s", b.path, b.Line, err, q)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d queries were found", n)
	}
}

// otherPrograms are flags of other programs that the text mentions.
var otherPrograms = []string{"--metric-labels-allowlist", "--set",
	"--storage.tsdb.retention.time", "--pid", "--gpus", "--nv", "--device", "--root-dir", "--query-retired-pages",
	"--query-gpu", "--gpu-reset", "--reuse-values", "--reset-then-reuse-values", "--profile", "--collect.backend",
	"--namespace", "--group-add", "--enable-feature",
	"--change-mig", "--cause-xids", "--resume", "--gpu", "--only"} // of the hardware check

// Every flag that a page names is one of the programs', which docs/cli.md has.
func TestFlags(t *testing.T) {
	known := map[string]bool{"--completion-script-bash": true, "--completion-script-zsh": true, "--help": true, "--help-man": true,
		"--version": true}
	row := regexp.MustCompile("(?m)^\\| `(?:-., )?--(\\[no-\\])?([a-z][a-z0-9.-]*)")
	for _, m := range row.FindAllStringSubmatch(fileText(t, "docs", "cli.md"), -1) {
		known["--"+m[2]], known["--no-"+m[2]] = true, m[1] != "" || known["--no-"+m[2]]
	}
	if len(known) < 120 {
		t.Fatalf("the programs have %d flags: their page was not understood", len(known))
	}
	blocks, prose := read(t)
	span := regexp.MustCompile("`([^`\n]+)`")
	n := 0
	check := func(where, text string) {
		for _, m := range regexp.MustCompile(`(?:^|[ ('"])(--[a-z][a-z0-9.-]*)`).FindAllStringSubmatch(text, -1) {
			n++
			if name := strings.TrimRight(m[1], ".-"); !known[name] && !slices.Contains(otherPrograms, name) {
				t.Errorf("%s names %s, which no program has", where, name)
			}
		}
	}
	for path, text := range prose {
		if path == "CHANGELOG.md" || path == "docs/upgrading.md" {
			continue // they have removed and former flags
		}
		for _, m := range span.FindAllStringSubmatch(text, -1) {
			// A command line is its program's; a flag that stands alone is ours.
			if strings.HasPrefix(m[1], "-") || ours(m[1]) {
				check(path, m[1])
			}
		}
	}
	for _, b := range blocks {
		if b.Language != "sh" && b.Language != "text" {
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", " ")) {
			if ours(strings.TrimSpace(line)) {
				check(b.path, line)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d flags were looked at", n)
	}
}

// Every value of the chart that a page names is in the chart's list of values, or below one that takes any.
func TestChartValues(t *testing.T) {
	const readme = "deploy/helm/gpu-exporter/README.md"
	known, groups := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-zA-Z.]+)` \\|").FindAllStringSubmatch(fileText(t, readme), -1) {
		known[m[1]] = true
		group, _, _ := strings.Cut(m[1], ".")
		groups[group] = true
	}
	_, prose := read(t)
	n := 0
	for path, text := range prose {
		if path == readme {
			continue
		}
		for _, m := range regexp.MustCompile("`(?:--set )?'?([a-zA-Z]+(?:\\.[a-zA-Z0-9]+)+)(?:=[^`]*)?`").FindAllStringSubmatch(text, -1) {
			group, _, _ := strings.Cut(m[1], ".")
			// internal/gpu, resources and nvidia-smi have names that begin with gpu as well.
			if !groups[group] || group == "gpu" && !known[m[1]] || strings.HasSuffix(m[1], ".go") || strings.HasSuffix(m[1], ".yaml") ||
				strings.HasSuffix(m[1], ".tmpl") {
				continue
			}
			n++
			found := false
			for name := m[1]; name != "" && !found; name = name[:max(0, strings.LastIndex(name, "."))] {
				found = known[name] && (name == m[1] || slices.Contains([]string{"rules.alerts", "seLinuxOptions"}, name) ||
					strings.HasSuffix(name, "abels"))
			}
			if !found {
				t.Errorf("%s names the value %s, which the chart does not have", path, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d values were found", n)
	}
}

// ours reports whether a command line starts one of the two programs.
func ours(line string) bool {
	name, _, _ := strings.Cut(line, " ")
	return slices.Contains([]string{"gpu-exporter", "gpu-report"}, filepath.Base(name))
}

// Every block of commands is valid bash. Blocks marked run are executed; of the others, what installs the chart or a kustomization is
// rendered with the same arguments.
func TestCommands(t *testing.T) {
	blocks, _ := read(t)
	tools := t.TempDir()
	for name, path := range map[string]string{
		"helm":      servers.Build(t, servers.Helm),
		"kustomize": servers.Build(t, servers.Kustomize),
		"promtool":  promtool(t),
	} {
		must.OK(t, os.Symlink(path, filepath.Join(tools, name)))
	}
	ran, rendered := 0, 0
	for _, b := range blocks {
		if b.Language != "sh" && b.Language != "bash" {
			continue
		}
		check := exec.Command("bash", "-n")
		check.Stdin = strings.NewReader(b.Text)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s:%d is not valid bash: %s", b.path, b.Line, out)
		}
		script, want := b.Text, 0
		if reason, not := strings.CutPrefix(b.Mark, "not run: "); not || b.Mark == "run in a cluster" {
			t.Logf("%s:%d is not run here: %s", b.path, b.Line, reason)
			if script = renderOnly(b.Text); script == "" {
				continue
			}
			rendered++
		} else {
			if b.Language != "sh" {
				continue
			}
			ran++
			if code, ok := strings.CutPrefix(b.Mark, "run: exit "); ok {
				want, _ = strconv.Atoi(code)
			}
		}
		t.Run(b.path+":"+strconv.Itoa(b.Line), func(t *testing.T) {
			home := t.TempDir()
			cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
			cmd.Dir = root(t)
			cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
				"HELM_DATA_HOME="+home)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("exit code %d, want %d:\n%s\n%s", got, want, script, tail(string(out)))
			}
			if len(out) == 0 {
				t.Error("no output")
			}
		})
	}
	if ran < 1 || rendered < 8 {
		t.Errorf("only %d blocks were run and %d rendered", ran, rendered)
	}
}

var (
	helmInstall = regexp.MustCompile(`^helm (?:upgrade --install|upgrade|install) `)
	applyOurs   = regexp.MustCompile(`^kubectl apply -k (deploy/\S+)`)
)

// renderOnly returns what a block would install, as commands that render it without a cluster; empty if it installs nothing.
func renderOnly(text string) string {
	var out []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if helmInstall.MatchString(line) {
			line = helmInstall.ReplaceAllString(line, "helm template ")
			line = strings.ReplaceAll(line, " --create-namespace", "")
			line = strings.ReplaceAll(line, " --reset-then-reuse-values", " --set image.repository=registry.example.com/gpu-exporter")
			out = append(out, line)
		}
		if m := applyOurs.FindStringSubmatch(line); m != nil {
			out = append(out, "kustomize build "+m[1])
		}
	}
	return strings.Join(out, "\n")
}

// The Slurm scripts record and remove jobs, and exit 0 whatever they find: Slurm drains a node whose prolog or epilog fails.
func TestSlurmScripts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gpu-jobs")
	script := func(name, job, gpus string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(root(t), "deploy", "slurm", name))
		cmd.Env = []string{"GPU_JOBS_DIR=" + dir}
		if job != "" {
			cmd.Env = append(cmd.Env, "SLURM_JOB_ID="+job, "SLURM_JOB_GPUS="+gpus)
		}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s of job %q: %v\n%s", name, job, err, out)
		}
	}
	has := func(want map[string]string) {
		t.Helper()
		for gpu, jobs := range want {
			path := filepath.Join(dir, gpu)
			text, err := os.ReadFile(path)
			if err != nil || string(text) != jobs {
				t.Errorf("GPU %s: %q, want %q: %v", gpu, text, jobs, err)
			}
			if info, err := os.Stat(path); err == nil && info.Mode().Perm() != 0o644 {
				t.Errorf("GPU %s: mode %v", gpu, info.Mode())
			}
		}
	}
	script("epilog.sh", "41", "0") // started before the scripts were installed: no directory
	script("prolog.sh", "42", "0,3")
	script("epilog.sh", "41", "0,1") // no file for GPU 1, no line in GPU 0's
	script("prolog.sh", "142", "3")
	script("prolog.sh", "142", "3") // requeued
	script("prolog.sh", "7", "")    // no GPU
	script("prolog.sh", "", "")
	script("prolog.sh", "9", "0.3")
	has(map[string]string{"0": "42\n", "3": "42\n142\n", "0.3": "9\n"})
	script("epilog.sh", "42", "0,3")
	script("epilog.sh", "7", "")
	script("epilog.sh", "", "")
	script("epilog.sh", "9", "") // SLURM_JOB_GPUS is not set in every epilog
	has(map[string]string{"0": "", "3": "142\n", "0.3": ""})

	// Jobs that share a GPU begin and end at the same time: no entry is lost and none remains.
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			script("prolog.sh", strconv.Itoa(1000+i), "5")
			if i%2 == 0 {
				script("epilog.sh", strconv.Itoa(1000+i), "5")
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(filepath.Join(dir, "5"))
	if got := strings.Fields(string(text)); err != nil || len(got) != 10 {
		t.Errorf("GPU 5: %v: %v", got, err)
	}

	// Where nothing can be written, the node is not drained either.
	must.OK(t, os.RemoveAll(dir))
	must.OK(t, os.WriteFile(dir, nil, 0o644))
	for _, name := range []string{"prolog.sh", "epilog.sh"} {
		cmd := exec.Command(filepath.Join(root(t), "deploy", "slurm", name))
		cmd.Env = []string{"GPU_JOBS_DIR=" + dir, "SLURM_JOB_ID=1", "SLURM_JOB_GPUS=0"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// The codes of advice that docs/report.md explains are the report's.
func TestReportCodes(t *testing.T) {
	var code string
	for _, dir := range []string{"report", "report/document", "report/sizing"} {
		files, err := filepath.Glob(filepath.Join(root(t), dir, "*.go"))
		must.OK(t, err)
		for _, f := range files {
			code += fileText(t, dir, filepath.Base(f))
		}
	}
	_, section, _ := strings.Cut(fileText(t, "docs", "report.md"), "\n## Advice\n")
	section, _, _ = strings.Cut(section, "\n## ")
	n := 0
	for _, m := range regexp.MustCompile("`([a-z]+(?:_[a-z]+)*)`").FindAllStringSubmatch(section, -1) {
		if n++; m[1] != "no_advice" && !strings.HasPrefix(m[1], "kube_") && !strings.Contains(code, `"`+m[1]+`"`) &&
			!strings.Contains(code, `"`+m[1]+",") {
			t.Errorf("docs/report.md explains %s, which the report does not have", m[1])
		}
	}
	if n < 25 {
		t.Errorf("only %d codes were found", n)
	}
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

// conventions are the metrics of OpenTelemetry's conventions that a GPU has, with instrument and unit, and their attributes:
// open-telemetry/semantic-conventions v1.44.0 (e10a930), model/hardware/*-metrics.yaml and registry.yaml, model/k8s/registry.yaml,
// model/error/registry.yaml, model/network/registry.yaml.
var conventions = map[string]string{"hw.gpu.utilization": "gauge, 1", "hw.gpu.memory.limit": "updowncounter, By",
	"hw.gpu.memory.usage": "updowncounter, By", "hw.gpu.memory.utilization": "gauge, 1", "hw.gpu.io": "counter, By",
	"hw.errors": "counter, {error}", "hw.status": "updowncounter, 1", "hw.power": "gauge, W", "hw.energy": "counter, J",
	"hw.temperature": "gauge, Cel", "hw.temperature.limit": "gauge, Cel", "hw.fan.speed_ratio": "gauge, 1",
	"hw.id": "", "hw.name": "", "hw.vendor": "", "hw.model": "", "hw.serial_number": "", "hw.firmware_version": "",
	"hw.driver_version": "", "hw.parent": "", "hw.sensor_location": "", "error.type": "", "k8s.node.name": "", "k8s.namespace.name": "",
	"k8s.pod.name": "", "k8s.container.name": "",
	"hw.type": "gpu", "hw.gpu.task": "general encoder decoder", "network.io.direction": "transmit receive", "hw.state": "ok failed",
	"hw.limit_type": "throttled critical"}

// The names in the page about OpenTelemetry are those of the conventions; the families in its table exist, with that type and unit.
func TestOpenTelemetry(t *testing.T) {
	for _, m := range regexp.MustCompile("`((?:hw|k8s|network|error)\\.[a-z0-9_.]+)(?:=([a-z_]+))?`").FindAllStringSubmatch(
		fileText(t, "deploy", "scrape", "README.md"), -1) {
		values, ok := conventions[m[1]]
		if !ok || m[2] != "" && m[1] != "error.type" && !slices.Contains(strings.Fields(values), m[2]) {
			t.Errorf("%s is no name or value of the conventions", m[0])
		}
	}
	families := map[string]catalog.Family{}
	for _, f := range catalog.All() {
		families[f.Name] = f
	}
	units := map[string][]string{"By": {"_bytes", "_bytes_total"}, "J": {"_joules_total"}, "W": {"_watts"}, "Cel": {"_celsius"},
		"1": {"_ratio", "_up", "_bytes"}, "{error}": {"_total"}}
	row := regexp.MustCompile("(?m)^\\| `(hw\\.[a-z._]+)`.*? \\| ([a-z]+), ([^ ]+) \\| `([a-z_]+)` \\|")
	rows := row.FindAllStringSubmatch(fileText(t, "deploy", "scrape", "README.md"), -1)
	for _, m := range rows {
		if got := m[2] + ", " + m[3]; got != conventions[m[1]] {
			t.Errorf("%s is a %s there, in the conventions a %s", m[1], got, conventions[m[1]])
		}
		f, ok := families[m[4]]
		if !ok {
			t.Errorf("%s stands for %s, which is in no catalog", m[4], m[1])
			continue
		}
		if (m[2] == "counter") != (f.Type == catalog.Counter) {
			t.Errorf("%s is a %s there, and %s is a %s here", m[1], m[2], f.Name, f.Type)
		}
		if !slices.ContainsFunc(units[m[3]], func(end string) bool { return strings.HasSuffix(f.Name, end) }) {
			t.Errorf("%s is in %s there, which %s is not", m[1], m[3], f.Name)
		}
	}
	if len(rows) < 15 {
		t.Errorf("only %d rows were understood", len(rows))
	}
}
