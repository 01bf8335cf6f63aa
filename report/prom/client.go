package prom

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config says how to reach a server.
type Config struct {
	// URL is the base of the API, without /api/v1: http://prometheus:9090, https://mimir/prometheus.
	URL string
	// User and PasswordFile are for basic authentication.
	User, Password, PasswordFile string
	// TokenFile holds a bearer token; it is read for every request, because tokens are rotated.
	TokenFile string
	// Headers are sent with every request, such as X-Scope-OrgID for a tenant of Mimir.
	Headers http.Header
	// CAFile, CertFile and KeyFile are of TLS; ServerName is what the certificate must name.
	CAFile, CertFile, KeyFile, ServerName string
	// Insecure accepts any certificate.
	Insecure bool
	// Timeout is for one request.
	Timeout time.Duration
	// Concurrency is how many requests may run at once.
	Concurrency int
	// Retries is how often a request that failed for a passing reason is made again.
	Retries int
	// Chunk is the longest time for which one request asks.
	Chunk time.Duration
	// Wait is the first pause before a retry; it doubles.
	Wait time.Duration
}

// The limits that hold whatever the configuration says.
const (
	// mostPoints is the number of points of a series that Prometheus answers at most.
	mostPoints = 11000
	// largest is the longest answer, in bytes, that is held in memory; a longer one is asked for in halves.
	largest = 24 << 20
	// shortest is the piece of time below which nothing is halved any more.
	shortest = 30 * time.Minute
)

// Client asks one server. It may be used by many goroutines.
type Client struct {
	base    *url.URL
	cfg     Config
	http    *http.Client
	log     *slog.Logger
	slots   chan struct{}
	chunk   atomic.Int64 // nanoseconds; falls when the server finds a piece too large
	buffers sync.Pool

	mu       sync.Mutex
	names    map[string]string
	warnings map[string]bool
	stats    Stats
}

// Stats are what was asked so far.
type Stats struct {
	Requests, Retries, Halved int
	Series, Points, Bytes     int64
	// Waited is the sum over requests of the time until the whole answer was there: the server's time.
	Waited time.Duration
}

// New returns a client. It makes no request.
func New(cfg Config, log *slog.Logger) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the server's URL %q is none: write it as http://prometheus:9090", cfg.URL)
	}
	if u.User != nil {
		if cfg.User != "" {
			return nil, errors.New("user and password stand both in the URL and in flags: say them once")
		}
		cfg.User = u.User.Username()
		cfg.Password, _ = u.User.Password()
		u.User = nil
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/api/v1"), "/")
	if cfg.TokenFile != "" && cfg.User != "" {
		return nil, errors.New("a bearer token and basic authentication cannot both be used: choose one")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = max(1, cfg.Concurrency)
	if transport.TLSClientConfig, err = cfg.tls(); err != nil {
		return nil, err
	}
	c := &Client{base: u, cfg: cfg, http: &http.Client{Transport: transport}, log: log, slots: make(chan struct{}, max(1, cfg.Concurrency)),
		names: map[string]string{}, warnings: map[string]bool{}}
	c.buffers.New = func() any { return new(bytes.Buffer) }
	c.chunk.Store(int64(cfg.Chunk))
	return c, nil
}

func (cfg *Config) tls() (*tls.Config, error) {
	t := &tls.Config{ServerName: cfg.ServerName, InsecureSkipVerify: cfg.Insecure}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA's certificate: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM form", cfg.CAFile)
		}
	}
	if (cfg.CertFile == "") != (cfg.KeyFile == "") {
		return nil, errors.New("a client certificate needs both its certificate and its key file")
	}
	if cfg.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the client's certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// Warnings lists what servers said of answers that are not complete, in order.
func (c *Client) Warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]string, 0, len(c.warnings))
	for w := range c.warnings {
		out = append(out, w)
	}
	slices.Sort(out)
	return out
}

// Stats returns what was asked so far.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Where returns the server's URL without secrets.
func (c *Client) Where() string { return c.base.String() }

// once hands out the texts of labels for one decoding. Decodings run at the same time, so each has a map of
// its own that is merged afterwards; a text is one string per map at most.
func (c *Client) once() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := make(map[string]string, len(c.names))
	for k, v := range c.names {
		m[k] = v
	}
	return m
}

func (c *Client) learn(names map[string]string) {
	const most = 4096
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, v := range names {
		if len(c.names) >= most {
			return
		}
		c.names[k] = v
	}
}

// Range is a question over time.
type Range struct {
	Query string
	// From and To are the moments of the first and the last value.
	From, To time.Time
	Step     time.Duration
}

// Range asks for a range and hands every series of every piece on: a series comes once for each piece, in the
// order of time within one call, and one call of each at a time.
func (c *Client) Range(ctx context.Context, r Range, each func(*Series) error) error {
	if r.To.Before(r.From) {
		return nil
	}
	for from := r.From; !from.After(r.To); {
		chunk := time.Duration(c.chunk.Load())
		steps := max(1, min(int64(chunk/r.Step), mostPoints-1))
		to := from.Add(time.Duration(steps-1) * r.Step)
		if to.After(r.To) {
			to = r.To
		}
		err := c.piece(ctx, Range{r.Query, from, to, r.Step}, each)
		if err != nil {
			return err
		}
		from = to.Add(r.Step)
	}
	return nil
}

// piece asks for one piece, and for its halves if it is too large.
func (c *Client) piece(ctx context.Context, r Range, each func(*Series) error) error {
	form := url.Values{"query": {r.Query}, "start": {unix(r.From)}, "end": {unix(r.To)},
		"step": {strconv.FormatFloat(r.Step.Seconds(), 'f', -1, 64)}}
	err := c.ask(ctx, "/api/v1/query_range", form, each)
	var large *tooLarge
	if !errors.As(err, &large) {
		return err
	}
	span := r.To.Sub(r.From)
	half := (span / 2).Truncate(r.Step)
	if span < shortest || half < r.Step {
		return large.err
	}
	c.mu.Lock()
	c.stats.Halved++
	c.mu.Unlock()
	c.log.Debug("the server finds a piece too large: asking for its halves", "span", span, "why", large.err)
	for {
		now := c.chunk.Load()
		if now <= int64(half+r.Step) || c.chunk.CompareAndSwap(now, int64(half+r.Step)) {
			break
		}
	}
	if err := c.piece(ctx, Range{r.Query, r.From, r.From.Add(half), r.Step}, each); err != nil {
		return err
	}
	return c.piece(ctx, Range{r.Query, r.From.Add(half + r.Step), r.To, r.Step}, each)
}

// Instant asks for the values at one moment.
func (c *Client) Instant(ctx context.Context, query string, at time.Time, each func(*Series) error) error {
	err := c.ask(ctx, "/api/v1/query", url.Values{"query": {query}, "time": {unix(at)}}, each)
	var large *tooLarge
	if errors.As(err, &large) {
		return large.err
	}
	return err
}

// Values lists the values of a label of the series that match.
func (c *Client) Values(ctx context.Context, label, match string, from, to time.Time) ([]string, error) {
	form := url.Values{"start": {unix(from)}, "end": {unix(to)}, "match[]": {match}}
	buf, release, err := c.fetch(ctx, http.MethodGet, "/api/v1/label/"+url.PathEscape(label)+"/values", form)
	if err != nil {
		var large *tooLarge
		if errors.As(err, &large) {
			return nil, large.err
		}
		return nil, err
	}
	defer release()
	var answer struct {
		Status, Error string
		Warnings      []string
		IsPartial     bool
		Data          []string
	}
	if err := json.Unmarshal(buf.Bytes(), &answer); err != nil {
		return nil, c.wrong(err)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("ask %s for the values of %s: %s", c.Where(), label, answer.Error)
	}
	c.warn(answer.Warnings, answer.IsPartial)
	return answer.Data, nil
}

func (c *Client) warn(warnings []string, partial bool) {
	if partial {
		warnings = append(warnings, "the server calls an answer partial: some of its storage did not answer")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range warnings {
		c.warnings[oneLine(w)] = true
	}
}

// tooLarge says that a question may be answered when it asks for less.
type tooLarge struct{ err error }

func (e *tooLarge) Error() string { return e.err.Error() }
func (e *tooLarge) Unwrap() error { return e.err }

// ask makes one request and hands its series on.
func (c *Client) ask(ctx context.Context, path string, form url.Values, each func(*Series) error) error {
	buf, release, err := c.fetch(ctx, http.MethodPost, path, form)
	if err != nil {
		return err
	}
	defer release()
	names := c.once()
	var stop error
	r, err := decode(buf.Bytes(), names, func(s *Series) error {
		stop = each(s)
		return stop
	})
	if stop != nil {
		return stop
	}
	if err != nil {
		return c.wrong(err)
	}
	if r.status != "success" {
		return fmt.Errorf("ask %s: %s", c.Where(), oneLine(r.message))
	}
	c.learn(names)
	c.warn(r.warnings, r.partial)
	c.mu.Lock()
	c.stats.Series += int64(r.series)
	c.stats.Points += int64(r.points)
	c.mu.Unlock()
	return nil
}

// wrong says of an answer that it is not one of this API.
func (c *Client) wrong(err error) error {
	return fmt.Errorf("%s does not answer as a Prometheus API does (%v): give the base of the API, "+
		"such as http://prometheus:9090, https://mimir/prometheus or http://vmselect:8481/select/0/prometheus", c.Where(), oneLine(err.Error()))
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64) }

// oneLine shortens a text of somebody else's to one line.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const most = 300
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}

// fetch makes a request until it is answered, refused, or was made often enough. The buffer is valid until
// release is called.
func (c *Client) fetch(ctx context.Context, method, path string, form url.Values) (_ *bytes.Buffer, release func(), err error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	defer func() { <-c.slots }()
	wait := c.cfg.Wait
	for tries := 0; ; tries++ {
		buf := c.buffers.Get().(*bytes.Buffer)
		buf.Reset()
		var again time.Duration
		again, err = c.attempt(ctx, method, path, form, buf)
		if err == nil {
			return buf, func() {
				if buf.Cap() <= largest {
					c.buffers.Put(buf)
				}
			}, nil
		}
		c.buffers.Put(buf)
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if again < 0 || tries >= c.cfg.Retries {
			return nil, nil, err
		}
		c.mu.Lock()
		c.stats.Retries++
		c.mu.Unlock()
		pause := max(wait, again)
		c.log.Info("asking again", "in", pause, "attempt", tries+1, "why", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, ctx.Err()
		}
		wait = min(2*wait, 30*time.Second)
	}
}

// attempt makes a request once. again is negative when asking again cannot help, else the shortest pause.
func (c *Client) attempt(ctx context.Context, method, path string, form url.Values, buf *bytes.Buffer) (again time.Duration, err error) {
	const never = -1
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
		return never, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "gpu-report")
	for name, values := range c.cfg.Headers {
		req.Header[name] = values
	}
	if err := c.authenticate(req); err != nil {
		return never, err
	}
	begun := time.Now()
	res, err := c.http.Do(req)
	if err != nil {
		return 0, c.unreachable(err)
	}
	defer res.Body.Close()
	n, err := io.Copy(buf, io.LimitReader(res.Body, largest+1))
	c.mu.Lock()
	c.stats.Requests++
	c.stats.Bytes += n
	c.stats.Waited += time.Since(begun)
	c.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("read the answer of %s: %w", c.Where(), err)
	}
	if n > largest {
		return never, &tooLarge{fmt.Errorf("an answer of %s has more than %d MiB: ask for less with a shorter --from", c.Where(), largest>>20)}
	}
	if res.StatusCode == http.StatusOK {
		return 0, nil
	}
	return c.refused(res, buf.Bytes())
}

func (c *Client) authenticate(req *http.Request) error {
	secret := func(file string) (string, error) {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the secret: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	switch {
	case c.cfg.TokenFile != "":
		token, err := secret(c.cfg.TokenFile)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	case c.cfg.User != "":
		password := c.cfg.Password
		if c.cfg.PasswordFile != "" {
			var err error
			if password, err = secret(c.cfg.PasswordFile); err != nil {
				return err
			}
		}
		req.SetBasicAuth(c.cfg.User, password)
	}
	return nil
}

func (c *Client) unreachable(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s did not answer within %s: raise --prometheus.timeout, or ask for less with --prometheus.chunk", c.Where(), c.cfg.Timeout)
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Errorf("the certificate of %s is signed by nobody known: give its CA with --prometheus.ca-file", c.Where())
	}
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	return fmt.Errorf("cannot reach %s: %w: check --prometheus.url, and whether this machine may connect there", c.Where(), err)
}

// refused makes an error of a status other than 200.
func (c *Client) refused(res *http.Response, body []byte) (again time.Duration, err error) {
	const never = -1
	said := oneLine(string(body))
	if r, err := decode(body, map[string]string{}, func(*Series) error { return nil }); err == nil && r.message != "" {
		said = oneLine(r.message)
	} else if strings.Contains(res.Header.Get("Content-Type"), "html") {
		said = "a page, not an answer of the API"
	}
	err = fmt.Errorf("%s answers %s: %s", c.Where(), res.Status, said)
	low := strings.ToLower(said)
	for _, sign := range []string{"too many samples", "maximum resolution", "too many points", "timed out", "timeout", "too long",
		"max-samples", "maxpointspertimeseries", "max_query_length", "max-query-length", "the query time range exceeds", "limit", "out of memory", "cannot select more than"} {
		if strings.Contains(low, sign) && res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusUnauthorized {
			return never, &tooLarge{err}
		}
	}
	switch code := res.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return never, fmt.Errorf("%w: give --prometheus.user with a password file, --prometheus.token-file, or the tenant's --prometheus.header", err)
	case code == http.StatusNotFound || code == http.StatusMethodNotAllowed:
		return never, fmt.Errorf("%w: --prometheus.url is the base of the API, such as http://prometheus:9090, https://mimir/prometheus or http://vmselect:8481/select/0/prometheus", err)
	case code == http.StatusGatewayTimeout || code == http.StatusRequestEntityTooLarge:
		return never, &tooLarge{err}
	case code == http.StatusTooManyRequests, code >= 500:
		if s, e := strconv.Atoi(res.Header.Get("Retry-After")); e == nil && s >= 0 {
			again = min(time.Duration(s)*time.Second, time.Minute)
		}
		return again, err
	}
	return never, err
}
