package alerts

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func TestTablesKeepTheLaws(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range Alerts() {
		if seen[a.Name] {
			t.Errorf("%s stands in the table twice", a.Name)
		}
		seen[a.Name] = true
		if !regexp.MustCompile(`^GPU[A-Z][A-Za-z]+$`).MatchString(a.Name) {
			t.Errorf("%s is no name of an alert", a.Name)
		}
		if strings.Contains(a.Summary, "{{") || strings.Contains(a.Summary, "$") || !strings.HasSuffix(a.Summary, ".") {
			t.Errorf("%s: the summary is a sentence without values: %q", a.Name, a.Summary)
		}
		if a.For > 0 && a.For < 2*minute {
			t.Errorf("%s: a wait of %s is less than a few scrapes", a.Name, a.For)
		}
		for _, k := range a.Parameters {
			if !strings.Contains(a.Expr, "$"+k.Name) {
				t.Errorf("%s: the parameter %s is unused", a.Name, k.Name)
			}
			if k.Name == "value" || k.Name == "labels" || k.Help == "" {
				t.Errorf("%s: the parameter %q has a reserved name, or no help", a.Name, k.Name)
			}
			if k.Duration == 0 && (k.Number < k.Min || k.Number > k.Max) {
				t.Errorf("%s: the default of %s is out of its own bounds", a.Name, k.Name)
			}
		}
		needs := strings.Contains(a.Expr, "kube_")
		for _, r := range Records() {
			needs = needs || r.Needs != "" && strings.Contains(a.Expr, r.Name)
		}
		if needs != (a.Needs != "") {
			t.Errorf("%s: says that it needs %q", a.Name, a.Needs)
		}
		for _, v := range a.Dashboard.Vars {
			if !slices.Contains(a.Labels, v) {
				t.Errorf("%s: the link to %s takes %s from a label that the alert lacks", a.Name, a.Dashboard.UID, v)
			}
		}
	}
	for _, r := range Records() {
		if seen[r.Name] {
			t.Errorf("%s is recorded twice", r.Name)
		}
		seen[r.Name] = true
	}
}

// Every link leads to a dashboard that exists, and sets variables that it has.
func TestDashboardLinks(t *testing.T) {
	variables := map[string][]string{}
	for _, a := range Alerts() {
		if variables[a.Dashboard.UID] == nil {
			text, err := os.ReadFile(filepath.Join("..", "dashboards", a.Dashboard.UID+".json"))
			if err != nil {
				t.Fatalf("%s: %v", a.Name, err)
			}
			var dashboard struct {
				UID        string `json:"uid"`
				Templating struct {
					List []struct {
						Name string `json:"name"`
					} `json:"list"`
				} `json:"templating"`
			}
			must.OK(t, json.Unmarshal(text, &dashboard))
			if dashboard.UID != a.Dashboard.UID {
				t.Errorf("the dashboard %s calls itself %s", a.Dashboard.UID, dashboard.UID)
			}
			for _, v := range dashboard.Templating.List {
				variables[a.Dashboard.UID] = append(variables[a.Dashboard.UID], v.Name)
			}
		}
		for _, v := range append([]string{"cluster"}, a.Dashboard.Vars...) {
			if !slices.Contains(variables[a.Dashboard.UID], v) {
				t.Errorf("%s: the dashboard %s has no variable %s", a.Name, a.Dashboard.UID, v)
			}
		}
	}
}

// The runbook_url of each alert leads to a heading of docs/alerts.md, below which there is something to do. That each alert has one runbook
// is Markdown's to refuse; links are followed by internal/architecture, queries by test/rules.
func TestRunbooks(t *testing.T) {
	page, err := Markdown()
	must.OK(t, err)
	for _, a := range Alerts() {
		_, text, ok := strings.Cut(page, "\n### "+a.Name+"\n")
		if !ok {
			t.Errorf("docs/alerts.md has no heading %s", a.Name)
			continue
		}
		text, _, _ = strings.Cut(text, "\n#")
		_, runbook, _ := strings.Cut(text, "\n\n- ")
		_, runbook, _ = strings.Cut(runbook, "\n\n") // below the head
		runbook, _, _ = strings.Cut(runbook, "<a id=")
		if n := len(strings.Fields(runbook)); n < 10 || n > 150 {
			t.Errorf("the runbook of %s has %d words", a.Name, n)
		}
	}
	if !strings.HasSuffix(Default().RunbookURL, "/docs/alerts.md#{alert}") {
		t.Errorf("runbooks are headings of docs/alerts.md, not of %s", Default().RunbookURL)
	}
}

// nvidia-smi without -i resets every GPU of a node, and an index moves when a GPU falls off the bus.
func TestResetsNameTheUUID(t *testing.T) {
	files, err := Generated()
	must.OK(t, err)
	reset := regexp.MustCompile(`nvidia-smi[^;)\n]*?(?:--gpu-reset|\s-r\b)( -i \{\{ \$labels\.uuid \}\})?`)
	page, err := os.ReadFile(filepath.Join("..", "docs", "troubleshooting.md"))
	must.OK(t, err)
	// Commands stand in code; the warning about a reset without -i names no program's arguments.
	commands := strings.ReplaceAll(string(page), "`nvidia-smi --gpu-reset` without `-i` resets **every** GPU", "")
	if commands == string(page) {
		t.Error("docs/troubleshooting.md does not warn of a reset of every GPU")
	}
	files = append(files, Document{"docs/troubleshooting.md", strings.ReplaceAll(commands, "-i UUID", "-i {{ $labels.uuid }}")})
	for _, a := range Alerts() {
		if strings.Contains(a.Description, "--gpu-reset") && !strings.Contains(a.Description, "stop the node's GPU monitoring") {
			t.Errorf("%s: the description resets a GPU and does not say what to stop first", a.Name)
		}
	}
	found := 0
	for _, f := range files {
		for _, m := range reset.FindAllStringSubmatch(f.Text, -1) {
			found++
			if m[1] == "" {
				t.Errorf("%s: %q does not name the GPU by its UUID", f.Path, m[0])
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d resets were found", found)
	}
}

// A person who is called now is not called two minutes later: only the server's own interval delays critical alerts, and those
// that do not wait. The page has the intervals of the others.
func TestCriticalAlertsAreNotDelayed(t *testing.T) {
	delayed := 0
	for _, g := range AlertGroups() {
		if says := strings.Contains(slow(), "*"+g.Title+"*"); says != (g.Interval == rarely) ||
			!slices.Contains([]time.Duration{0, seldom, rarely}, g.Interval) {
			t.Errorf("%s is evaluated every %s, which the page says: %v", g.Title, g.Interval, says)
		}
		for _, a := range g.Alerts {
			waits := a.Severity != Critical && a.For > 0
			if g.Interval > 0 && !waits || waits && a.For > minutes5 && g.Interval == 0 {
				t.Errorf("%s is %s, waits %s and is evaluated every %s", a.Name, a.Severity, a.For, g.Interval)
			}
			if g.Interval > 0 {
				delayed++
			}
		}
	}
	if delayed == 0 {
		t.Error("no alert is delayed")
	}
}

// Queries take their selectors from labels that the alert has.
func TestQueriesReadLabelsOfTheAlert(t *testing.T) {
	for _, a := range Alerts() {
		if len(a.Queries()) == 0 {
			t.Errorf("%s has no query", a.Name)
		}
		for _, q := range a.Queries() {
			text := q.With(func(label string) string {
				if !slices.Contains(a.Labels, label) {
					t.Errorf("%s: %q reads the label %s, which the alert does not have", a.Name, q.Shows, label)
				}
				return "x"
			})
			if strings.Contains(text, "$") || q.Shows == "" {
				t.Errorf("%s: %q is %s", a.Name, q.Shows, text)
			}
		}
	}
	q := Query{"", `a{$gpu,x="1"} + b{$pod} + c{$workload} + d{$xid}`}
	if got := q.With(strings.ToUpper); got != `a{node="NODE",uuid="UUID",x="1"} + b{namespace="NAMESPACE",pod="POD"} + `+
		`c{namespace="NAMESPACE",workload_type="WORKLOAD_TYPE",workload="WORKLOAD"} + d{xid="XID"}` {
		t.Error(got)
	}
}

// What an installation with default settings lacks is named beside the queries that read it.
func TestQueriesNameWhatTheyNeed(t *testing.T) {
	used := map[string]bool{}
	for _, a := range Alerts() {
		for _, m := range beyondDefaults {
			for _, q := range a.Queries() {
				if strings.Contains(q.Expr, m.metric) {
					used[m.metric] = true
					if !strings.Contains(a.head(), m.needs) {
						t.Errorf("%s: the head does not say that %s needs %s", a.Name, m.metric, m.needs)
					}
				}
			}
		}
	}
	for _, m := range beyondDefaults {
		if !used[m.metric] {
			t.Errorf("no query reads %s", m.metric)
		}
	}
}

// Each rule of another project is covered by alerts that exist, or has a reason why not; none stands in the table twice.
func TestPublishedRules(t *testing.T) {
	known, rules := map[string]bool{}, 0
	for _, a := range Alerts() {
		known[a.Name] = true
	}
	for _, p := range publishers() {
		seen := map[string]bool{}
		if !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(p.revision) || len(p.files) == 0 || strings.Count(p.project, "/") != 1 {
			t.Errorf("%s: the source is incomplete", p.project)
		}
		for _, r := range p.rules {
			for _, n := range r.names {
				rules++
				if seen[n] {
					t.Errorf("%s: %s stands in the table twice", p.project, n)
				}
				seen[n] = true
			}
			for _, a := range r.alerts {
				if !known[a] {
					t.Errorf("%s: %s is to be covered by %s, which is no alert", p.project, r.names, a)
				}
			}
			if len(r.names) == 0 || len(r.alerts) == 0 && !strings.HasPrefix(r.note, "No alert: ") ||
				r.note != "" && !strings.HasSuffix(r.note, ".") {
				t.Errorf("%s: %s has neither an alert nor a reason: %q", p.project, r.names, r.note)
			}
		}
		if p.project == "utkuozdemir/nvidia_gpu_exporter" && len(seen) != 15 {
			t.Errorf("%s has 15 rules, the table %d", p.project, len(seen))
		}
	}
	if rules < 60 {
		t.Errorf("the table has %d rules", rules)
	}
}

// Every code raises exactly one alert or none, as its tier says.
func TestXIDTiersAreDisjoint(t *testing.T) {
	matches := func(pattern string, xid int) bool {
		return regexp.MustCompile("^(?:" + pattern + ")$").MatchString(strconv.Itoa(xid))
	}
	critical, application := xidPattern(gpu.XIDCritical), xidPattern(gpu.XIDApplication)
	notWarning := xidPattern(gpu.XIDCritical, gpu.XIDApplication, gpu.XIDInfo)
	for xid := range maxXID + 100 {
		got := map[gpu.XIDTier]bool{gpu.XIDCritical: matches(critical, xid), gpu.XIDApplication: matches(application, xid),
			gpu.XIDWarning: !matches(notWarning, xid)}
		for tier, in := range got {
			if in != (gpu.XIDTierOf(xid) == tier) {
				t.Errorf("XID %d is %s, and the alert of %s says %v", xid, gpu.XIDTierOf(xid), tier, in)
			}
		}
	}
	for xid := range maxXID {
		if gpu.XIDTierOf(xid) == gpu.XIDCritical && !slices.ContainsFunc(xidMeanings(), func(m xidMeaning) bool { return m.xid == xid }) {
			t.Errorf("XID %d is critical and has no meaning", xid)
		}
	}
}

func TestInhibitionsNameAlertsAndTheirLabels(t *testing.T) {
	byName := map[string]Alert{}
	for _, a := range Alerts() {
		byName[a.Name] = a
	}
	for _, i := range inhibitions() {
		for _, name := range append(slices.Clone(i.source), i.target...) {
			a, ok := byName[name]
			if !ok {
				t.Errorf("%q names %s, which is no alert", i.reason, name)
			}
			for _, l := range i.equal {
				if !slices.Contains(a.Labels, l) {
					t.Errorf("%q compares %s, which %s does not have: a missing label equals a missing one", i.reason, l, name)
				}
			}
		}
	}
}

func TestParameters(t *testing.T) {
	off := false
	for name, c := range map[string]struct {
		turn func(*Config)
		// says is in the error; without it, has is in the alerts' file and lacks is not.
		says, has, lacks string
	}{
		"unknown alert": {turn: func(c *Config) { c.Alerts = map[string]Override{"GPUIdel": {}} }, says: "alerts.GPUIdel: no such alert"},
		"unknown threshold": {turn: parameter("GPUAllocatedIdle", "buzy", "0.1"),
			says: "alerts.GPUAllocatedIdle.buzy: the alert has no such parameter"},
		"impossible": {turn: parameter("GPUAllocatedIdle", "busy", "1.5"),
			says: "alerts.GPUAllocatedIdle.busy: must be between 0 and 0.5, got 1.5"},
		"no number": {turn: parameter("GPUAllocatedIdle", "busy", "little"),
			says: `alerts.GPUAllocatedIdle.busy: "little" is not a number`},
		"not a number": {turn: parameter("GPUAllocatedIdle", "busy", "NaN"), says: `alerts.GPUAllocatedIdle.busy: "NaN" is not a number`},
		"no window": {turn: parameter("GPUAllocatedIdle", "period", "soon"),
			says: `alerts.GPUAllocatedIdle.period: "soon" is not a duration`},
		"window too short": {turn: parameter("GPUAllocatedIdle", "period", "10s"),
			says: "alerts.GPUAllocatedIdle.period: must be at least 1m, got 10s"},
		"no wait": {turn: func(c *Config) { c.Alerts = map[string]Override{"GPUUnavailable": {For: "five"}} },
			says: `alerts.GPUUnavailable.for: "five" is not a duration`},
		"a wait for ever": {turn: func(c *Config) { c.Alerts = map[string]Override{"GPUUnavailable": {For: "99999d"}} },
			says: "alerts.GPUUnavailable.for: \"99999d\" is longer than ten years"},
		"severity": {turn: func(c *Config) { c.Alerts = map[string]Override{"GPUUnavailable": {Severity: "page"}} },
			says: `alerts.GPUUnavailable.severity: "page" must be critical`},
		"label of an alert": {turn: func(c *Config) {
			c.Alerts = map[string]Override{"GPUUnavailable": {Labels: map[string]string{"severity": "x"}}}
		}, says: "alerts.GPUUnavailable.labels.severity: this label cannot be set here"},
		"label of all": {turn: func(c *Config) { c.Labels = map[string]string{"a-b": "x"} },
			says: "labels.a-b: this label cannot be set here"},
		"cluster's label": {turn: func(c *Config) { c.ClusterLabel = "k8s cluster" },
			says: `clusterLabel: "k8s cluster" is not a label name`},
		"runbooks": {turn: func(c *Config) { c.RunbookURL = "https://x" }, says: "runbookURL: "},
		"job":      {turn: func(c *Config) { c.Job = "(" }, says: `job: "(" must be a regular expression`},
		"resource": {turn: func(c *Config) { c.Resource = "" }, says: "resource: "},
		"a price below zero": {turn: func(c *Config) { c.Prices = map[string]float64{"H100": -1} },
			says: "prices.H100: must be a price of at least 0 for the name of a model, got -1"},
		"no price": {turn: func(c *Config) { c.Prices = map[string]float64{"H100": math.NaN()} },
			says: "prices.H100: must be a price of at least 0"},
		"scale":            {turn: func(c *Config) { c.Scale = 0 }, says: "scale: must be above 0 and at most 1, got 0"},
		"turned threshold": {turn: parameter("GPUAllocatedIdle", "busy", "0.07"), has: "<= 0.07 *"},
		"turned window":    {turn: parameter("GPUAllocatedIdle", "period", "1h30m"), has: "/ (0.5 * 5400)"},
		"turned off": {turn: func(c *Config) { c.Alerts = map[string]Override{"GPUUnavailable": {Enabled: &off}} },
			lacks: "GPUUnavailable\n"},
		"other wait": {turn: func(c *Config) { c.Alerts = map[string]Override{"GPUUnavailable": {For: "7m"}} }, has: "for: 7m"},
		"no wait at all": {turn: func(c *Config) { c.Alerts = map[string]Override{"GPUUnavailable": {For: "0s"}} },
			has: "== 0)\n    keep"},
		"extra labels": {turn: func(c *Config) { c.Labels = map[string]string{"team": "infra"} }, has: `team: "infra"`},
		"other job":    {turn: func(c *Config) { c.Job = "gpu" }, has: `up{job=~"gpu"}`, lacks: jobRE},
		"other resources": {turn: func(c *Config) { c.Resource = "nvidia_com_gpu" }, has: `resource=~"nvidia_com_gpu"`,
			lacks: resourceRE},
		"other cluster": {turn: func(c *Config) { c.ClusterLabel = "k8s" }, has: "by (k8s, node", lacks: "(cluster,"},
		"dashboards": {turn: func(c *Config) { c.DashboardURL = "https://grafana.example/" },
			has: `dashboard_url: "https://grafana.example/d/gpu-node?var-cluster=`},
		"runbooks elsewhere": {turn: func(c *Config) { c.RunbookURL = "https://wiki/{alert}" },
			has: `runbook_url: "https://wiki/gpuunavailable"`},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			c.turn(&config)
			files, err := Render(config)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
					t.Errorf("says %v, want one line with %q", err, c.says)
				}
				return
			}
			must.OK(t, err)
			if text := files[1].Text; !strings.Contains(text, c.has) || c.lacks != "" && strings.Contains(text, c.lacks) {
				t.Errorf("the alerts lack %q or have %q", c.has, c.lacks)
			}
		})
	}
}

func parameter(alert, name, value string) func(*Config) {
	return func(c *Config) { c.Alerts = map[string]Override{alert: {Parameters: map[string]string{name: value}}} }
}

// A scale of 1/60 leaves no duration as it was, in rules of both kinds, and no name of a record changed.
func TestScale(t *testing.T) {
	small := Default()
	small.Scale = 1.0 / 60
	for _, rules := range []func(Config) ([]RuleGroup, error){Config.RecordingRules, Config.AlertRules} {
		groups, err := rules(Default())
		must.OK(t, err)
		smaller, err := rules(small)
		must.OK(t, err)
		for i, g := range groups {
			for j, r := range g.Rules {
				s := smaller[i].Rules[j]
				if s.Record != r.Record || s.For*60 != r.For || s.Keep*60 != r.Keep {
					t.Errorf("%s%s: scaled to %s, %s, %s", r.Record, r.Alert, s.Record, s.For, s.Keep)
				}
				big, little := spanInExpr.FindAllStringSubmatch(r.Expr, -1), spanInExpr.FindAllStringSubmatch(s.Expr, -1)
				for k := range big {
					b, _ := parseDuration(big[k][2])
					l, _ := parseDuration(little[k][2])
					if b < minute || l*60 != b {
						t.Errorf("%s%s: %s became %s", r.Record, r.Alert, b, l)
					}
				}
			}
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "1h30m": 90 * minute, "1d": day, "1w": 7 * day,
		"500ms": 500 * time.Millisecond, "0s": 0} {
		got, err := parseDuration(text)
		if err != nil || got != want {
			t.Errorf("%s is read as %s, %v", text, got, err)
		}
		if back, err := parseDuration(FormatDuration(want)); err != nil || back != want {
			t.Errorf("%s is written as %s", want, FormatDuration(want))
		}
	}
	for _, text := range []string{"", "5", "m", "1m1h", "-5m", "1.5h"} {
		if d, err := parseDuration(text); err == nil {
			t.Errorf("%q is read as %s", text, d)
		}
	}
}

// Mimir refuses groups of more than twenty rules. Without a URL of Grafana there is no link that leads nowhere, and the
// default job is not that of another exporter.
func TestShippedRules(t *testing.T) {
	c := Default()
	records, err := c.RecordingRules()
	must.OK(t, err)
	rules, err := c.AlertRules()
	must.OK(t, err)
	for _, g := range append(records, rules...) {
		if len(g.Rules) > 20 {
			t.Errorf("%s has %d rules", g.Name, len(g.Rules))
		}
		for _, r := range g.Rules {
			for _, p := range r.Annotations {
				if p.Name == "dashboard_url" {
					t.Errorf("%s has the relative link %s", r.Alert, p.Value)
				}
			}
		}
	}
	job := regexp.MustCompile("^(?:" + c.Job + ")$")
	for name, own := range map[string]bool{"gpu-exporter": true, "monitoring/gpu-exporter": true, "nvidia-gpu-exporter": false,
		"monitoring/nvidia-gpu-exporter": false, "dcgm-exporter": false} {
		if job.MatchString(name) != own {
			t.Errorf("the default job %s: %s", c.Job, name)
		}
	}
}
