package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

const (
	// maxPods bounds the pods of a node; Kubernetes supports 110 to some hundreds.
	maxPods = 4096
	// maxList and maxEvent bound a list and one event in bytes. An object has at most 1.5 MiB.
	maxList  = 64 << 20
	maxEvent = 4 << 20
	// maxLabels bounds the labels of a pod that are kept.
	maxLabels = 128
	// watchLength is the duration of a watch, which is spread so that the nodes of a cluster do not reconnect together.
	watchLength = 5 * time.Minute
	// firstRetry and maxRetry are the mean delays after the first failure and after many.
	firstRetry = 2 * time.Second
	maxRetry   = time.Minute
	// steady is the minimum duration of a watch whose end is no failure.
	steady = 10 * time.Second
)

// Watch keeps the metadata of this node's pods. Its methods are safe for concurrent use, but for Run.
type Watch struct {
	Options
	apiClient                                      // only Run uses it
	sleep     func(context.Context, time.Duration) // until then, or until the context is done
	expired   bool                                 // the next list must be newer than the server's cache

	mu     sync.Mutex // guards what follows
	table  *Pods      // nil before the first list
	health gpu.Health
}

// NewWatch returns a Watch; it connects to nothing yet.
func NewWatch(api APIOptions, o Options) *Watch {
	return &Watch{Options: o, apiClient: newAPIClient(api, "list and watch on pods"), sleep: sleepUntil}
}

func sleepUntil(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Run lists and watches until ctx is done.
func (w *Watch) Run(ctx context.Context) {
	version := ""
	for ctx.Err() == nil {
		start := w.Clock()
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
		watched, lasted := version != "", w.Clock().Sub(start)
		version = next // a watch that failed continues where it was
		switch {
		case errors.Is(err, errExpired):
			w.expired, version = true, ""
			if lasted < firstRetry {
				w.sleep(ctx, w.delay(1))
			}
		case err != nil && next != "" && lasted >= steady && w.respondedSince(start):
			// The server is replaced, or a proxy has closed the connection: no failure if the next watch starts.
			w.sleep(ctx, w.delay(1))
		case err != nil:
			w.sleep(ctx, w.delay(w.failed(err)))
		case watched && lasted < firstRetry:
			// A server that ends watches at once is not queried in a loop.
			w.sleep(ctx, w.delay(1))
		}
	}
}

// delay is the time to the next attempt after so many failures.
func (w *Watch) delay(failures int) time.Duration {
	return Backoff(failures, firstRetry, maxRetry, w.api.Jitter)
}

func (w *Watch) failed(err error) (failures int) {
	message := w.explain(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.health.Failed(message) {
		w.Logger.Warn("cannot watch pods", "err", message)
	}
	return w.health.Failures()
}

// respondedSince reports whether the server has sent a list, or begun a watch.
func (w *Watch) respondedSince(at time.Time) bool {
	return !w.Source().LastSuccess.Or(time.Time{}).Before(at)
}

// succeeded replaces the table; nil keeps it.
func (w *Watch) succeeded(table *Pods) {
	if table != nil && w.api.Changed != nil {
		defer w.api.Changed()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.health.Succeeded(w.Clock()); n > 0 {
		w.Logger.Info("pods watched again", "after_failures", n)
	}
	if table != nil {
		w.table = table
	}
}

// Pods returns the last metadata; nil before the first, and when it is too old.
func (w *Watch) Pods() *Pods {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.health.Failures() > 0 && !w.health.Fresh(w.Clock(), w.MaxAge) {
		return nil
	}
	return w.table
}

// Attempted reports whether the API server responded, or failed to, at least once.
func (w *Watch) Attempted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.health.Attempted()
}

// Source implements Source.
func (w *Watch) Source() gpu.Source {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.health.Source(gpu.SourceAPI, "no response from the API server yet", w.Clock(), w.MaxAge)
}

// pod keeps what is wanted.
func (w *Watch) pod(o *apiObject) *Pod {
	m := &o.Metadata
	p := &Pod{UID: strings.Clone(m.UID), Annotations: keepTexts(m.Annotations, w.api.Annotation), Requests: ReadRequests(m.ManagedFields)}
	// The kubelet has another UID for a static pod than the API server, which is in its mirror pod.
	if uid := m.Annotations["kubernetes.io/config.hash"]; uid != "" &&
		m.Annotations["kubernetes.io/config.mirror"] != "" {
		p.UID = strings.Clone(uid)
	}
	if len(m.Labels) <= maxLabels {
		p.Labels = keepTexts(m.Labels, func(string) bool { return true })
	}
	for _, owner := range m.OwnerReferences {
		if owner.Controller {
			p.OwnerKind, p.OwnerName = strings.Clone(owner.Kind), strings.Clone(owner.Name)
		}
	}
	return p
}

// pods requests the pods of this node; finished ones have no allocations.
func (w *Watch) pods(ctx context.Context, accept string, query url.Values) (io.ReadCloser, error) {
	query.Set("fieldSelector", "spec.nodeName="+w.api.Node+",status.phase!=Succeeded,status.phase!=Failed")
	return w.get(ctx, "/api/v1/pods", accept, query)
}

// list queries all pods of the node, and returns the version from which a watch continues.
func (w *Watch) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	start := w.Clock()
	query := url.Values{}
	if !w.expired {
		query.Set("resourceVersion", "0") // the server's cache is enough
	}
	body, err := w.pods(ctx, acceptList, query)
	if err != nil {
		return "", err
	}
	defer body.Close()
	limited := &io.LimitedReader{R: body, N: maxList}
	s := newJSONStream(limited, maxEvent)
	w.mu.Lock()
	before := w.table
	w.mu.Unlock()
	table := NewPods(map[gpu.PodName]*Pod{})
	err = s.object(fields{
		"metadata": func() error { return s.object(fields{"resourceVersion": s.name(&version)}) },
		"items": func() error {
			return s.array(func() error {
				var o apiObject
				if err := s.Decode(&o); err != nil {
					return err
				}
				return w.put(table, before, &o)
			})
		},
	})
	if err == nil && version == "" {
		err = errors.New("the list has no version")
	}
	if err != nil {
		return "", fmt.Errorf("read the list: %w", err)
	}
	w.expired = false
	w.mu.Lock()
	w.health.Took(w.Clock().Sub(start))
	w.mu.Unlock()
	w.succeeded(table)
	return version, nil
}

// put adds a pod to a table that is not published yet. A pod of the table before keeps its Since.
func (w *Watch) put(table, before *Pods, o *apiObject) error {
	name := gpu.PodName{Namespace: strings.Clone(o.Metadata.Namespace), Pod: strings.Clone(o.Metadata.Name)}
	if name.Pod == "" || name.Namespace == "" || len(name.Pod) > maxName || len(name.Namespace) > maxName {
		return errors.New("a pod without a name")
	}
	if table.byName[name] == nil && len(table.byName) >= maxPods {
		return fmt.Errorf("more than %d pods on one node", maxPods)
	}
	pod := w.pod(o)
	if before != nil {
		pod.Since = gpu.Some(w.Clock())
		if p := before.byName[name]; p != nil && p.UID == pod.UID {
			pod.Since = p.Since
		}
	}
	table.byName[name] = pod
	return nil
}

// watch follows the pods from a version until the server closes the watch, and returns the version that was reached.
func (w *Watch) watch(ctx context.Context, version string) (string, error) {
	length := watchLength + time.Duration(w.api.Jitter()*float64(watchLength))
	ctx, cancel := context.WithTimeout(ctx, length+listTimeout)
	defer cancel()
	body, err := w.pods(ctx, acceptWatch, url.Values{"watch": {"true"}, "resourceVersion": {version},
		"allowWatchBookmarks": {"true"}, "timeoutSeconds": {fmt.Sprint(int(length.Seconds()))}})
	if err != nil {
		return version, err
	}
	defer body.Close()
	w.succeeded(nil)
	in := newJSONStream(body, maxEvent)
	for {
		var event struct {
			Type   string
			Object apiObject
		}
		switch err := in.Decode(&event); {
		case errors.Is(err, io.EOF):
			w.succeeded(nil)
			return version, nil
		case err != nil:
			return version, fmt.Errorf("read an event: %w", err)
		}
		if event.Type == "ERROR" {
			if event.Object.Code == http.StatusGone {
				return "", errExpired
			}
			return "", fmt.Errorf("the watch ended: %s", event.Object.Message)
		}
		table, err := w.apply(event.Type, &event.Object)
		if err != nil {
			return "", err
		}
		if v := event.Object.Metadata.ResourceVersion; v != "" && len(v) <= maxName {
			version = v
		}
		w.succeeded(table)
	}
}

// apply returns the table after an event, nil where that leaves it unchanged.
func (w *Watch) apply(kind string, o *apiObject) (*Pods, error) {
	if kind != "ADDED" && kind != "MODIFIED" && kind != "DELETED" {
		return nil, nil // BOOKMARK, and events of later versions
	}
	w.mu.Lock()
	before := w.table
	w.mu.Unlock()
	table := NewPods(map[gpu.PodName]*Pod{})
	if before == nil {
		before = table
	}
	maps.Copy(table.byName, before.byName)
	if kind == "DELETED" {
		delete(table.byName, gpu.PodName{Namespace: o.Metadata.Namespace, Pod: o.Metadata.Name})
		return table, nil
	}
	return table, w.put(table, before, o)
}
