package prom

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/config"
)

// Config says how to reach a server.
type Config struct {
	// URL is the base of the API, without /api/v1: http://prometheus:9090, https://mimir/prometheus.
	URL string
	// HTTP holds authentication and TLS. Files with secrets are read for every request, because tokens are rotated.
	HTTP config.HTTPClientConfig
	// Headers are sent with every request, such as X-Scope-OrgID for a tenant of Mimir.
	Headers http.Header
	// Timeout applies to one request; 0 is none.
	Timeout time.Duration
	// Concurrency is the maximum number of requests at a time, at least 1.
	Concurrency int
	// Retries is the number of retries after a transient error, RetryDelay the first delay; it doubles.
	Retries    int
	RetryDelay time.Duration
	// Chunk is the maximum time range of one request; 0 leaves only the server's limit of points.
	Chunk time.Duration
}

// Limits that hold for every configuration.
const (
	// maxPoints is the number of points of a series that Prometheus returns at most.
	maxPoints = 11000
	// maxBytes is the size of a response that is kept in memory; a larger one is queried in halves.
	maxBytes = 24 << 20
	// minSpan is the time range below which nothing is halved.
	minSpan = 30 * time.Minute
	// noRetry is the delay of an error that a retry cannot fix.
	noRetry = time.Duration(-1)
)

// Client queries one server. It may be used by many goroutines.
type Client struct {
	base    *url.URL
	cfg     Config
	http    *http.Client
	log     *slog.Logger
	slots   chan struct{}
	chunk   atomic.Int64 // nanoseconds; shrinks when the server refuses a piece as too large
	buffers sync.Pool

	mu       sync.Mutex
	warnings map[string]bool
}

// New returns a client. It makes no request.
func New(cfg Config, log *slog.Logger) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("invalid server URL %q: must be like http://prometheus:9090", cfg.URL)
	}
	if u.User != nil {
		if cfg.HTTP.BasicAuth != nil {
			return nil, errors.New("user and password are set both in the URL and by flags: use one of them")
		}
		password, _ := u.User.Password()
		cfg.HTTP.BasicAuth = &config.BasicAuth{Username: u.User.Username(), Password: config.Secret(password)}
		u.User = nil
	}
	if cfg.HTTP.Authorization != nil && cfg.HTTP.BasicAuth != nil {
		return nil, errors.New("a bearer token and basic authentication are both configured: use one of them")
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/api/v1"), "/")
	cfg.HTTP.FollowRedirects, cfg.HTTP.EnableHTTP2, cfg.HTTP.ProxyFromEnvironment = true, true, true
	client, err := config.NewClientFromConfig(cfg.HTTP, "gpu-report", config.WithUserAgent("gpu-report"))
	if err != nil {
		return nil, fmt.Errorf("configure the connection to the server: %w", err)
	}
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme && r.URL.Scheme != "https" {
			return redirect{r.URL.Scheme + "://" + r.URL.Host}
		}
		if len(via) > 5 {
			return errRedirects
		}
		return nil
	}
	c := &Client{base: u, cfg: cfg, http: client, log: log, slots: make(chan struct{}, max(1, cfg.Concurrency)),
		warnings: map[string]bool{}}
	c.buffers.New = func() any { return new(bytes.Buffer) }
	c.chunk.Store(int64(cfg.Chunk))
	return c, nil
}

// Warnings lists the servers' warnings about incomplete responses, in order.
func (c *Client) Warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.warnings))
}

// Where returns the server's URL without secrets.
func (c *Client) Where() string { return c.base.String() }

// Range is a query over time. From and To are the times of the first and the last value.
type Range struct {
	Query    string
	From, To time.Time
	Step     time.Duration
}

// Range queries a range and passes on every series of every piece: a series comes once per piece, in the order of
// time. Calls of each do not overlap.
func (c *Client) Range(ctx context.Context, r Range, each func(*Series) error) error {
	for from := r.From; !from.After(r.To); {
		steps := int64(maxPoints - 1)
		if chunk := c.chunk.Load(); chunk > 0 {
			steps = max(1, min(chunk/int64(r.Step), steps))
		}
		to := from.Add(time.Duration(steps-1) * r.Step)
		if to.After(r.To) {
			to = r.To
		}
		if err := c.piece(ctx, Range{r.Query, from, to, r.Step}, each); err != nil {
			return err
		}
		from = to.Add(r.Step)
	}
	return nil
}

// piece queries one piece, or its halves if it is too large.
func (c *Client) piece(ctx context.Context, r Range, each func(*Series) error) error {
	err := c.query(ctx, "/api/v1/query_range", url.Values{"query": {r.Query}, "start": {unix(r.From)},
		"end":  {unix(r.To)},
		"step": {strconv.FormatFloat(r.Step.Seconds(), 'f', -1, 64)}}, each)
	span := r.To.Sub(r.From)
	half := (span / 2).Truncate(r.Step)
	if !errors.As(err, new(*tooLarge)) || span < minSpan || half < r.Step {
		return err
	}
	c.log.Debug("piece is too large, querying its halves", "span", span, "err", err)
	for {
		now := c.chunk.Load()
		if now > 0 && now <= int64(half+r.Step) || c.chunk.CompareAndSwap(now, int64(half+r.Step)) {
			break
		}
	}
	if err := c.piece(ctx, Range{r.Query, r.From, r.From.Add(half), r.Step}, each); err != nil {
		return err
	}
	return c.piece(ctx, Range{r.Query, r.From.Add(half + r.Step), r.To, r.Step}, each)
}

// Instant queries the values at one time.
func (c *Client) Instant(ctx context.Context, query string, at time.Time, each func(*Series) error) error {
	return c.query(ctx, "/api/v1/query", url.Values{"query": {query}, "time": {unix(at)}}, each)
}

// Values lists the values of a label of the series that match; an empty match is every series.
func (c *Client) Values(ctx context.Context, label, match string, from, to time.Time) ([]string, error) {
	form := url.Values{"start": {unix(from)}, "end": {unix(to)}}
	if match != "" {
		form.Set("match[]", match)
	}
	buf, release, err := c.fetch(ctx, http.MethodGet, "/api/v1/label/"+url.PathEscape(label)+"/values", form)
	if err != nil {
		return nil, err
	}
	defer release()
	var r struct {
		Status, Error string
		Warnings      []string
		IsPartial     bool
		Data          []string
	}
	if err := json.Unmarshal(buf.Bytes(), &r); err != nil {
		return nil, c.notAPI(err)
	}
	if r.Status != "success" {
		return nil, fmt.Errorf("values of label %s at %s: %s", label, c.Where(), oneLine(r.Error))
	}
	c.warn(r.Warnings, r.IsPartial)
	return r.Data, nil
}

func (c *Client) warn(warnings []string, partial bool) {
	if partial {
		warnings = append(warnings, "the server returned partial data: some of its storage did not respond")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range warnings {
		c.warnings[oneLine(w)] = true
	}
}

// tooLarge marks errors of queries that may succeed over a shorter time range.
type tooLarge struct{ error }

func (e *tooLarge) Unwrap() error { return e.error }

// query makes one request and passes its series on.
func (c *Client) query(ctx context.Context, path string, form url.Values, each func(*Series) error) error {
	buf, release, err := c.fetch(ctx, http.MethodPost, path, form)
	if err != nil {
		return err
	}
	defer release()
	r, err := decode(buf.Bytes(), each)
	switch {
	case errors.Is(err, errNotJSON):
		return c.notAPI(err)
	case err != nil:
		return err
	case r.status != "success":
		return fmt.Errorf("query at %s: %s", c.Where(), oneLine(r.message))
	}
	c.warn(r.warnings, r.partial)
	return nil
}

const baseHint = "--prometheus.url must be the base of the API, such as http://prometheus:9090, " +
	"https://mimir/prometheus or http://vmselect:8481/select/0/prometheus"

func (c *Client) notAPI(err error) error {
	return fmt.Errorf("%s is no Prometheus API (%s): %s", c.Where(), oneLine(err.Error()), baseHint)
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64) }

// oneLine shortens a server's text to one line.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}

// fetch makes a request and its retries. The buffer is valid until release is called.
func (c *Client) fetch(ctx context.Context, method, path string, form url.Values) (_ *bytes.Buffer, release func(), err error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	defer func() { <-c.slots }()
	delay := c.cfg.RetryDelay
	for tries := 0; ; tries++ {
		buf := c.buffers.Get().(*bytes.Buffer)
		buf.Reset()
		atLeast, err := c.attempt(ctx, method, path, form, buf)
		if err == nil {
			return buf, func() {
				if buf.Cap() <= maxBytes {
					c.buffers.Put(buf)
				}
			}, nil
		}
		c.buffers.Put(buf)
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if atLeast == noRetry || tries >= c.cfg.Retries {
			return nil, nil, err
		}
		pause := max(delay, atLeast)
		c.log.Warn("retrying a failed request", "in", pause, "attempt", tries+1, "err", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		delay = min(2*delay, 30*time.Second)
	}
}

// attempt makes a request once. With an error it returns the minimum delay before a retry.
func (c *Client) attempt(ctx context.Context, method, path string, form url.Values, buf *bytes.Buffer) (time.Duration, error) {
	if c.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
	}
	u := *c.base
	u.Path += path
	var body io.Reader
	if method == http.MethodGet {
		u.RawQuery = form.Encode()
	} else {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return noRetry, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Accept", "application/json")
	maps.Copy(req.Header, c.cfg.Headers)
	res, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer res.Body.Close()
	n, err := io.Copy(buf, io.LimitReader(res.Body, maxBytes+1))
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the response of %s: %w", c.Where(), err)
	case n > maxBytes:
		return noRetry, &tooLarge{fmt.Errorf("a response of %s is larger than %d MiB: use a shorter --from", c.Where(), maxBytes>>20)}
	case res.StatusCode == http.StatusOK:
		return 0, nil
	}
	return c.refused(res, buf.Bytes())
}

// errRedirects ends redirections that do not lead to a response.
var errRedirects = errors.New("more than 5 redirects")

// redirect is a redirection to another server, which would get the headers and the credentials.
type redirect struct{ to string }

func (r redirect) Error() string { return "redirected to " + r.to }

// unreachable explains an error without a response.
func (c *Client) unreachable(err error) (time.Duration, error) {
	var file *fs.PathError
	var other redirect
	switch {
	case errors.As(err, &other):
		return noRetry, fmt.Errorf("%s redirects to %s: set --prometheus.url to the server that responds itself", c.Where(), other.to)
	case errors.Is(err, errRedirects):
		return noRetry, fmt.Errorf("%s redirects to itself again and again: set --prometheus.url to the path of the API, and "+
			"look at the proxy in front of it", c.Where())
	case errors.As(err, &file):
		return noRetry, fmt.Errorf("read a secret: %w", file)
	case errors.Is(err, context.DeadlineExceeded):
		return 0, fmt.Errorf("%s did not respond within %s: raise --prometheus.timeout or lower --prometheus.chunk",
			c.Where(), c.cfg.Timeout)
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return 0, fmt.Errorf("the certificate of %s is signed by an unknown authority: set --prometheus.ca-file", c.Where())
	}
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	return 0, fmt.Errorf("cannot reach %s: %w: check --prometheus.url and the network path to it", c.Where(), err)
}

// tooLargeTexts are parts of messages by which servers refuse a query that covers too much.
var tooLargeTexts = []string{"too many samples", "maximum resolution", "too many points", "timed out", "timeout",
	"too long",
	"max-samples", "maxpointspertimeseries", "max_query_length", "max-query-length", "the query time range exceeds",
	"limit",
	"out of memory", "cannot select more than"}

// refused makes an error of a status other than 200.
func (c *Client) refused(res *http.Response, body []byte) (time.Duration, error) {
	message := oneLine(string(body))
	if r, err := decode(body, func(*Series) error { return nil }); err == nil && r.message != "" {
		message = oneLine(r.message)
	} else if strings.Contains(res.Header.Get("Content-Type"), "html") {
		message = "a web page instead of an API response"
	}
	err := fmt.Errorf("%s responded %s: %s", c.Where(), res.Status, message)
	code, lower := res.StatusCode, strings.ToLower(message)
	contains := func(text string) bool { return strings.Contains(lower, text) }
	switch {
	case code == http.StatusUnauthorized:
	case code != http.StatusTooManyRequests && slices.ContainsFunc(tooLargeTexts, contains),
		code == http.StatusGatewayTimeout, code == http.StatusRequestEntityTooLarge:
		return noRetry, &tooLarge{err}
	case code == http.StatusNotFound || code == http.StatusMethodNotAllowed:
		return noRetry, fmt.Errorf("%w: %s", err, baseHint)
	case code == http.StatusTooManyRequests || code >= 500:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return min(max(0, time.Duration(seconds))*time.Second, time.Minute), err
	}
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		return noRetry, fmt.Errorf("%w: set --prometheus.user with a password file, --prometheus.token-file, "+
			"or the tenant's --prometheus.header", err)
	}
	return noRetry, err
}
