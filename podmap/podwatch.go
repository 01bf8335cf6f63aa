package podmap

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The paths at which a pod finds what its service account may show.
const (
	DefaultTokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	DefaultCAFile    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// APIOptions say how the pods of this node are watched: their metadata alone, by one request that names the
// node. It takes a ClusterRole with list and watch on pods, and nothing else.
type APIOptions struct {
	// Node is the name of this node as the API server knows it. It is required.
	Node string
	// Server is the URL of the API server; by default that of the cluster which this pod runs in.
	Server string
	// TokenFile and CAFile are read anew for every request, for both are replaced while the pod runs; by
	// default those of the pod's service account.
	TokenFile, CAFile string
	// MaxAge is how long the last answer is used when no other comes; by default that of Options.
	MaxAge time.Duration
}

const (
	// mostPods bounds the pods of a node; Kubernetes supports 110 to some hundreds.
	mostPods = 4096
	// mostListBytes and mostEventBytes bound a list and one event. An object has at most 1.5 MiB.
	mostListBytes  = 64 << 20
	mostEventBytes = 4 << 20
	// mostLabels bounds the labels of a pod that are kept.
	mostLabels = 128
	// listTimeout is the deadline of a list; watchLength is how long the server is asked to go on with a watch,
	// spread so that the nodes of a cluster do not come back together.
	listTimeout = 30 * time.Second
	watchLength = 5 * time.Minute
	// longestRetry bounds the mean delay after failures.
	longestRetry = time.Minute
	// steady is how long a watch holds whose end tells nothing of the next one.
	steady = 10 * time.Second
)

// The forms in which metadata is asked for. A server that does not know them refuses; it never sends whole pods.
const (
	acceptList  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	acceptWatch = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// errGone says that the place at which a watch was to go on is forgotten: list again.
var errGone = errors.New("the server has forgotten where the watch was")

// podWatch keeps the metadata of this node's pods. Its methods are safe for concurrent use, but for run.
type podWatch struct {
	options APIOptions
	clock   func() time.Time
	jitter  func() float64
	log     *slog.Logger
	sleep   func(context.Context, time.Duration) // until then, or the end

	// Only run touches these.
	client *http.Client
	ca     []byte
	gone   bool // the next list has to be newer than the server's cache

	mu       sync.Mutex // guards what follows
	table    *podTable  // nil before the first list
	at       time.Time  // when table was last known to be right
	failures int
	errors   uint64
	problem  string
	duration gpu.Opt[time.Duration]
}

func newPodWatch(o APIOptions, clock func() time.Time, jitter func() float64, log *slog.Logger) *podWatch {
	o.TokenFile = cmp.Or(o.TokenFile, DefaultTokenFile)
	o.CAFile = cmp.Or(o.CAFile, DefaultCAFile)
	o.MaxAge = positive(o.MaxAge, DefaultMaxAge)
	if host := os.Getenv("KUBERNETES_SERVICE_HOST"); o.Server == "" && host != "" {
		o.Server = "https://" + net.JoinHostPort(host, cmp.Or(os.Getenv("KUBERNETES_SERVICE_PORT"), "443"))
	}
	o.Server = strings.TrimSuffix(o.Server, "/")
	return &podWatch{options: o, clock: clock, jitter: jitter, log: log, sleep: sleepUntil}
}

func sleepUntil(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// run lists and watches until ctx ends.
func (w *podWatch) run(ctx context.Context) {
	version := ""
	for ctx.Err() == nil {
		began := w.clock()
		var next string
		var err error
		if version == "" {
			next, err = w.list(ctx)
		} else {
			next, err = w.watch(ctx, version)
		}
		if ctx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, errGone):
			w.gone, version = true, ""
			if w.clock().Sub(began) < firstRetry {
				w.sleep(ctx, w.delay(1))
			}
		case err != nil && version != "" && next != "" && w.clock().Sub(began) >= steady && w.source().Up:
			// So ends a watch whose server is replaced, or whose connection somebody closes that stands between: no
			// failure as long as the next one begins.
			version = next
			w.sleep(ctx, w.delay(1))
		case err != nil:
			// A watch that broke goes on where it was.
			version = next
			w.sleep(ctx, w.delay(w.failed(err)))
		case version != "" && w.clock().Sub(began) < firstRetry:
			// A server that ends watches at once is not asked in a circle.
			version = next
			w.sleep(ctx, w.delay(1))
		default:
			version = next
		}
	}
}

// delay is the time to the next attempt after so many failures, spread by half to both sides.
func (w *podWatch) delay(failures int) time.Duration {
	mean := firstRetry
	for i := 1; i < failures && mean < longestRetry; i++ {
		mean *= 2
	}
	mean = min(mean, longestRetry)
	return mean/2 + time.Duration(w.jitter()*float64(mean))
}

func (w *podWatch) failed(err error) (failures int) {
	problem := w.explain(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if problem != w.problem {
		w.log.Warn("cannot watch this node's pods", "problem", problem)
	}
	w.errors++
	w.failures++
	w.problem = problem
	return w.failures
}

// succeeded takes over a table that is right now; nil keeps the one that is there.
func (w *podWatch) succeeded(table *podTable) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.problem != "" {
		w.log.Info("this node's pods are watched again", "after_failures", w.failures)
	}
	w.failures, w.problem, w.at = 0, "", w.clock()
	if table != nil {
		w.table = table
	}
}

// pods is the metadata as it was last known, nil before that and when it is too old.
func (w *podWatch) pods() *podTable {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failures > 0 && w.clock().Sub(w.at) > w.options.MaxAge {
		return nil
	}
	return w.table
}

// asked tells whether the API server was reached, or at least tried, once.
func (w *podWatch) asked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.table != nil || w.failures > 0
}

// source is the health of the watch.
func (w *podWatch) source() gpu.Source {
	w.mu.Lock()
	defer w.mu.Unlock()
	src := gpu.Source{Name: SourceAPI, Up: w.failures == 0 && w.table != nil, Errors: w.errors, Duration: w.duration, Message: w.problem}
	if w.table != nil {
		src.LastSuccess = gpu.Some(w.at)
	}
	age := max(w.clock().Sub(w.at), 0).Round(time.Second)
	switch {
	case src.Up:
	case w.failures == 0:
		src.Message = "the API server has not answered yet"
	case w.table == nil:
	case age > w.options.MaxAge:
		src.Message += fmt.Sprintf("; the last answer is %s old and no longer used", age)
	default:
		src.Message += fmt.Sprintf("; using the answer of %s ago", age)
	}
	return src
}

// apiObject is the metadata of a pod, or the Status that stands in its place.
type apiObject struct {
	Code     int
	Message  string
	Metadata struct {
		Name, Namespace, UID, ResourceVersion string
		Labels, Annotations                   map[string]string
		OwnerReferences                       []struct {
			Kind, Name string
			Controller bool
		}
	}
}

// meta keeps what is of use.
func (o *apiObject) meta(since gpu.Opt[time.Time]) *podMeta {
	p := &podMeta{uid: strings.Clone(o.Metadata.UID), since: since}
	// The kubelet calls a static pod by another UID than the API server does, and notes it there.
	if hash := o.Metadata.Annotations["kubernetes.io/config.hash"]; hash != "" && o.Metadata.Annotations["kubernetes.io/config.mirror"] != "" {
		p.uid = strings.Clone(hash)
	}
	p.annotations = keep(o.Metadata.Annotations, wantedAnnotation)
	if len(o.Metadata.Labels) <= mostLabels {
		p.labels = keep(o.Metadata.Labels, func(string) bool { return true })
	}
	for _, owner := range o.Metadata.OwnerReferences {
		if owner.Controller {
			p.ownerKind, p.ownerName = strings.Clone(owner.Kind), strings.Clone(owner.Name)
		}
	}
	return p
}

// list asks for all pods of the node and returns the version from which a watch goes on.
func (w *podWatch) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	began := w.clock()
	query := url.Values{}
	if !w.gone {
		query.Set("resourceVersion", "0") // the server's cache will do
	}
	body, err := w.get(ctx, acceptList, query)
	if err != nil {
		return "", err
	}
	defer body.Close()
	limited := &io.LimitedReader{R: body, N: mostListBytes}
	s := newJSONStream(limited, mostEventBytes)
	w.mu.Lock()
	before := w.table
	w.mu.Unlock()
	table := &podTable{pods: map[podKey]*podMeta{}}
	err = s.object(func(key string) error {
		switch key {
		case "metadata":
			return s.object(func(key string) (err error) {
				if key != "resourceVersion" {
					return s.skip()
				}
				version, err = s.name()
				return err
			})
		case "items":
			return s.array(func() error {
				var o apiObject
				if err := s.decode(&o); err != nil {
					return err
				}
				return w.put(table, before, &o)
			})
		}
		return s.skip()
	})
	if err == nil && version == "" {
		err = errors.New("the list has no version")
	}
	if err != nil {
		return "", fmt.Errorf("read the list: %w", err)
	}
	w.gone = false
	w.mu.Lock()
	w.duration = gpu.Some(w.clock().Sub(began))
	w.mu.Unlock()
	w.succeeded(table)
	return version, nil
}

// put adds a pod to a table that nobody else sees yet. What was there before keeps the moment it was first seen.
func (w *podWatch) put(table, before *podTable, o *apiObject) error {
	key := podKey{strings.Clone(o.Metadata.Namespace), strings.Clone(o.Metadata.Name)}
	if key.name == "" || key.namespace == "" || len(key.name) > maxIDLength || len(key.namespace) > maxIDLength {
		return errors.New("a pod without a name")
	}
	if table.pods[key] == nil && len(table.pods) >= mostPods {
		return fmt.Errorf("more than %d pods on one node", mostPods)
	}
	since := gpu.None[time.Time]()
	if before != nil {
		since = gpu.Some(w.clock())
		if p := before.pods[key]; p != nil {
			if since = p.since; p.uid != o.meta(since).uid {
				since = gpu.Some(w.clock())
			}
		}
	}
	table.pods[key] = o.meta(since)
	return nil
}

// watch follows the pods from a version, until the server ends it, and returns the version that was reached.
func (w *podWatch) watch(ctx context.Context, version string) (string, error) {
	length := watchLength + time.Duration(w.jitter()*float64(watchLength))
	ctx, cancel := context.WithTimeout(ctx, length+listTimeout)
	defer cancel()
	body, err := w.get(ctx, acceptWatch, url.Values{"watch": {"true"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {fmt.Sprint(int(length.Seconds()))}})
	if err != nil {
		return version, err
	}
	defer body.Close()
	w.succeeded(nil)
	in := newJSONStream(body, mostEventBytes)
	for {
		var event struct {
			Type   string
			Object apiObject
		}
		switch err := in.decode(&event); {
		case errors.Is(err, io.EOF):
			w.succeeded(nil)
			return version, nil
		case err != nil:
			return version, fmt.Errorf("read an event: %w", err)
		}
		if event.Type == "ERROR" {
			if event.Object.Code == http.StatusGone {
				return "", errGone
			}
			return "", fmt.Errorf("the watch ended: %s", oneLine(event.Object.Message))
		}
		table, err := w.apply(event.Type, &event.Object)
		if err != nil {
			return "", err
		}
		if v := event.Object.Metadata.ResourceVersion; v != "" && len(v) <= maxIDLength {
			version = v
		}
		w.succeeded(table)
	}
}

// apply returns the table after an event, nil where it stays as it is.
func (w *podWatch) apply(kind string, o *apiObject) (*podTable, error) {
	w.mu.Lock()
	before := w.table
	w.mu.Unlock()
	switch kind {
	case "ADDED", "MODIFIED", "DELETED":
	default: // BOOKMARK, and what is yet to be invented
		return nil, nil
	}
	if before == nil {
		before = &podTable{}
	}
	table := &podTable{pods: maps.Clone(before.pods)}
	if table.pods == nil {
		table.pods = map[podKey]*podMeta{}
	}
	if kind == "DELETED" {
		delete(table.pods, podKey{o.Metadata.Namespace, o.Metadata.Name})
		return table, nil
	}
	return table, w.put(table, before, o)
}

// statusError is a refusal.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.code, e.message) }

// get sends a request for the pods of this node and returns the answer's body.
func (w *podWatch) get(ctx context.Context, accept string, query url.Values) (io.ReadCloser, error) {
	if w.options.Node == "" {
		return nil, errors.New("the name of this node is not known")
	}
	if w.options.Server == "" {
		return nil, errors.New("the API server is not known: this is no pod, and none was named")
	}
	if err := w.connect(); err != nil {
		return nil, err
	}
	// Finished pods leave what is selected, and hold nothing.
	query.Set("fieldSelector", "spec.nodeName="+w.options.Node+",status.phase!=Succeeded,status.phase!=Failed")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.options.Server+"/api/v1/pods?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "gpu-exporter")
	// A token is sent where nobody can listen.
	secret := ""
	if req.URL.Scheme == "https" {
		token, err := os.ReadFile(w.options.TokenFile)
		if err != nil {
			return nil, err
		}
		secret = strings.TrimSpace(string(token))
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // without the address, which the message has
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	var status apiObject
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		text = []byte(status.Message)
	}
	if resp.StatusCode == http.StatusGone {
		return nil, errGone
	}
	return nil, &statusError{resp.StatusCode, oneLine(without(string(text), secret))}
}

// without takes a secret out of a text that others wrote: a refusal may quote the request, and is shown and logged. The
// text may end in the middle of the secret.
func without(text, secret string) string {
	if secret == "" {
		return text
	}
	text = strings.ReplaceAll(text, secret, "[token]")
	for n := len(secret) - 1; n >= 8; n-- {
		if rest, cut := strings.CutSuffix(text, secret[:n]); cut {
			return rest + "[token]"
		}
	}
	return text
}

// connect makes a client that trusts the certificates which are in the file now.
func (w *podWatch) connect() error {
	var ca []byte
	if strings.HasPrefix(w.options.Server, "https:") {
		var err error
		if ca, err = os.ReadFile(w.options.CAFile); err != nil {
			return err
		}
	}
	if w.client != nil && bytes.Equal(ca, w.ca) {
		return nil
	}
	pool := x509.NewCertPool()
	if len(ca) > 0 && !pool.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s has no certificate", w.options.CAFile)
	}
	if w.client != nil {
		w.client.CloseIdleConnections()
	}
	// No proxy of the environment lies between a node and its API server, and nothing is followed elsewhere.
	w.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: listTimeout, MaxIdleConns: 2, IdleConnTimeout: time.Minute},
	}
	w.ca = ca
	return nil
}

// explain says in one line what is wrong and what to do.
func (w *podWatch) explain(err error) string {
	at := w.options.Server
	var status *statusError
	var file *fs.PathError
	switch {
	case errors.As(err, &status) && status.code == http.StatusUnauthorized:
		return at + ": the token is refused: mount a current token of the service account (automountServiceAccountToken)"
	case errors.As(err, &status) && status.code == http.StatusForbidden:
		return at + ": not allowed: grant the service account list and watch on pods by a ClusterRole"
	case errors.As(err, &status) && status.code == http.StatusNotAcceptable:
		return at + ": the server cannot send metadata alone, and whole pods are not asked for"
	case errors.As(err, &status):
		return at + ": " + status.Error()
	case errors.As(err, &file):
		return oneLine(err.Error()) + ": mount the token of the service account (automountServiceAccountToken)"
	case errors.Is(err, context.DeadlineExceeded):
		return at + ": no answer in time"
	case at == "":
		return oneLine(err.Error())
	}
	return at + ": " + oneLine(err.Error())
}
