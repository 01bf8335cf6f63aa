package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"

	"github.com/gpu-exporter/gpu-exporter/internal/cmdline"
	"github.com/gpu-exporter/gpu-exporter/report"
	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/prices"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/render"
)

// settings are the parsed flags. Every flag has an environment variable: --prometheus.url is GPU_REPORT_PROMETHEUS_URL.
type settings struct {
	server  prom.Config
	options report.Options
	by      []string
	formats []string
	levels  []string // of CSV; none is all
	query   bool     // in CSV
	out     string
	top     int
	quiet   bool
	failOn  []limit
	goal    float64
	before  *document.Document
	history string               // directory
	past    []*document.Document // of it
	webhook string               // URL; a credential
	log     *slog.Logger
}

// parse reads the flags. Its error is one line for the person who typed them.
func parse(args []string, stdout, stderr io.Writer) (*settings, error) {
	c := settings{options: report.Defaults()}
	app := cmdline.New(&about, stdout, stderr)
	complete := []func() error{c.serverFlags(app.Application), c.periodFlags(app.Application),
		c.accountFlags(app.Application), c.outputFlags(app.Application),
		c.logFlags(app.Application, stderr)}
	if err := app.Parse(args); err != nil {
		return nil, err
	}
	for _, f := range complete {
		if err := f(); err != nil {
			return nil, app.Named(err)
		}
	}
	return &c, app.Named(c.options.Validate())
}

// about is what the help has beside the flags.
var about = cmdline.About{Name: "gpu-report",
	Purpose: "capacity report of a GPU fleet: how GPU-hours were used, and how to use more of them",
	Text: "Accounts for the GPU-hours of a fleet and recommends how to recover the unused ones, from the history of gpu-exporter in " +
		"Prometheus, Thanos, Mimir or VictoriaMetrics.", Variables: true,
	Titles: [][2]string{{"", "General"}, {"prometheus", "Server"}, {"from to time-zone compare history goal now", "Period"},
		{"match cluster-label node-pool-label metrics removed-after", "Data"}, {"prices", "Cost"}, {"advice", "Advice"},
		{"group-by format level query out top fail-on webhook quiet", "Output"}, {"log", "Log"}},
	ExitCodes: [][2]string{{"0", "a report was written, and is complete"},
		{"1", "the server could not be read, a file not be written, or the webhook not be reached"},
		{"2", "invalid flag or file: nothing was queried"}, {"3", "the server has nothing to report on"},
		{"4", "a partial report was written; its beginning lists what is missing"}, {"5", "a limit of --fail-on is exceeded"}},
	Renamed: map[string]string{"gone-after": "removed-after"}}

// Each of the functions below adds flags and returns what completes the settings once they are parsed.

func (c *settings) serverFlags(app *kingpin.Application) func() error {
	flag, tls := app.Flag, &c.server.HTTP.TLSConfig
	var auth config.Authorization
	var basic config.BasicAuth
	flag("prometheus.url", "Base URL of the server's API, such as http://prometheus:9090 or https://mimir/prometheus.").
		Required().StringVar(&c.server.URL)
	flag("prometheus.user", "User name for basic authentication; empty disables it.").StringVar(&basic.Username)
	flag("prometheus.password-file", "File with the password for basic authentication.").StringVar(&basic.PasswordFile)
	flag("prometheus.token-file", "File with a bearer token; empty sends none.").StringVar(&auth.CredentialsFile)
	headers := flag("prometheus.header", "Header of every request, as NAME:VALUE (repeatable), such as X-Scope-OrgID:team.").Strings()
	flag("prometheus.ca-file", "CA certificate of the server; empty uses the system's.").StringVar(&tls.CAFile)
	flag("prometheus.cert-file", "Client certificate.").StringVar(&tls.CertFile)
	flag("prometheus.key-file", "Key of the client certificate.").StringVar(&tls.KeyFile)
	flag("prometheus.server-name", "Name in the server's certificate, if it is not that of the URL.").StringVar(&tls.ServerName)
	flag("prometheus.insecure", "Skip verification of the server's certificate.").BoolVar(&tls.InsecureSkipVerify)
	flag("prometheus.timeout", "Timeout of one request.").Default("2m").DurationVar(&c.server.Timeout)
	flag("prometheus.concurrency", "Maximum number of concurrent requests.").Default("4").IntVar(&c.server.Concurrency)
	flag("prometheus.retries", "Retries after a transient error.").Default("4").IntVar(&c.server.Retries)
	chunk := days(app, "prometheus.chunk", "Maximum time range of one request; halved if the server refuses it as too "+
		"large.", "2d", &c.server.Chunk)
	return func() error {
		c.server.RetryDelay = time.Second
		c.server.Headers = http.Header{}
		for _, h := range *headers {
			name, value, ok := strings.Cut(h, ":")
			if !ok || strings.TrimSpace(name) == "" {
				return fmt.Errorf("--prometheus.header must be NAME:VALUE, got %s", h)
			}
			c.server.Headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
		if basic.Username != "" {
			c.server.HTTP.BasicAuth = &basic
		}
		if auth.CredentialsFile != "" {
			auth.Type = "Bearer"
			c.server.HTTP.Authorization = &auth
		}
		if c.server.Concurrency < 1 {
			return fmt.Errorf("--prometheus.concurrency must be at least 1, got %d", c.server.Concurrency)
		}
		if c.server.Retries < 0 {
			return fmt.Errorf("--prometheus.retries must be at least 0, got %d", c.server.Retries)
		}
		c.options.Parallel = min(2, c.server.Concurrency)
		return chunk()
	}
}

func (c *settings) periodFlags(app *kingpin.Application) func() error {
	flag := app.Flag
	from := flag("from", "Start of the period: an age such as 30d or now-7d, a time such as 2026-01-31 or '2026-01-31 "+
		"10:00', or the name of a month or week, such as 2026-01, january, last-month, 2026-W05 or last-week, which is "+
		"then the whole period.").Default("30d").String()
	to := flag("to", "End of the period, like --from; empty is now, or the end of the month or week in --from.").String()
	zone := flag("time-zone", "Time zone of times, months and hours of the day, such as Europe/Berlin.").Default("UTC").String()
	compare := flag("compare", "Earlier report (--format=json) to compare with; empty compares with none.").String()
	flag("history", "Directory of earlier reports (--format=json), to which this one is added: the trend, and what became of each advice; "+
		"empty keeps none.").StringVar(&c.history)
	flag("goal", "Share of the GPU-hours that should be busy, such as 0.7: a line in the trend; 0 is none.").Default("0").
		Float64Var(&c.goal)
	now := flag("now", "Time to use as now, for reproducible reports; empty is the current time.").String()
	return func() (err error) {
		if !(c.goal >= 0 && c.goal <= 1) {
			return fmt.Errorf("--goal must be from 0 to 1, got %g", c.goal)
		}
		if c.options.Zone, err = time.LoadLocation(*zone); err != nil {
			return fmt.Errorf("--time-zone must be the name of a time zone such as Europe/Berlin, got %s", *zone)
		}
		c.options.Now = time.Now()
		times := timeForms{c.options.Now, c.options.Zone}
		if *now != "" {
			if c.options.Now, _, err = times.parse("now", *now); err != nil {
				return err
			}
			times.now = c.options.Now
		}
		end := c.options.Now
		if *to != "" {
			if end, _, err = times.parse("to", *to); err != nil {
				return err
			}
			times.now = end
		}
		var until time.Time
		if c.options.From, until, err = times.parse("from", *from); err != nil {
			return err
		}
		if length := until.Sub(c.options.From); length > 8*24*time.Hour { // not a week
			c.options.Month = length
		}
		if *to == "" && !until.IsZero() && until.Before(end) {
			end = until
		}
		c.options.To = end
		files, _ := filepath.Glob(filepath.Join(c.history, "gpu-report-*.json")) // the pattern is right
		if c.history == "" {
			files = nil
		}
		for _, file := range files {
			d, err := readReport(file)
			if err != nil {
				return fmt.Errorf("--history: %s: %w", file, err)
			}
			if d.Period.To.Before(c.options.To.Truncate(c.options.Step)) { // a later run replaces it
				c.past = append(c.past, d)
			}
		}
		if *compare != "" {
			if c.before, err = readReport(*compare); err != nil {
				return fmt.Errorf("--compare=%s: %w", *compare, err)
			}
		}
		return nil
	}
}

// readReport reads an earlier report.
func readReport(file string) (*document.Document, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return document.Parse(text)
}

func (c *settings) accountFlags(app *kingpin.Application) func() error {
	flag := app.Flag
	flag("match", `Matchers added to every selector, such as cluster="prod".`).StringVar(&c.options.Match)
	flag("cluster-label", "Label with the name of the cluster.").Default("cluster").StringVar(&c.options.ClusterLabel)
	flag("node-pool-label", "Node label with the name of the pool; empty tries those of the clouds, then the nodes' names.").
		StringVar(&c.options.PoolLabel)
	metrics := flag("metrics", "Metrics to read: gpu-exporter or dcgm.").Default("gpu-exporter").Enum("gpu-exporter", "dcgm")
	priceList := flag("prices", "Price list in YAML: currency, gpus (model, node_pool, cluster, node_labels, from, to, per_hour), "+
		"energy_per_kwh; empty prints no cost.").String()
	flag("prices.share", "Share the cost of GPU-time that belongs to no namespace, such as unallocated, among namespaces and groups in "+
		"proportion to their own.").BoolVar(&c.options.ShareCost)
	flag("advice.min-coverage", "Minimum fraction of a workload's time with known activity.").Default("0.95").
		Float64Var(&c.options.Advice.Coverage)
	flag("advice.min-saving", "Minimum number of GPUs, as a mean over the period, that advice must save.").Default("0.02").
		Float64Var(&c.options.Advice.Saving)
	flag("advice.budget", "Fraction of the time in which the demand may exceed what is recommended.").Default("0.001").
		Float64Var(&c.options.Advice.Budget)
	complete := []func() error{
		days(app, "removed-after", "Time without samples at the end of the period after which a node counts as removed.", "24h",
			&c.options.RemovedAfter),
		days(app, "advice.min-observation", "Minimum time of allocation before the size of a workload is judged.", "7d",
			&c.options.Advice.Observed),
		days(app, "advice.min-idle", "Minimum idle time of a GPU before its release is recommended.", "24h", &c.options.Advice.Idle),
	}
	return func() (err error) {
		for _, f := range complete {
			if err := f(); err != nil {
				return err
			}
		}
		c.options.DCGM = *metrics == "dcgm"
		if *priceList != "" {
			c.options.Prices, err = prices.Read(*priceList)
		}
		return err
	}
}

// days adds a flag for a duration that may be in days.
func days(app *kingpin.Application, name, help, value string, into *time.Duration) func() error {
	text := app.Flag(name, help).Default(value).String()
	return func() error {
		v, err := model.ParseDuration(*text)
		if err != nil || v <= 0 {
			return fmt.Errorf("--%s must be a duration such as 12h or 7d, got %s", name, *text)
		}
		*into = time.Duration(v)
		return nil
	}
}

func (c *settings) outputFlags(app *kingpin.Application) func() error {
	flag := app.Flag
	group := flag("group-by", "Levels to show, separated by commas: "+strings.Join(render.Levels(), ", ")+
		"; label:NAME adds up workloads by a label of their pods or namespaces, such as label:team.").
		Default("model,node_pool,namespace,workload").String()
	format := flag("format", "Formats to write, separated by commas: "+strings.Join(render.Formats(), ", ")+".").Default("table").String()
	level := flag("level", "Levels of CSV, separated by commas, each of which is a file: "+strings.Join(render.AllCSVLevels(""), ", ")+
		", or the label of --group-by=label:NAME; empty is all of them.").String()
	flag("query", "Add the PromQL of each row to CSV.").BoolVar(&c.query)
	flag("out", "File (one format, of CSV one level) or directory to write to; empty is standard output.").Short('o').StringVar(&c.out)
	flag("top", "Maximum rows of each list in table and Markdown; 0 is all.").Default("20").IntVar(&c.top)
	fail := flag("fail-on", "Exit with 5 if a figure exceeds a value, as NAME>VALUE (repeatable): "+
		strings.Join(limitNames(), ", ")+". Hours are fractions of all hours, 0 to 1; below_goal is what is missing of --goal.").Strings()
	hook := flag("webhook.url-file", "File with the URL to which the short form is posted, as JSON with text, as for Slack; empty "+
		"posts none.").String()
	flag("quiet", "Show no progress.").Short('q').BoolVar(&c.quiet)
	return func() (err error) {
		if *hook != "" {
			if c.webhook, err = readWebhook(*hook); err != nil {
				return fmt.Errorf("--webhook.url-file: %w", err)
			}
		}
		var levels []string
		for l := range strings.SplitSeq(*group, ",") {
			if label, ok := strings.CutPrefix(strings.TrimSpace(l), "label:"); ok {
				if label == "" || c.options.GroupLabel != "" && c.options.GroupLabel != label {
					return fmt.Errorf("--group-by must have one label as label:NAME, got %s", *group)
				}
				c.options.GroupLabel, l = label, "group"
			}
			levels = append(levels, l)
		}
		if c.by, err = choose("group-by", strings.Join(levels, ","), render.Levels()); err != nil {
			return err
		}
		if c.formats, err = choose("format", *format, render.Formats()); err != nil {
			return err
		}
		if err := c.csvFlags(*level); err != nil {
			return err
		}
		if c.out == "" && len(c.formats) > 1 {
			return errors.New("several formats need a directory: set --out")
		}
		for _, text := range *fail {
			l, err := parseLimit(text)
			if err != nil {
				return err
			}
			if l.name == "below_goal" && c.goal == 0 {
				return errors.New("--fail-on=below_goal needs --goal")
			}
			c.failOn = append(c.failOn, l)
		}
		if c.out != "" {
			if err := c.writable(c.out, c.directory()); err != nil {
				return fmt.Errorf("--out=%s: %w", c.out, err)
			}
		}
		if c.history != "" {
			if err := c.writable(c.history, true); err != nil {
				return fmt.Errorf("--history=%s: %w", c.history, err)
			}
		}
		return nil
	}
}

// directory reports whether --out is a directory.
func (c *settings) directory() bool { return len(c.formats) > 1 || filepath.Ext(c.out) == "" }

// csvFlags checks what only CSV has.
func (c *settings) csvFlags(levels string) (err error) {
	isCSV := slices.Contains(c.formats, "csv")
	if !isCSV && (levels != "" || c.query) {
		return errors.New("--level and --query need --format=csv")
	}
	all := render.AllCSVLevels(c.options.GroupLabel)
	if levels != "" {
		if c.levels, err = choose("level", levels, all); err != nil {
			return err
		}
	}
	for level, needs := range map[string]struct {
		flag  string
		given bool
	}{"projection": {"prices", c.options.Prices != nil}, "change": {"compare", c.before != nil}, "past": {"history", c.history != ""},
		"outcome": {"history", c.history != ""}} {
		if slices.Contains(c.levels, level) && !needs.given {
			return fmt.Errorf("--level=%s needs --%s", level, needs.flag)
		}
	}
	if isCSV && len(c.levels) != 1 && (c.out == "" || !c.directory()) {
		return fmt.Errorf("--format=csv writes one level to a file: choose it with --level=%s; or set --out to a directory",
			strings.Join(all, ", "))
	}
	return nil
}

func (c *settings) logFlags(app *kingpin.Application, out io.Writer) func() error {
	log := promslog.Config{Level: promslog.NewLevel(), Format: promslog.NewFormat(), Writer: out}
	app.Flag("log.level", "Minimum log level: debug, info, warn, error.").Default("warn").SetValue(log.Level)
	app.Flag("log.format", "Log format: logfmt or json.").Default("logfmt").SetValue(log.Format)
	return func() error {
		c.log = promslog.New(&log)
		return nil
	}
}

// writable reports, before hours of queries, why a file or directory cannot be written.
func (c *settings) writable(path string, directory bool) error {
	in := path
	if !directory {
		in = filepath.Dir(path)
	}
	for info, err := os.Stat(in); ; info, err = os.Stat(in) {
		switch parent := filepath.Dir(in); {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s is no directory", in)
		case err == nil:
			f, err := os.CreateTemp(in, ".gpu-report-*")
			if err != nil {
				return err
			}
			return errors.Join(f.Close(), os.Remove(f.Name()))
		case !directory || !errors.Is(err, fs.ErrNotExist) || parent == in:
			return err
		default:
			in = parent // it will be made
		}
	}
}

func choose(flag, text string, from []string) ([]string, error) {
	var out []string
	for s := range strings.SplitSeq(text, ",") {
		s = strings.TrimSpace(s)
		if s != "" && !slices.Contains(from, s) {
			hint := ""
			switch flag {
			case "group-by":
				hint = "; label:" + s + " is a label of pods or namespaces"
			case "level":
				hint = "; that of a label needs --group-by=label:" + s
			}
			return nil, fmt.Errorf("--%s must be one of %s, got %q%s", flag, strings.Join(from, ", "), s, hint)
		}
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--%s must be one of %s, got nothing", flag, strings.Join(from, ", "))
	}
	return out, nil
}

// limit is one condition of --fail-on.
type limit struct {
	name  string
	value float64
}

// limitFigures are the figures of --fail-on.
func limitFigures() map[string]func(*document.Document) float64 {
	fraction := func(of func(*document.Account) float64) func(*document.Document) float64 {
		return func(d *document.Document) float64 {
			if d.Fleet.Hours == 0 {
				return 0
			}
			return of(&d.Fleet) / d.Fleet.Hours
		}
	}
	state := func(s document.State) func(*document.Document) float64 {
		return fraction(func(a *document.Account) float64 { return a.States.Of(s) })
	}
	return map[string]func(*document.Document) float64{
		"unused":       fraction(func(a *document.Account) float64 { return a.States.Unused() }),
		"idle":         state(document.Idle),
		"reclaimable":  fraction(func(a *document.Account) float64 { return a.Reclaimable }),
		"unallocated":  state(document.Unallocated),
		"unavailable":  state(document.Unavailable),
		"not_reported": state(document.NotReported),
		"advice":       func(d *document.Document) float64 { return float64(len(d.Advice)) },
		"below_goal":   func(d *document.Document) float64 { return d.Goal.Busy - d.Goal.Reached },
		"release_gpus": func(d *document.Document) float64 {
			n := 0.0
			for _, a := range d.Advice {
				if a.Code == "release" {
					n += a.SavedGPUs
				}
			}
			return n
		},
	}
}

func limitNames() []string { return slices.Sorted(maps.Keys(limitFigures())) }

func parseLimit(text string) (limit, error) {
	name, value, ok := strings.Cut(text, ">")
	name = strings.TrimSpace(name)
	if name == "waste" {
		return limit{}, fmt.Errorf("--fail-on=%s: waste was renamed: use unused", text)
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	// No figure ever exceeds NaN: such a limit would never fail.
	if !ok || err != nil || math.IsNaN(v) || math.IsInf(v, 0) || limitFigures()[name] == nil {
		return limit{}, fmt.Errorf("--fail-on must be NAME>VALUE with one of %s, got %q", strings.Join(limitNames(), ", "), text)
	}
	if name != "advice" && name != "release_gpus" && (v < 0 || v >= 1) {
		return limit{}, fmt.Errorf("--fail-on=%s: %s is a fraction of all hours, from 0 to 1: it is never more than %g", text, name, v)
	}
	return limit{name, v}, nil
}

func (l limit) exceeded(d *document.Document) (string, bool) {
	v := limitFigures()[l.name](d)
	return fmt.Sprintf("%s is %.4g, more than %g", l.name, v, l.value), v > l.value
}
