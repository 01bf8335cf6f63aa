package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/version"

	"github.com/gpu-exporter/gpu-exporter/report"
	"github.com/gpu-exporter/gpu-exporter/report/prom"
	"github.com/gpu-exporter/gpu-exporter/report/render"
)

// settings is what the flags say. Every flag may also be given by the environment: --prometheus.url is
// GPU_REPORT_PROMETHEUS_URL.
type settings struct {
	server  prom.Config
	options report.Options
	by      []string
	formats []string
	out     string
	top     int
	quiet   bool
	failOn  []limit
	log     *slog.Logger
}

// errHelp says that the flags asked for a text that was printed, and for nothing else.
type errHelp struct{}

func (errHelp) Error() string { return "only a text was asked for" }

// parse reads the flags. Its error is one line for the person who typed them.
func parse(args []string, stdout, stderr io.Writer) (*settings, error) {
	c := settings{options: report.Defaults()}
	var log promslog.Config
	app := kingpin.New("gpu-report", "Where the hours of a fleet's GPUs went, from the history that gpu-exporter left in Prometheus, Thanos, Mimir or VictoriaMetrics, and what would get the wasted ones back.")
	app.UsageWriter(stdout).ErrorWriter(stderr)
	app.DefaultEnvars()
	tls := &c.server.HTTP.TLSConfig
	var user, passwordFile, tokenFile string
	asked := false
	app.Terminate(func(int) { asked = true })
	app.HelpFlag.Short('h')
	app.Version(version.Print("gpu-report"))

	app.Flag("prometheus.url", "Base of the server's API, such as http://prometheus:9090 or https://mimir/prometheus.").Required().StringVar(&c.server.URL)
	app.Flag("prometheus.user", "User of basic authentication.").StringVar(&user)
	app.Flag("prometheus.password-file", "File with its password.").StringVar(&passwordFile)
	app.Flag("prometheus.token-file", "File with a bearer token.").StringVar(&tokenFile)
	headers := app.Flag("prometheus.header", "Header for every request, as NAME:VALUE (repeatable), such as X-Scope-OrgID:team.").Strings()
	app.Flag("prometheus.ca-file", "Certificate authority of the server.").StringVar(&tls.CAFile)
	app.Flag("prometheus.cert-file", "Certificate to present to the server.").StringVar(&tls.CertFile)
	app.Flag("prometheus.key-file", "Key of that certificate.").StringVar(&tls.KeyFile)
	app.Flag("prometheus.server-name", "Name that the server's certificate must have, if not that of the URL.").StringVar(&tls.ServerName)
	app.Flag("prometheus.insecure", "Accept any certificate.").BoolVar(&tls.InsecureSkipVerify)
	app.Flag("prometheus.timeout", "Longest time for one request.").Default("2m").DurationVar(&c.server.Timeout)
	app.Flag("prometheus.concurrency", "Requests that run at once.").Default("4").IntVar(&c.server.Concurrency)
	app.Flag("prometheus.retries", "How often a request that failed for a passing reason is made again.").Default("4").IntVar(&c.server.Retries)
	chunk := app.Flag("prometheus.chunk", "Longest time that one request asks for; halved when the server finds it too much.").Default("2d").String()

	from := app.Flag("from", "Begin of the window: an age such as 30d, or a moment such as 2026-01-31 or 2026-01-31T12:00:00Z.").Default("30d").String()
	to := app.Flag("to", "End of the window, like --from; empty: now.").String()
	now := app.Flag("now", "The moment that counts as now, for reports that are to be repeated.").String()
	app.Flag("match", `Matchers for every selector, such as cluster="prod".`).StringVar(&c.options.Match)
	app.Flag("cluster-label", "Label that names the cluster.").Default("cluster").StringVar(&c.options.ClusterLabel)
	app.Flag("node-pool-label", "Label of nodes that names their pool; else the usual ones of the clouds, else the nodes' names.").StringVar(&c.options.PoolLabel)
	metrics := app.Flag("metrics", "Whose history: gpu-exporter, or dcgm for what dcgm-exporter left.").Default("gpu-exporter").Enum("gpu-exporter", "dcgm")
	gone := app.Flag("gone-after", "A node that is silent for so long until the end of the window has left.").Default("24h").String()
	prices := app.Flag("prices", "Price list in YAML: currency, GPUs (model, per_hour), energy_per_kwh.").String()

	observed := app.Flag("advice.min-observation", "How long a workload must have held GPUs before its size is judged.").Default("7d").String()
	quiet := app.Flag("advice.min-idle", "How long a GPU must have been without work before its release is advised.").Default("24h").String()
	app.Flag("advice.min-coverage", "Part of that time that must be known.").Default("0.95").Float64Var(&c.options.Advice.Coverage)
	app.Flag("advice.min-saving", "GPUs, as a mean over the window, below which nothing is advised.").Default("0.02").Float64Var(&c.options.Advice.Saving)

	group := app.Flag("group-by", "Levels to show, separated by commas: "+strings.Join(render.Levels(), ", ")+".").Default("model,node_pool,namespace,workload").String()
	format := app.Flag("format", "Formats to write, separated by commas: "+strings.Join(render.Formats(), ", ")+".").Default("table").String()
	app.Flag("out", "File (one format) or folder to write to; else standard output (one format).").Short('o').StringVar(&c.out)
	app.Flag("top", "Rows of each list in table and Markdown; 0: all.").Default("20").IntVar(&c.top)
	fail := app.Flag("fail-on", "Exit with 5 when a figure is higher, as NAME>VALUE (repeatable): "+strings.Join(limitNames(), ", ")+". Parts are of all hours, 0 to 1.").Strings()
	app.Flag("quiet", "Show no progress.").Short('q').BoolVar(&c.quiet)
	log.Level, log.Format = promslog.NewLevel(), promslog.NewFormat()
	app.Flag("log.level", "Minimum level of log messages: debug, info, warn, error.").Default("warn").SetValue(log.Level)
	app.Flag("log.format", "Log format: logfmt or json.").Default("logfmt").SetValue(log.Format)

	_, err := app.Parse(args)
	switch {
	case asked:
		return nil, errHelp{}
	case err != nil:
		return nil, fmt.Errorf("%w; --help lists the flags", err)
	}
	log.Writer = stderr
	c.log = promslog.New(&log)
	c.options.Log = c.log
	c.server.RetryDelay = time.Second
	if user != "" {
		c.server.HTTP.BasicAuth = &config.BasicAuth{Username: user, PasswordFile: passwordFile}
	}
	if tokenFile != "" {
		c.server.HTTP.Authorization = &config.Authorization{Type: "Bearer", CredentialsFile: tokenFile}
	}
	c.server.Headers = http.Header{}
	for _, h := range *headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("--prometheus.header=%s is not NAME:VALUE", h)
		}
		c.server.Headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if c.server.Concurrency < 1 || c.server.Retries < 0 {
		return nil, errors.New("--prometheus.concurrency is at least 1, and --prometheus.retries at least 0")
	}
	for _, d := range []struct {
		flag, text string
		into       *time.Duration
	}{{"prometheus.chunk", *chunk, &c.server.Chunk}, {"gone-after", *gone, &c.options.Gone},
		{"advice.min-observation", *observed, &c.options.Advice.Observed}, {"advice.min-idle", *quiet, &c.options.Advice.Quiet}} {
		v, err := model.ParseDuration(d.text)
		if err != nil || v <= 0 {
			return nil, fmt.Errorf("--%s=%s is no duration: write it as 12h or 7d", d.flag, d.text)
		}
		*d.into = time.Duration(v)
	}
	c.options.Now = time.Now()
	if *now != "" {
		if c.options.Now, err = moment(*now, c.options.Now); err != nil {
			return nil, fmt.Errorf("--now=%s: %w", *now, err)
		}
	}
	c.options.To = c.options.Now
	if *to != "" {
		if c.options.To, err = moment(*to, c.options.Now); err != nil {
			return nil, fmt.Errorf("--to=%s: %w", *to, err)
		}
	}
	if c.options.From, err = moment(*from, c.options.To); err != nil {
		return nil, fmt.Errorf("--from=%s: %w", *from, err)
	}
	c.options.DCGM = *metrics == "dcgm"
	c.options.Parallel = min(2, c.server.Concurrency)
	if *prices != "" {
		if c.options.Prices, err = report.ReadPrices(*prices); err != nil {
			return nil, err
		}
	}
	if err := c.options.Validate(); err != nil {
		return nil, err
	}
	if c.by, err = choose("group-by", *group, render.Levels()); err != nil {
		return nil, err
	}
	if c.formats, err = choose("format", *format, render.Formats()); err != nil {
		return nil, err
	}
	if c.out == "" && len(c.formats) > 1 {
		return nil, errors.New("several formats need a folder to go to: --out=FOLDER")
	}
	for _, text := range *fail {
		l, err := parseLimit(text)
		if err != nil {
			return nil, err
		}
		c.failOn = append(c.failOn, l)
	}
	return &c, nil
}

// moment reads an age before another moment, a day, or a moment.
func moment(text string, before time.Time) (time.Time, error) {
	if d, err := model.ParseDuration(text); err == nil {
		return before.Add(-time.Duration(d)), nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, text, time.UTC); err == nil {
			return t, nil
		}
	}
	if s, err := strconv.ParseFloat(text, 64); err == nil && s > 1e9 && s < 1e11 {
		return time.UnixMilli(int64(s * 1000)), nil
	}
	return time.Time{}, errors.New("is neither an age such as 30d nor a moment such as 2026-01-31 or 2026-01-31T12:00:00Z")
}

func choose(flag, text string, from []string) ([]string, error) {
	var out []string
	for s := range strings.SplitSeq(text, ",") {
		s = strings.TrimSpace(s)
		if s == "" {
			continue
		}
		if !slices.Contains(from, s) {
			return nil, fmt.Errorf("--%s: there is no %q; there are %s", flag, s, strings.Join(from, ", "))
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--%s is empty; there are %s", flag, strings.Join(from, ", "))
	}
	return out, nil
}

// limit is one condition of --fail-on.
type limit struct {
	name  string
	value float64
}

// limitFigures are the figures that --fail-on may name.
func limitFigures() map[string]func(*report.Document) float64 {
	part := func(of func(*report.Account) float64) func(*report.Document) float64 {
		return func(d *report.Document) float64 {
			if d.Fleet.Hours == 0 {
				return 0
			}
			return of(&d.Fleet) / d.Fleet.Hours
		}
	}
	return map[string]func(*report.Document) float64{
		"waste":        part((*report.Account).Waste),
		"idle":         part(func(a *report.Account) float64 { return a.Cells.Idle }),
		"reclaimable":  part(func(a *report.Account) float64 { return a.Reclaimable }),
		"unallocated":  part(func(a *report.Account) float64 { return a.Cells.Unallocated }),
		"unavailable":  part(func(a *report.Account) float64 { return a.Cells.Unavailable }),
		"not_reported": part(func(a *report.Account) float64 { return a.Cells.NotReported }),
		"advice":       func(d *report.Document) float64 { return float64(len(d.Advice)) },
		"release_gpus": func(d *report.Document) float64 {
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

func limitNames() []string {
	var out []string
	for n := range limitFigures() {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func parseLimit(text string) (limit, error) {
	name, value, ok := strings.Cut(text, ">")
	name = strings.TrimSpace(name)
	v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	// No figure is ever more than what is no number: a limit that cannot be exceeded would watch over nothing.
	if !ok || err != nil || math.IsNaN(v) || math.IsInf(v, 0) || limitFigures()[name] == nil {
		return limit{}, fmt.Errorf("--fail-on=%s is not NAME>VALUE with one of %s", text, strings.Join(limitNames(), ", "))
	}
	return limit{name, v}, nil
}

func (l limit) exceeded(d *report.Document) (string, bool) {
	v := limitFigures()[l.name](d)
	return fmt.Sprintf("%s is %.4g, more than %g", l.name, v, l.value), v > l.value
}
