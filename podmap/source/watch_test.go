package source

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// apiServer is an API server that responds with what the test has put in it.
type apiServer struct {
	*httptest.Server
	ca, token string // files

	mu       sync.Mutex
	accepted string // the token
	list     func(w http.ResponseWriter, r *http.Request)
	watches  []func(w http.ResponseWriter, r *http.Request) // one per watch; then one that never ends
	requests []string                                       // "list" and "watch VERSION"
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{accepted: "secret"}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	a.EnableHTTP2 = true
	a.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.StartTLS()
	t.Cleanup(a.Close)
	dir := t.TempDir()
	a.ca, a.token = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	for file, data := range map[string][]byte{a.ca: cert, a.token: []byte("secret\n")} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func (a *apiServer) options() APIOptions {
	return APIOptions{Node: "n1", Server: a.URL + "/", TokenFile: a.token, CAFile: a.ca,
		Annotation: func(name string) bool { return name != "other" }, Jitter: func() float64 { return 0.5 }}
}

func (a *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	q := r.URL.Query()
	refuse := func(code int, text string) {
		a.mu.Unlock()
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","code":%d,"message":%q}`, code, text)
	}
	watching := q.Get("watch") == "true"
	accept := acceptList
	if watching {
		accept = acceptWatch
	}
	if version, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/apis/resource.k8s.io/"), "/resourceslices"); ok {
		a.requests = append(a.requests, "slices "+version+" "+q.Get("fieldSelector"))
		if version != "v1beta1" {
			refuse(404, "not found")
			return
		}
		a.mu.Unlock()
		a.list(w, r)
		return
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+a.accepted:
		refuse(401, "Unauthorized")
		return
	case r.Method != http.MethodGet || r.URL.Path != "/api/v1/pods" || r.Header.Get("Accept") != accept:
		refuse(400, "unexpected "+r.Method+" "+r.URL.Path+" "+r.Header.Get("Accept"))
		return
	case q.Get("fieldSelector") != "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed":
		refuse(403, "the whole cluster's pods")
		return
	}
	handle := a.list
	if watching {
		a.requests = append(a.requests, "watch "+q.Get("resourceVersion"))
		handle = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		if len(a.watches) > 0 {
			handle, a.watches = a.watches[0], a.watches[1:]
		}
	} else {
		a.requests = append(a.requests, strings.TrimSpace("list "+q.Get("resourceVersion")))
	}
	a.mu.Unlock()
	handle(w, r)
}

func (a *apiServer) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

// respond sends a text.
func respond(text ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Join(text, "\n")) }
}

// apiPod renders a pod's metadata; words are "label:k=v" and "k=v" for annotations.
func apiPod(name, uid, version string, words ...string) string {
	namespace, name, _ := strings.Cut(name, "/")
	labels, annotations := map[string]string{}, map[string]string{}
	for _, word := range words {
		k, v, _ := strings.Cut(strings.TrimPrefix(word, "label:"), "=")
		if strings.HasPrefix(word, "label:") {
			labels[k] = v
		} else {
			annotations[k] = v
		}
	}
	out, _ := json.Marshal(map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{
		"namespace": namespace, "name": name, "uid": uid, "resourceVersion": version, "labels": labels, "annotations": annotations,
		"managedFields": []any{map[string]any{"manager": "kubelet", "fieldsV1": map[string]any{"f:status": map[string]any{}}}},
		"ownerReferences": []any{map[string]any{"kind": "Node", "name": "n1"},
			map[string]any{"kind": "ReplicaSet", "name": "web-5d4f", "controller": true}}}})
	return string(out)
}

func apiList(version string, pods ...string) string {
	return `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"` + version + `"},"items":[` + strings.Join(pods, ",") + `]}`
}

func apiEvent(kind, object string) string { return `{"type":"` + kind + `","object":` + object + `}` }

// watching runs a watch; every sleep is handed to the test, which lets it go on by answering.
type watching struct {
	*Watch
	now    *safeClock
	sleeps chan time.Duration
	stop   func()
}

func (a *apiServer) watching(t *testing.T, o APIOptions) *watching {
	t.Helper()
	w := &watching{now: &safeClock{now: time.Unix(1e9, 0)}, sleeps: make(chan time.Duration)}
	w.Watch = NewWatch(o, Options{Clock: w.now.time, Logger: slog.New(slog.DiscardHandler), MaxAge: 5 * time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	w.sleep = func(ctx context.Context, d time.Duration) {
		select {
		case w.sleeps <- d:
		case <-ctx.Done():
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	w.stop = func() { cancel(); <-done }
	t.Cleanup(w.stop)
	return w
}

// safeClock is a clock that a watch may look at while the test moves it.
type safeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *safeClock) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *safeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// asleep waits until the watch has something to wait for.
func (w *watching) asleep(t *testing.T) time.Duration {
	t.Helper()
	select {
	case d := <-w.sleeps:
		return d
	case <-time.After(10 * time.Second):
		t.Fatalf("the watch does not come to rest: %+v", w.Source())
		return 0
	}
}

// names renders a table: "namespace/name uid annotations".
func (w *watching) names() string {
	var out []string
	for _, name := range w.Pods().Names() {
		p := w.Pods().Get(name)
		out = append(out, fmt.Sprintf("%s/%s %s %d", name.Namespace, name.Pod, p.UID, len(p.Annotations)))
	}
	return strings.Join(out, ", ")
}

func TestListAndWatch(t *testing.T) {
	a := newAPIServer(t)
	a.list = respond(apiList("10", apiPod("a/p", "u1", "7", "label:app=web", "hami.io/vgpu-devices-allocated=x", "other=y"),
		apiPod("a/q", "u2", "8")))
	a.watches = []func(http.ResponseWriter, *http.Request){
		respond(apiEvent("ADDED", apiPod("b/r", "u3", "11", "gpu-fraction=0.5")),
			apiEvent("MODIFIED", apiPod("a/q", "u2", "12", "gpu-fraction=0.5")),
			apiEvent("DELETED", apiPod("a/p", "u1", "13")),
			apiEvent("BOOKMARK", `{"metadata":{"resourceVersion":"20"}}`),
			apiEvent("FUTURE", `{"metadata":{"resourceVersion":"21"}}`)),
		respond(apiEvent("MODIFIED", apiPod("b/r", "u4", "22"))),
	}
	w := a.watching(t, a.options())
	// Each watch ends at once, and is not opened again at once.
	if d := w.asleep(t); d != firstRetry {
		t.Errorf("slept %s", d)
	}
	w.asleep(t)
	if got, want := w.names(), "a/q u2 1, b/r u4 0"; got != want {
		t.Errorf("pods %q, want %q", got, want)
	}
	if got, want := a.seen()[:3], []string{"list 0", "watch 10", "watch 21"}; !slices.Equal(got, want) {
		t.Errorf("requests %q", got)
	}
	if s := w.Source(); !s.Up || s.Name != "api" || s.Message != "" || s.Errors != 0 || !s.LastSuccess.Present() || !s.Duration.Present() {
		t.Errorf("health %+v", s)
	}
	q := w.Pods().Get(gpu.PodName{Namespace: "a", Pod: "q"})
	if !w.Pods().Get(gpu.PodName{Namespace: "b", Pod: "r"}).Since.Present() || q.Since.Present() {
		t.Error("the pods of the first list started before; those that came later did not")
	}
	if q.OwnerKind != "ReplicaSet" || q.OwnerName != "web-5d4f" {
		t.Errorf("%+v", q)
	}
}

// A server that is replaced closes its watches. That is a failure only if no other watch starts.
func TestClosedWatch(t *testing.T) {
	begun, cut := make(chan struct{}), make(chan struct{})
	hold := func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		begun <- struct{}{}
		<-cut
		panic(http.ErrAbortHandler)
	}
	a := newAPIServer(t)
	a.list = respond(apiList("10", apiPod("a/p", "u1", "7")))
	a.watches = []func(http.ResponseWriter, *http.Request){hold, hold}
	w := a.watching(t, a.options())
	<-begun
	w.now.advance(time.Minute)
	cut <- struct{}{}
	if d := w.asleep(t); d != firstRetry {
		t.Errorf("slept %s", d)
	}
	if s := w.Source(); !s.Up || s.Errors != 0 || s.Message != "" {
		t.Errorf("a long watch was closed: %+v", s)
	}
	<-begun
	cut <- struct{}{} // at once this time
	w.asleep(t)
	if s := w.Source(); s.Up || s.Errors != 1 || s.Message == "" {
		t.Errorf("a short watch was closed: %+v", s)
	}
	if got, want := a.seen()[:3], []string{"list 0", "watch 10", "watch 10"}; !slices.Equal(got, want) {
		t.Errorf("requests %q", got)
	}
}

func TestExpiredVersion(t *testing.T) {
	for name, expired := range map[string]func(http.ResponseWriter, *http.Request){
		"in an event": respond(apiEvent("ERROR", `{"kind":"Status","code":410,"message":"too old resource version"}`)),
		"at once": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusGone)
			io.WriteString(w, `{"kind":"Status","code":410,"message":"Expired"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t)
			a.list = respond(apiList("10", apiPod("a/p", "u1", "7")))
			a.watches = append(a.watches, expired, respond())
			w := a.watching(t, a.options())
			w.asleep(t)
			w.asleep(t)
			// The second list is not the server's cache.
			if got, want := a.seen()[:4], []string{"list 0", "watch 10", "list", "watch 10"}; !slices.Equal(got, want) {
				t.Errorf("requests %q", got)
			}
			if s := w.Source(); !s.Up || s.Errors != 0 {
				t.Errorf("that is no failure: %+v", s)
			}
		})
	}
}

func TestTheTokenIsRefusedAndRotated(t *testing.T) {
	a := newAPIServer(t)
	a.list = respond(apiList("10", apiPod("a/p", "u1", "7")))
	a.watches = append(a.watches, respond())
	w := a.watching(t, a.options())
	w.asleep(t)
	a.mu.Lock()
	a.accepted = "rotated"
	a.watches = append(a.watches, respond(apiEvent("DELETED", apiPod("a/p", "u1", "11"))))
	a.mu.Unlock()
	for i, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
		if d := w.asleep(t); d != want*time.Second {
			t.Errorf("slept %s after %d refusals", d, i+1)
		}
	}
	w.now.advance(time.Minute)
	s := w.Source()
	if s.Up || s.Errors < 7 || !strings.Contains(s.Message, "token refused") ||
		!strings.Contains(s.Message, "using the response from 1m0s ago") {
		t.Errorf("health %+v", s)
	}
	if w.names() != "a/p u1 0" {
		t.Errorf("pods %q", w.names())
	}
	w.now.advance(5 * time.Minute)
	if s := w.Source(); w.Pods() != nil || !strings.Contains(s.Message, "no longer used") {
		t.Errorf("too old, and used: %+v", s)
	}
	if err := os.WriteFile(a.token, []byte("rotated"), 0o600); err != nil {
		t.Fatal(err)
	}
	for !w.Source().Up || w.names() != "" {
		select {
		case <-w.sleeps:
		case <-time.After(time.Millisecond): // the last watch has nothing to wait for
		case <-t.Context().Done():
			t.Fatalf("pods %q, %+v", w.names(), w.Source())
		}
	}
}

func TestInvalidResponses(t *testing.T) {
	long := strings.Repeat("x", maxEvent)
	for _, c := range []struct {
		name    string
		list    func(http.ResponseWriter, *http.Request)
		watch   func(http.ResponseWriter, *http.Request)
		options func(*APIOptions)
		message string
	}{
		{name: "forbidden", list: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			io.WriteString(w, `{"message":"pods is forbidden"}`)
		}, message: "grant the service account list and watch on pods"},
		{name: "whole pods alone", list: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(406) },
			message: "whole pods are not requested"},
		{name: "overloaded", list: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429); io.WriteString(w, "slow\ndown") },
			message: "HTTP 429: slow down"},
		{name: "sent elsewhere", list: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example/", http.StatusFound)
		}, message: "HTTP 302"},
		{name: "cut off", list: respond(`{"metadata":{"resourceVersion":"1"},"items":[`), message: "read the list: "},
		{name: "not JSON", list: respond(`<html>`), message: "read the list: "},
		{name: "no version", list: respond(`{"items":[]}`), message: "the list has no version"},
		{name: "a pod without a name", list: respond(`{"metadata":{"resourceVersion":"1"},"items":[{}]}`), message: "a pod without a name"},
		{name: "a huge event", list: respond(apiList("1")), watch: respond(apiEvent("ADDED", apiPod("a/p", "u", "2", "x="+long))),
			message: "a value of more than 4 MiB"},
		{name: "an event that is none", list: respond(apiList("1")), watch: respond(`[]`), message: "read an event: "},
		{name: "an error in the watch", list: respond(apiList("1")),
			watch:   respond(apiEvent("ERROR", `{"code":500,"message":"etcd is gone"}`)),
			message: "the watch ended: etcd is gone"},
		{name: "no node", list: respond(apiList("1")), options: func(o *APIOptions) { o.Node = "" }, message: "node name is not set"},
		{name: "no server", list: respond(apiList("1")), options: func(o *APIOptions) { o.Server = "" }, message: "API server is not set"},
		{name: "no token", list: respond(apiList("1")), options: func(o *APIOptions) { o.TokenFile += ".gone" },
			message: "mount the token"},
		{name: "no CA", list: respond(apiList("1")), options: func(o *APIOptions) { o.CAFile += ".gone" }, message: "no such file"},
		{name: "a CA that is none", list: respond(apiList("1")), options: func(o *APIOptions) { o.CAFile = o.TokenFile },
			message: "has no certificate"},
		{name: "a token in the clear", list: respond(apiList("1")),
			options: func(o *APIOptions) { o.Server = strings.Replace(o.Server, "https:", "http:", 1) }, message: "HTTP 400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			a := newAPIServer(t)
			a.list = c.list
			if c.watch != nil {
				a.watches = append(a.watches, c.watch)
				// What is looked at is the time after the watch: another list would end it.
				lists := 0
				a.list = func(w http.ResponseWriter, r *http.Request) {
					if lists++; lists > 1 {
						<-r.Context().Done()
						return
					}
					c.list(w, r)
				}
			}
			o := a.options()
			if c.options != nil {
				c.options(&o)
			}
			w := a.watching(t, o)
			w.asleep(t)
			if s := w.Source(); s.Up || s.Errors == 0 || !strings.Contains(s.Message, c.message) || strings.ContainsAny(s.Message, "\n\r") {
				t.Errorf("health %+v, want a message with %q", s, c.message)
			}
			if strings.Contains(w.Source().Message, "secret") {
				t.Error("the token is in the message")
			}
		})
	}
}

func TestTheServerOfThisCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "6443")
	w := NewWatch(APIOptions{}, Options{})
	if o := w.api; o.Server != "https://[fd00::1]:6443" || o.TokenFile != DefaultTokenFile || o.CAFile != DefaultCAFile {
		t.Errorf("%+v", o)
	}
}

func object(namespace, name string, annotations map[string]string) *apiObject {
	o := &apiObject{}
	o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID, o.Metadata.Annotations = namespace, name, "u", annotations
	return o
}

// A static pod goes by the kubelet's UID for it, which its mirror pod has.
func TestStaticPods(t *testing.T) {
	w := NewWatch(APIOptions{Annotation: func(string) bool { return false }}, Options{Clock: time.Now})
	got := w.pod(object("kube-system", "p-n1", map[string]string{
		"kubernetes.io/config.hash": "0123456789abcdef0123456789abcdef", "kubernetes.io/config.mirror": "x"}))
	if got.UID != "0123456789abcdef0123456789abcdef" {
		t.Errorf("UID %q", got.UID)
	}
}

func TestMorePodsThanANodeHas(t *testing.T) {
	w := NewWatch(APIOptions{}, Options{Clock: time.Now})
	table := NewPods(map[gpu.PodName]*Pod{})
	var err error
	for i := 0; err == nil && i <= maxPods+1; i++ {
		err = w.put(table, nil, object("a", fmt.Sprint(i), nil))
	}
	if err == nil || len(table.byName) != maxPods {
		t.Errorf("%d pods, %v", len(table.byName), err)
	}
}

// A local proxy of the API server is spoken to in the clear, and gets no token.
func TestNoTokenInTheClear(t *testing.T) {
	token := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token <- r.Header.Get("Authorization")
		io.WriteString(w, apiList("1", apiPod("a/p", "u", "1")))
	}))
	defer server.Close()
	a := newAPIServer(t)
	o := a.options()
	o.Server, o.CAFile = server.URL, "/nowhere"
	w := NewWatch(o, Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if version, err := w.list(t.Context()); err != nil || version != "1" {
		t.Fatal(version, err)
	}
	if got := <-token; got != "" {
		t.Errorf("sent %q", got)
	}
	w.client.CloseIdleConnections()
}

// FuzzAPI reads any list and any event.
func FuzzAPI(f *testing.F) {
	f.Add([]byte(apiPod("a/p", "u", "1", "label:runai-gpu-group=g", "hami.io/vgpu-devices-allocated=x")))
	f.Add([]byte(`{"metadata":{"name":"p","namespace":"n","labels":null,"ownerReferences":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var o apiObject
		if json.Unmarshal(data, &o) != nil {
			return
		}
		w := NewWatch(APIOptions{Annotation: func(string) bool { return true }}, Options{Clock: time.Now})
		for _, kind := range []string{"ADDED", "DELETED"} {
			table, err := w.apply(kind, &o)
			if err != nil {
				continue
			}
			for _, name := range table.Names() {
				p := table.Get(name)
				if name.Pod == "" || len(p.Labels) > maxLabels || len(p.Annotations) > maxItems {
					t.Fatalf("%+v %+v", name, p)
				}
			}
		}
	})
}

func TestWithout(t *testing.T) {
	for _, c := range []struct{ text, secret, want string }{
		{"not with Bearer abcdefghij, abcdefghij", "abcdefghij", "not with Bearer [token], [token]"},
		{"cut off at abcdefgh", "abcdefghij", "cut off at [token]"},
		{"cut off at abcdefghi", "abcdefghij", "cut off at [token]"},
		{"cut off at abcdefg", "abcdefghij", "cut off at abcdefg"},
		{"nothing of it", "abcdefghij", "nothing of it"},
		{"no token", "", "no token"},
	} {
		if got := without(c.text, c.secret); got != c.want {
			t.Errorf("%q without %q is %q, want %q", c.text, c.secret, got, c.want)
		}
	}
}
