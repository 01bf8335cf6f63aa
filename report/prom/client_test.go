package prom

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/config"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// fake is a server whose value at every time is that time.
type fake struct {
	mu       sync.Mutex
	requests []url.Values
	header   http.Header
	// intercept may respond instead.
	intercept func(w http.ResponseWriter, r *http.Request, n int) bool
	extra     string
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	f.mu.Lock()
	f.requests = append(f.requests, r.Form)
	f.header = r.Header
	n := len(f.requests)
	f.mu.Unlock()
	if f.intercept != nil && f.intercept(w, r, n) {
		return
	}
	number := func(name string) float64 { v, _ := strconv.ParseFloat(r.Form.Get(name), 64); return v }
	var b strings.Builder
	for t := number("start"); t <= number("end"); t += number("step") {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `[%g,"%g"]`, t, t)
	}
	fmt.Fprintf(w, `{"status":"success"%s,"data":{"resultType":"matrix","result":[{"metric":{"__name__":"x","a":"b"},"values":[%s]}]}}`,
		f.extra, b.String())
}

func client(t *testing.T, h http.Handler, change func(*Config)) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	cfg := Config{URL: s.URL, Timeout: 5 * time.Second, Concurrency: 2, Retries: 2, Chunk: 24 * time.Hour, RetryDelay: time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg, slog.New(slog.DiscardHandler))
	must.OK(t, err)
	return c
}

var day = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)

// readRange reads a range and checks that every step comes once and in order.
func readRange(t *testing.T, c *Client, days int) error {
	t.Helper()
	next := day.UnixMilli()
	end := day.AddDate(0, 0, days)
	err := c.Range(t.Context(), Range{"x", day, end, 5 * time.Minute}, func(s *Series) error {
		if s.Labels.Name() != "x" || s.Labels.Get("a") != "b" || s.Labels.Get("c") != "" {
			t.Errorf("labels are %v", s.Labels)
		}
		for i, at := range s.At {
			if at != next || s.Value[i] != float64(next)/1000 {
				t.Fatalf("at %d: %v, expected %d", at, s.Value[i], next)
			}
			next += 300_000
		}
		return nil
	})
	if err == nil && next != end.UnixMilli()+300_000 {
		t.Errorf("the last step is %d", next)
	}
	return err
}

func TestRangeComesInPieces(t *testing.T) {
	f := &fake{}
	must.OK(t, readRange(t, client(t, f, nil), 5))
	if len(f.requests) != 6 {
		t.Errorf("%d requests", len(f.requests))
	}
	f = &fake{}
	must.OK(t, readRange(t, client(t, f, func(c *Config) { c.Chunk = 1000 * time.Hour * 24 }), 60))
	if len(f.requests) != 2 { // 17,281 points, and Prometheus returns 11,000
		t.Errorf("%d requests", len(f.requests))
	}
}

func TestTransientErrorsAreRetried(t *testing.T) {
	f := &fake{intercept: func(w http.ResponseWriter, _ *http.Request, n int) bool {
		switch n {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		case 2:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			return false
		}
		return true
	}}
	must.OK(t, readRange(t, client(t, f, nil), 1))
	if len(f.requests) != 4 { // two of one piece failed
		t.Errorf("%d requests", len(f.requests))
	}
}

// A broken response adds nothing: a piece is passed on only after all of it was read.
func TestBrokenResponseIsRetried(t *testing.T) {
	f := &fake{intercept: func(w http.ResponseWriter, _ *http.Request, n int) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"],`))
		panic(http.ErrAbortHandler)
	}}
	must.OK(t, readRange(t, client(t, f, nil), 1))
}

func TestTooLargeIsHalved(t *testing.T) {
	halved := 0
	f := &fake{intercept: func(w http.ResponseWriter, r *http.Request, _ int) bool {
		from, _ := strconv.ParseFloat(r.Form.Get("start"), 64)
		to, _ := strconv.ParseFloat(r.Form.Get("end"), 64)
		if to-from < 3*3600 {
			return false
		}
		halved++
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w,
			`{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query `+
				`execution"}`)
		return true
	}}
	must.OK(t, readRange(t, client(t, f, nil), 2))
	if halved == 0 || halved > 8 {
		t.Errorf("halved %d times: later pieces should begin small", halved)
	}
}

func TestErrorsHaveAHint(t *testing.T) {
	respond := func(code int, kind, body string) func(http.ResponseWriter, *http.Request, int) bool {
		return func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			fmt.Fprint(w, body)
			return true
		}
	}
	for _, tt := range []struct {
		name, want string
		intercept  func(http.ResponseWriter, *http.Request, int) bool
		requests   int
	}{
		{"a page", "is no Prometheus API", respond(200, "text/html", "<html>Grafana</html>"), 1},
		{"another JSON", "is no Prometheus API", respond(200, "application/json", `{"message":"hello"}`), 1},
		{"no status", "is no Prometheus API", respond(200, "application/json", `{}`), 1},
		{"truncated", "is no Prometheus API", respond(200, "application/json",
			`{"status":"success","data":{"resultType":"matrix","result":[{"metric`), 1},
		{"not found", "base of the API", respond(404, "text/html", "<html>no</html>"), 1},
		{"no password", "--prometheus.user", respond(401, "text/plain", "who are you"), 1},
		{"no tenant", "--prometheus.header", respond(401, "application/json", `{"status":"error","errorType":"","error":"no org id"}`), 1},
		{"bad question", "bad_data text", respond(400, "application/json",
			`{"status":"error","errorType":"bad_data","error":"bad_data text"}`), 1},
		{"down for long", "503", respond(503, "text/plain", "no"), 3},
		{"error with 200", "went wrong", respond(200, "application/json", `{"status":"error","error":"went wrong"}`), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{intercept: tt.intercept}
			err := readRange(t, client(t, f, nil), 1)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
			if len(f.requests) != tt.requests {
				t.Errorf("%d requests, want %d", len(f.requests), tt.requests)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	c, err := New(Config{URL: "http://127.0.0.1:1", RetryDelay: time.Millisecond, Retries: 1, Chunk: time.Hour, Concurrency: 1},
		slog.New(slog.DiscardHandler))
	must.OK(t, err)
	if err := readRange(t, c, 1); err == nil || !strings.Contains(err.Error(), "--prometheus.url") {
		t.Error(err)
	}
}

func TestCancelled(t *testing.T) {
	f := &fake{intercept: func(w http.ResponseWriter, _ *http.Request, _ int) bool { w.WriteHeader(503); return true }}
	c := client(t, f, func(c *Config) { c.RetryDelay = time.Hour })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Range(ctx, Range{"x", day, day, time.Minute}, func(*Series) error { return nil }) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestPartialResponsesAreListed(t *testing.T) {
	for extra, want := range map[string]string{`,"isPartial":true`: "partial", `,"warnings":["store a\nis down"]`: "store a is down",
		`,"infos":["a note"]`: ""} {
		c := client(t, &fake{extra: extra}, nil)
		must.OK(t, readRange(t, c, 1))
		if w := strings.Join(c.Warnings(), ";"); (want == "") != (w == "") || !strings.Contains(w, want) {
			t.Errorf("%s: %q", extra, w)
		}
	}
}

func TestAuthentication(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	must.OK(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"token", func(c *Config) { c.HTTP.Authorization = &config.Authorization{Type: "Bearer", CredentialsFile: file} }, "Bearer s3cret"},
		{"basic", func(c *Config) { c.HTTP.BasicAuth = &config.BasicAuth{Username: "u", PasswordFile: file} }, "Basic dTpzM2NyZXQ="},
		{"in the URL", func(c *Config) { c.URL = strings.Replace(c.URL, "http://", "http://u:s3cret@", 1) }, "Basic dTpzM2NyZXQ="},
	} {
		f := &fake{}
		c := client(t, f, func(cfg *Config) { cfg.Headers = http.Header{"X-Scope-Orgid": {"team"}}; tt.change(cfg) })
		must.OK(t, readRange(t, c, 1))
		if f.header.Get("Authorization") != tt.want || f.header.Get("X-Scope-OrgID") != "team" {
			t.Errorf("%s: %v", tt.name, f.header)
		}
		if strings.Contains(c.Where(), "s3cret") {
			t.Error("the secret is visible")
		}
	}
	both := config.HTTPClientConfig{Authorization: &config.Authorization{CredentialsFile: file},
		BasicAuth: &config.BasicAuth{Username: "u"}}
	if _, err := New(Config{URL: "http://x", HTTP: both}, nil); err == nil {
		t.Error("two kinds of authentication are accepted")
	}
	for _, u := range []string{"", "prometheus:9090", "ftp://x", "http://"} {
		if _, err := New(Config{URL: u}, nil); err == nil {
			t.Errorf("%q is accepted as URL", u)
		}
	}
}

// Headers and credentials go to no other server.
func TestRedirect(t *testing.T) {
	other := &fake{}
	elsewhere := httptest.NewServer(other)
	defer elsewhere.Close()
	to := ""
	c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+r.URL.Path, http.StatusTemporaryRedirect)
	}), func(c *Config) { c.Headers = http.Header{"X-Api-Key": {"secret"}} })
	to = elsewhere.URL
	err := readRange(t, c, 1)
	if err == nil || !strings.Contains(err.Error(), "redirects to "+elsewhere.URL) || len(other.requests) > 0 {
		t.Errorf("to another server: %v, %d requests", err, len(other.requests))
	}
	f := &fake{}
	c = client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/old"); ok {
			http.Redirect(w, r, rest, http.StatusTemporaryRedirect)
			return
		}
		f.ServeHTTP(w, r)
	}), func(c *Config) { c.URL += "/old" })
	if err := readRange(t, c, 1); err != nil {
		t.Errorf("to the same server: %v", err)
	}
	c = client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
	}), nil)
	if err := readRange(t, c, 1); err == nil || !strings.Contains(err.Error(), "redirects to itself again and again") {
		t.Errorf("to the same URL: %v", err)
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(&fake{})
	defer s.Close()
	try := func(change func(*Config)) error {
		cfg := Config{URL: s.URL, Chunk: time.Hour * 48, Concurrency: 1, RetryDelay: time.Millisecond}
		change(&cfg)
		c, err := New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return readRange(t, c, 1)
	}
	if err := try(func(*Config) {}); err == nil || !strings.Contains(err.Error(), "--prometheus.ca-file") {
		t.Error(err)
	}
	if err := try(func(c *Config) { c.HTTP.TLSConfig.InsecureSkipVerify = true }); err != nil {
		t.Error(err)
	}
	if err := try(func(c *Config) { c.HTTP.TLSConfig.CAFile = "/nowhere" }); err == nil {
		t.Error("a missing file is accepted as CA")
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	var now, most atomic.Int32
	f := &fake{intercept: func(http.ResponseWriter, *http.Request, int) bool {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		now.Add(-1)
		return false
	}}
	c := client(t, f, nil)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() { _ = readRange(t, c, 1) })
	}
	wait.Wait()
	if most.Load() > 2 {
		t.Errorf("%d requests at once", most.Load())
	}
}

func TestFloat(t *testing.T) {
	for _, s := range []string{"0", "1", "-1", "0.1", "123456789.123456", "1e3", "-2.5e-7", "+Inf", "-Inf", "NaN", "0.9999999999999999",
		"1.7976931348623157e+308", "123456789012345678901234567890", "0.000000000000001", "5e-324"} {
		want, err := strconv.ParseFloat(s, 64)
		got, err2 := float([]byte(s))
		if err != nil || err2 != nil || got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%s is read as %v, %v", s, got, err2)
		}
	}
	for _, s := range []string{"", ".", "1.2.3", "x", "1,2"} {
		if v, err := float([]byte(s)); err == nil {
			t.Errorf("%q is read as %v", s, v)
		}
	}
}

func TestQuote(t *testing.T) {
	if got := Quote("a\"b\\c\nd"); got != `"a\"b\\c\nd"` {
		t.Error(got)
	}
}
