package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// script is an API server whose responses a test has written down, with the time that each takes by the test's clock. It
// ends the context with the last.
type script struct {
	steps    []step
	now      time.Time
	requests []string
	slept    []time.Duration
	cancel   context.CancelFunc

	contexts []context.Context
	accepts  []string
	queries  []string
	bodies   []*scriptBody
}

type step struct {
	status        int           // 200 where 0
	begins, lasts time.Duration // until the response, and from there to the first byte of it
	text          string
	err           error // in place of the response
	cut           error // in place of the end of the text
}

type scriptBody struct {
	io.Reader
	script *script
	lasts  time.Duration
	closed bool
}

func (b *scriptBody) Read(p []byte) (int, error) {
	b.script.now = b.script.now.Add(b.lasts)
	b.lasts = 0
	return b.Reader.Read(p)
}

func (b *scriptBody) Close() error {
	b.closed = true
	return nil
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// RoundTrip implements http.RoundTripper.
func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	kind := "list "
	if r.URL.Query().Get("watch") == "true" {
		kind = "watch "
	}
	if len(s.steps) == 0 {
		s.cancel()
		return nil, context.Canceled
	}
	s.requests = append(s.requests, strings.TrimSpace(kind+r.URL.Query().Get("resourceVersion")))
	s.contexts, s.accepts = append(s.contexts, r.Context()), append(s.accepts, r.Header.Get("Accept"))
	s.queries = append(s.queries, r.URL.RawQuery)
	now := s.steps[0]
	s.steps = s.steps[1:]
	s.now = s.now.Add(now.begins)
	if now.err != nil {
		return nil, now.err
	}
	end := cmp.Or(now.cut, io.EOF)
	body := &scriptBody{Reader: io.MultiReader(strings.NewReader(now.text), failingReader{end}), script: s, lasts: now.lasts}
	s.bodies = append(s.bodies, body)
	return &http.Response{StatusCode: cmp.Or(now.status, http.StatusOK), Body: body, Request: r}, nil
}

func (s *script) clock() time.Time { return s.now }

func (s *script) sleep(_ context.Context, d time.Duration) {
	s.slept = append(s.slept, d)
	s.now = s.now.Add(d)
}

// options are those of an API server without encryption: it needs neither a token nor certificates.
func (s *script) options() APIOptions {
	return APIOptions{Node: "n1", Server: "http://api", Annotation: func(string) bool { return true },
		Jitter: func() float64 { return 0.5 }}
}

func newScript(steps ...step) *script { return &script{steps: steps, now: time.Unix(1e9, 0)} }

// watch returns a Watch of the script, which logs to log.
func (s *script) watch(log io.Writer) *Watch {
	w := NewWatch(s.options(), Options{Clock: s.clock, Logger: slog.New(slog.NewTextHandler(log, nil)), MaxAge: 5 * time.Minute})
	w.client = &http.Client{Transport: s}
	w.sleep = s.sleep
	return w
}

// run runs to the end of the script.
func (s *script) run(t *testing.T, run func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.cancel = cancel
	run(ctx)
	if len(s.steps) > 0 {
		t.Errorf("%d responses were not requested", len(s.steps))
	}
}

// When the watch of pods lists, continues or waits, and what counts as a failure.
func TestRetriesOfTheWatch(t *testing.T) {
	const ns = time.Nanosecond
	list := step{text: apiList("10", apiPod("a/p", "u", "7"))}
	broken := errors.New("connection reset by peer")
	event := func(kind, version string) string { return apiEvent(kind, apiPod("a/p", "u", version)) }
	s := func(seconds ...time.Duration) (out []time.Duration) {
		for _, d := range seconds {
			out = append(out, d*time.Second)
		}
		return out
	}
	for _, c := range []struct {
		name     string
		steps    []step
		requests []string // after the first list
		slept    []time.Duration
		errors   uint64
		message  string // empty: up
	}{
		{"a watch that ends after its time is followed at once", []step{list, {lasts: 5 * time.Minute}, {lasts: 5 * time.Minute}},
			[]string{"watch 10", "watch 10"}, nil, 0, ""},
		{"one that ends early is not", []step{list, {lasts: 2*time.Second - ns}}, []string{"watch 10"}, s(2), 0, ""},
		{"one that lasted for as long as a retry waits is", []step{list, {lasts: 2 * time.Second}}, []string{"watch 10"}, nil, 0, ""},
		{"a long watch that breaks is no failure", []step{list, {lasts: 10 * time.Second, cut: broken}, {lasts: time.Minute}},
			[]string{"watch 10", "watch 10"}, s(2), 0, ""},
		{"a shorter one is", []step{list, {lasts: 10*time.Second - ns, cut: broken}}, []string{"watch 10"}, s(2), 1,
			"http://api: read an event: connection reset by peer; using the response from 12s ago"},
		{"a server that does not respond to watches", []step{list, {lasts: time.Minute, cut: broken},
			{begins: 30 * time.Second, err: broken}, {begins: 30 * time.Second, err: broken}, {begins: 30 * time.Second, err: broken}},
			[]string{"watch 10", "watch 10", "watch 10", "watch 10"}, s(2, 2, 4, 8), 3,
			"http://api: connection reset by peer; using the response from 2m46s ago"},
		{"a watch that begins ends the failures", []step{list, {err: broken}, {err: broken}, {lasts: time.Minute, cut: broken},
			{err: broken}}, []string{"watch 10", "watch 10", "watch 10", "watch 10"}, s(2, 4, 2, 2), 3,
			"http://api: connection reset by peer; using the response from 1m4s ago"},
		{"a watch continues where it broke", []step{list, {lasts: time.Minute, text: event("MODIFIED", "12") + event("BOOKMARK", "13"),
			cut: broken}, {lasts: time.Minute}}, []string{"watch 10", "watch 13"}, s(2), 0, ""},
		{"a version is at most a name long", []step{list, {lasts: time.Minute, text: event("MODIFIED", strings.Repeat("1", 513))},
			{lasts: time.Minute, text: event("MODIFIED", strings.Repeat("2", 512))}, {lasts: time.Minute}},
			[]string{"watch 10", "watch 10", "watch " + strings.Repeat("2", 512)}, nil, 0, ""},
		{"an event without a version", []step{list, {lasts: time.Minute, text: apiEvent("BOOKMARK", `{}`)}, {lasts: time.Minute}},
			[]string{"watch 10", "watch 10"}, nil, 0, ""},
		{"a version that has expired: a list that is not the cache's", []step{list, {status: http.StatusGone, begins: 2 * time.Second},
			list, {lasts: time.Minute}}, []string{"watch 10", "list", "watch 10"}, nil, 0, ""},
		{"expired at once", []step{list, {status: http.StatusGone, begins: 2*time.Second - ns}, list}, []string{"watch 10", "list"},
			s(2), 0, ""},
		{"expired in an event", []step{list, {lasts: time.Minute, text: apiEvent("ERROR", `{"code":410}`)}, list},
			[]string{"watch 10", "list"}, nil, 0, ""},
		{"an uncached list that fails is repeated", []step{list, {status: http.StatusGone, begins: time.Minute}, {err: broken}, list},
			[]string{"watch 10", "list", "list"}, s(2), 1, ""},
		{"once listed, the cache is enough again", []step{list, {status: http.StatusGone, begins: time.Minute}, list,
			{lasts: time.Minute, text: apiEvent("ERROR", `{"code":500,"message":"etcd is gone"}`)}, list},
			[]string{"watch 10", "list", "watch 10", "list 0"}, s(2), 1, ""},
		{"an error in the watch is a failure, however long it lasted", []step{list, {lasts: time.Minute,
			text: apiEvent("ERROR", `{"code":500,"message":"etcd is gone"}`)}}, []string{"watch 10"}, s(2), 1,
			"http://api: the watch ended: etcd is gone; using the response from 1m2s ago"},
		{"so is a pod without a name", []step{list, {lasts: time.Minute, text: apiEvent("ADDED", `{}`)}}, []string{"watch 10"}, s(2), 1,
			"http://api: a pod without a name; using the response from 1m2s ago"},
		{"lists that fail are ever rarer", []step{{err: broken}, {err: broken}, {err: broken}, {err: broken}, {err: broken},
			{err: broken}, {err: broken}, {err: broken}}, []string{"list 0", "list 0", "list 0", "list 0", "list 0", "list 0", "list 0"},
			s(2, 4, 8, 16, 32, 60, 60, 60), 8, "http://api: connection reset by peer"},
		{"a list that is cut off", []step{{text: `{"metadata":{"resourceVersion":"1"},"items":[`}}, nil, s(2), 1,
			"http://api: read the list: EOF"},
		{"no JSON", []step{{text: `<html>`}}, nil, s(2), 1,
			"http://api: read the list: invalid character '<' looking for beginning of value"},
		{"a list without a version", []step{{text: `{"items":[]}`}}, nil, s(2), 1, "http://api: read the list: the list has no version"},
		{"a list of a pod without a name", []step{{text: apiList("1", "{}")}}, nil, s(2), 1,
			"http://api: read the list: a pod without a name"},
		{"a huge event", []step{list, {text: apiEvent("ADDED", apiPod("a/p", "u", "2", "x="+strings.Repeat("x", maxEvent)))}},
			[]string{"watch 10"}, s(2), 1, "http://api: read an event: a value of more than 4 MiB; using the response from 2s ago"},
		{"however long they take", []step{{begins: time.Minute, err: broken}, {begins: time.Minute, err: broken}}, []string{"list 0"},
			s(2, 4), 2, "http://api: connection reset by peer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := newScript(c.steps...)
			w := script.watch(io.Discard)
			script.run(t, w.Run)
			if got := script.requests; got[0] != "list 0" || !slices.Equal(got[1:], c.requests) {
				t.Errorf("requests %q, want %q", got, c.requests)
			}
			if !slices.Equal(script.slept, c.slept) {
				t.Errorf("slept %v, want %v", script.slept, c.slept)
			}
			if s := w.Source(); s.Errors != c.errors || s.Up != (c.message == "") || s.Message != c.message {
				t.Errorf("%+v, want %d errors and %q", s, c.errors, c.message)
			}
		})
	}
}

// Without failures metadata is current, however long nothing has changed; after one it is used for MaxAge.
func TestAgeOfPods(t *testing.T) {
	for _, c := range []struct {
		fails bool
		after time.Duration
		used  bool
	}{{false, 24 * time.Hour, true}, {true, 5 * time.Minute, true}, {true, 5*time.Minute + 1, false}} {
		s := newScript(step{text: apiList("10", apiPod("a/p", "u", "7"))})
		if c.fails {
			s.steps = append(s.steps, step{err: errors.New("refused")})
		}
		w := s.watch(io.Discard)
		if w.Pods() != nil || w.Attempted() {
			t.Error("pods before the first list")
		}
		s.run(t, w.Run)
		s.now = time.Unix(1e9, 0).Add(c.after)
		if used := w.Pods() != nil; used != c.used || !w.Attempted() {
			t.Errorf("%+v: used %v", c, used)
		}
	}
	s := newScript(step{err: errors.New("refused")})
	if w := s.watch(io.Discard); w.Source().Message != "no response from the API server yet" || w.Source().Up {
		t.Errorf("%+v", w.Source())
	} else if s.run(t, w.Run); !w.Attempted() || w.Pods() != nil {
		t.Error("a failure is an attempt")
	}
}

// A failure is logged when it is new, and its end once.
func TestLogOfTheWatch(t *testing.T) {
	refused, reset := errors.New("refused"), errors.New("reset")
	s := newScript(step{err: refused}, step{err: refused}, step{err: reset}, step{text: apiList("10")}, step{lasts: time.Minute})
	var log strings.Builder
	s.run(t, s.watch(&log).Run)
	var got []string
	for line := range strings.Lines(log.String()) {
		_, line, _ = strings.Cut(line, "level=")
		got = append(got, strings.TrimSpace(line))
	}
	if want := []string{`WARN msg="cannot watch pods" err="http://api: refused"`,
		`WARN msg="cannot watch pods" err="http://api: reset"`,
		`INFO msg="pods watched again" after_failures=3`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Every list and every event that changes the pods is announced, after it can be read.
func TestChangesOfPods(t *testing.T) {
	s := newScript(step{text: apiList("1", apiPod("a/p", "u", "1"))}, step{lasts: time.Minute, text: apiEvent("ADDED", apiPod("a/q", "v",
		"2")) +
		apiEvent("BOOKMARK", apiPod("a/x", "x", "3")) + apiEvent("LATER", apiPod("a/x", "x", "4")) +
		apiEvent("MODIFIED", apiPod("a/q", "w", "5")) + apiEvent("DELETED", apiPod("a/p", "u", "6"))})
	w := s.watch(io.Discard)
	var got []string
	w.api.Changed = func() {
		var names []string
		for _, name := range w.Pods().Names() {
			names = append(names, name.Pod+":"+w.Pods().Get(name).UID)
		}
		got = append(got, strings.Join(names, " "))
	}
	s.run(t, w.Run)
	if want := []string{"p:u", "p:u q:v", "p:u q:w", "q:w"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if q := w.Pods().Get(gpu.PodName{Namespace: "a", Pod: "q"}); q.OwnerKind != "ReplicaSet" || q.OwnerName != "web-5d4f" {
		t.Errorf("%+v", q)
	}
}

// A pod that is known keeps the time at which it was first listed; one of the first list started at an unknown time, and
// one of the same name with another UID is another pod.
func TestSinceOfPods(t *testing.T) {
	s := newScript(step{text: apiList("1", apiPod("a/old", "u", "1"), apiPod("a/same", "v", "1"))},
		step{begins: time.Minute, text: apiEvent("ADDED", apiPod("a/new", "w", "2")), lasts: time.Minute},
		step{text: apiEvent("MODIFIED", apiPod("a/new", "w", "3")) + apiEvent("MODIFIED", apiPod("a/old", "u", "4")) +
			apiEvent("ADDED", apiPod("a/same", "x", "5")), lasts: time.Minute})
	start := s.now
	w := s.watch(io.Discard)
	s.run(t, w.Run)
	for pod, want := range map[string]gpu.Opt[time.Time]{"old": {}, "new": gpu.Some(start.Add(2 * time.Minute)),
		"same": gpu.Some(start.Add(3 * time.Minute))} {
		if got := w.Pods().Get(gpu.PodName{Namespace: "a", Pod: pod}); got == nil || got.Since != want {
			t.Errorf("%s: %+v, want since %v", pod, got, want)
		}
	}
}

// Requests select the node, are for metadata only, end by themselves, and leave nothing open.
func TestRequestsOfTheWatch(t *testing.T) { synctest.Test(t, requestsOfTheWatch) }

func requestsOfTheWatch(t *testing.T) {
	s := newScript(step{begins: time.Second, lasts: 2 * time.Second, text: apiList("10")}, step{status: http.StatusGone}, step{text: `{`},
		step{text: apiList("11")}, step{text: `{`})
	w := s.watch(io.Discard)
	var deadlines []time.Duration
	w.client.Transport = observer{s, func(r *http.Request) {
		at, _ := r.Context().Deadline()
		deadlines = append(deadlines, time.Until(at).Round(time.Second))
		if r.Header.Get("User-Agent") != "gpu-exporter" || r.Header.Get("Authorization") != "" || r.URL.Path != "/api/v1/pods" {
			t.Errorf("%+v", r)
		}
	}}
	first := true
	w.sleep = func(ctx context.Context, d time.Duration) {
		if s.sleep(ctx, d); first {
			if first = false; w.Source().Duration != gpu.Some(3*time.Second) {
				t.Errorf("the list took %v", w.Source().Duration)
			}
		}
	}
	s.run(t, w.Run)
	const node = "fieldSelector=spec.nodeName%3Dn1%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
	// A watch lasts for five to ten minutes, half of the difference by this jitter; the request is given up 30 s later.
	watch := func(version string) string {
		return "allowWatchBookmarks=true&" + node + "&resourceVersion=" + version + "&timeoutSeconds=450&watch=true"
	}
	if want := []string{node + "&resourceVersion=0", watch("10"), node, node, watch("11")}; !slices.Equal(s.queries, want) {
		t.Errorf("queries %q, want %q", s.queries, want)
	}
	if want := []string{acceptList, acceptWatch, acceptList, acceptList, acceptWatch}; !slices.Equal(s.accepts, want) {
		t.Errorf("accepted %q", s.accepts)
	}
	if want := []time.Duration{30 * time.Second, 480 * time.Second, 30 * time.Second, 30 * time.Second, 480 * time.Second,
		480 * time.Second}; !slices.Equal(deadlines, want) {
		t.Errorf("deadlines %v", deadlines)
	}
	for i := range s.bodies {
		if !s.bodies[i].closed || s.contexts[i].Err() == nil {
			t.Errorf("%s: closed %v, %v", s.requests[i], s.bodies[i].closed, s.contexts[i].Err())
		}
	}
}

// observer looks at each request on its way.
type observer struct {
	http.RoundTripper
	look func(*http.Request)
}

func (o observer) RoundTrip(r *http.Request) (*http.Response, error) {
	o.look(r)
	return o.RoundTripper.RoundTrip(r)
}

// Without a test's own, waiting is by the clock of the system, and ends with the context.
func TestWaitingBetweenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		sleepUntil(t.Context(), time.Minute)
		if d := time.Since(start); d != time.Minute {
			t.Errorf("slept %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if sleepUntil(ctx, time.Minute); time.Since(start) != time.Second {
			t.Errorf("slept %v after the end", time.Since(start))
		}
		for _, run := range []func(*script) func(context.Context){
			func(s *script) func(context.Context) {
				w := NewWatch(s.options(), Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
				w.client = &http.Client{Transport: s}
				return w.Run
			},
			func(s *script) func(context.Context) {
				l := NewSliceLister(s.options(), Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
				l.client = &http.Client{Transport: s}
				return l.Run
			}} {
			s := newScript(step{err: errors.New("refused")}, step{err: errors.New("refused")})
			start := time.Now()
			s.run(t, run(s))
			if d := time.Since(start); d != 6*time.Second { // two seconds, then four
				t.Errorf("retried after %v", d)
			}
		}
	})
}

// What is kept of a pod's metadata.
func TestMetadataOfAPod(t *testing.T) {
	w := NewWatch(APIOptions{Annotation: func(name string) bool { return name == "kept" }}, Options{Clock: time.Now})
	o := object("n", "p", map[string]string{"kept": "x", "other": "y", "kubernetes.io/config.hash": "static"})
	if p := w.pod(o); p.UID != "u" || len(p.Annotations) != 1 || p.Annotations["kept"] != "x" || p.OwnerKind != "" || p.OwnerName != "" {
		t.Errorf("a hash alone makes no static pod: %+v", p)
	}
	o.Metadata.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
	if p := w.pod(o); p.UID != "u" || p.Annotations != nil {
		t.Errorf("nor does a mirror: %+v", p)
	}
	// A static pod goes by the kubelet's UID for it, which its mirror pod has.
	o.Metadata.Annotations["kubernetes.io/config.hash"] = "static"
	if p := w.pod(o); p.UID != "static" {
		t.Errorf("a static pod: %+v", p)
	}
	for n, kept := range map[int]int{0: 0, 1: 1, maxLabels: maxLabels, maxLabels + 1: 0} {
		o.Metadata.Labels = map[string]string{}
		for i := range n {
			o.Metadata.Labels[fmt.Sprint(i)] = "x"
		}
		if p := w.pod(o); len(p.Labels) != kept {
			t.Errorf("%d of %d labels are kept", len(p.Labels), n)
		}
	}
}

// A name is at most 512 bytes, and a pod that is listed again takes no other place.
func TestBoundsOfPods(t *testing.T) {
	long := strings.Repeat("x", maxName)
	w := NewWatch(APIOptions{}, Options{Clock: time.Now})
	for _, c := range []struct {
		namespace, name string
		valid           bool
	}{{"a", "p", true}, {"", "p", false}, {"a", "", false}, {long, long, true}, {long + "x", "p", false}, {"a", long + "x", false}} {
		table := NewPods(map[gpu.PodName]*Pod{})
		if err := w.put(table, nil, object(c.namespace, c.name, nil)); (err == nil) != c.valid || c.valid != (len(table.byName) == 1) {
			t.Errorf("%d and %d bytes: %v", len(c.namespace), len(c.name), err)
		}
	}
	table := NewPods(map[gpu.PodName]*Pod{})
	for i := range maxPods {
		if err := w.put(table, nil, object("a", fmt.Sprint(i), nil)); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := w.put(table, nil, object("a", "0", nil)); err != nil {
		t.Errorf("a pod that is there: %v", err)
	}
	if err := w.put(table, nil, object("a", "new", nil)); err == nil || err.Error() != "more than 4096 pods on one node" {
		t.Errorf("one more: %v", err)
	}
	// An event before any list has nothing to add to.
	if table, err := w.apply("DELETED", object("a", "p", nil)); err != nil || len(table.Names()) != 0 {
		t.Errorf("%v, %v", table.Names(), err)
	}
}

func TestNoPods(t *testing.T) {
	var none *Pods
	if none.Names() != nil || none.Get(gpu.PodName{}) != nil {
		t.Error("pods of no table")
	}
}
