package podmap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/deviceid"
	"github.com/gpu-exporter/gpu-exporter/podmap/podresources"
	"github.com/gpu-exporter/gpu-exporter/podmap/source"
)

// The defaults of Options.
const (
	DefaultInterval   = 10 * time.Second
	DefaultTimeout    = 5 * time.Second
	DefaultMaxAge     = 5 * time.Minute
	DefaultMaxMessage = 64 << 20
)

// kubelet is queried within the deadline of a context. An error that is errors.ErrUnsupported means that this kubelet
// does not offer the call.
type kubelet interface {
	List(context.Context, *podresources.List) error
	Allocatable(context.Context, *podresources.Devices) error
	Connections() int
	Explain(err error, timeout time.Duration) string
	Close() error
}

// podWatch is a source.Watch.
type podWatch interface {
	source.Source
	Run(context.Context)
	Pods() *source.Pods
	Attempted() bool
}

// sliceLister is a source.SliceLister.
type sliceLister interface {
	source.Source
	Run(context.Context)
	Value() *source.Slices
}

// Options configure a Map. The zero value of a field is its default.
type Options struct {
	// Socket is the path of the kubelet's PodResources socket; empty: allocations are never known. Mount its directory:
	// the socket is another file after each restart of the kubelet.
	Socket string
	// Interval is the time from one poll to the next, Timeout that of one call, and of one read of a file.
	Interval, Timeout time.Duration
	// MaxAge is how long the last response is used when calls fail.
	MaxAge time.Duration
	// MaxMessage bounds one response, in bytes.
	MaxMessage int
	// DirectResources are additional resource names whose device IDs contain the GPU's UUID or index.
	DirectResources []string
	// WholeResources are resource names each device of which is one GPU.
	WholeResources []string
	// Checkpoint is the path of the kubelet's device checkpoint, which has the UIDs of pods, and the GPUs of schemes
	// whose device IDs do not identify them; empty: not read. It needs user 0, and its directory mounted read-only.
	Checkpoint string
	// Dev is the directory of the host's device nodes, in which links of one scheme are followed; "/dev" by default.
	Dev string
	// API configures the watch of this node's pods at the API server, which has the GPUs of schemes that write them
	// into annotations, and the UIDs, labels and owners of pods; nil: not watched.
	API *source.APIOptions
	// Slices configures the listing of this node's ResourceSlices, in which DRA drivers publish the UUIDs and capacities
	// of their devices; nil: not listed.
	Slices *source.APIOptions
	// PodSchemes are names among DaemonSchemes whose annotations count without their daemon on this node.
	PodSchemes []string
	// PodLabels are the labels of pods in gpu.PodMeta, beside those whose names PodLabelPattern matches; nil: no others.
	PodLabels       []string
	PodLabelPattern *regexp.Regexp
	// DRACheckpoint is the path of the checkpoint of a DRA driver, which has the MIG devices that the driver
	// creates, shares of claims and administrators' claims; empty: not read.
	DRACheckpoint string
	// Fractions is the directory of the records of NVIDIA's GPU fractioning operator; empty: not read. Leases is the
	// file of its MPS namespaces, ContainerLogs the host's /var/log/containers, by which containers are named.
	Fractions, Leases, ContainerLogs string
	// Logger gets changes of health, and unknown IDs once. The default discards.
	Logger *slog.Logger
	// Clock is the time; time.Now by default.
	Clock func() time.Time
	// Polled, if set, is called by Run after every poll: allocations may have changed.
	Polled func()
	// Jitter is in [0, 1), and spreads retries; a random number by default.
	Jitter func() float64
}

// DaemonSchemes are the schemes of pod annotations that Options.PodSchemes selects from.
func DaemonSchemes() []string { return deviceid.DaemonSchemes() }

// Map resolves which GPUs are allocated to which containers. All methods are safe for concurrent use.
type Map struct {
	options Options
	table   idTable
	kubelet kubelet // nil: not configured

	// The optional data sources; nil: not configured.
	checkpoint *source.File[source.Checkpoint]
	dra        *source.File[source.PreparedClaims]
	fractions  *source.File[source.Fractions]
	watch      podWatch
	slices     sliceLister
	optional   []source.Source // those that are configured

	polling sync.Mutex    // locked during a Poll: one at a time
	events  chan struct{} // changes that a poll should follow; holds one

	mu    sync.Mutex // guards what follows
	state state
	cache cache
	names nameIndex // of the last call of ContainerOf
}

// state is the result of the last polls.
type state struct {
	snapshot *snapshot // in use; nil before the first
	at       time.Time // of its response
	// unconfirmed means that the last response dropped every allocation, and waits for a second that does so.
	unconfirmed bool
	// confirmed are the UIDs that pods had by the checkpoint, the ended ones for MaxAge.
	confirmed map[gpu.PodName]pairing
	health    gpu.Health
	// allocatableErr is the last error of the second call, which does not make the source fail.
	allocatableErr string
	logged         map[Unrecognized]bool
}

// cache is the last result of Allocations, valid while its arguments are the same.
type cache struct {
	snapshot  *snapshot
	inventory *gpu.Inventory
	pods      *source.Pods
	allocs    gpu.Allocations
}

// nameIndex maps pod UIDs to the containers of their processes. It is immutable.
type nameIndex struct {
	snapshot *snapshot
	pods     *source.Pods
	byUID    map[string]gpu.Container
}

// New returns a Map. It starts nothing and connects to nothing.
func New(o Options) *Map {
	if o.Socket == "" {
		return newMap(o, nil)
	}
	return newMap(o, podresources.New(o.Socket, positive(o.MaxMessage, DefaultMaxMessage)))
}

func newMap(o Options, k kubelet) *Map {
	o.Interval = positive(o.Interval, DefaultInterval)
	o.Timeout = positive(o.Timeout, DefaultTimeout)
	o.MaxAge = positive(o.MaxAge, DefaultMaxAge)
	o.Dev = cmp.Or(o.Dev, "/dev")
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Polled == nil {
		o.Polled = func() {}
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	seed := maphash.MakeSeed()
	m := &Map{options: o, kubelet: k, events: make(chan struct{}, 1),
		table: idTable{deviceid.Table{Direct: slices.Clone(o.DirectResources), Whole: slices.Clone(o.WholeResources)}, seed}}
	from := source.Options{Timeout: o.Timeout, Clock: o.Clock, Logger: o.Logger, MaxAge: o.MaxAge}
	if o.Checkpoint != "" {
		keep := source.Keep{Env: deviceid.WantsEnv, Annotation: deviceid.WantsContainerAnnotation}
		m.checkpoint = source.NewCheckpoint(o.Checkpoint, seed, keep, from)
		m.optional = append(m.optional, m.checkpoint)
	}
	if o.DRACheckpoint != "" {
		m.dra = source.NewDRA(o.DRACheckpoint, from)
		m.optional = append(m.optional, m.dra)
	}
	if o.Fractions != "" {
		m.fractions = source.NewFractions(o.Fractions, o.Leases, o.ContainerLogs, from)
		m.optional = append(m.optional, m.fractions)
	}
	if o.API != nil {
		api := *o.API
		api.Annotation, api.Jitter, api.Changed = deviceid.WantsAnnotation, o.Jitter, m.changed
		m.watch = source.NewWatch(api, from)
		m.optional = append(m.optional, m.watch)
	}
	if o.Slices != nil {
		api := *o.Slices
		api.Jitter, api.Changed = o.Jitter, m.changed
		m.slices = source.NewSliceLister(api, from)
		m.optional = append(m.optional, m.slices)
	}
	m.state.logged, m.state.confirmed = map[Unrecognized]bool{}, map[gpu.PodName]pairing{}
	return m
}

func positive[T int | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// Run polls until ctx is done: in intervals, and soon after an event of the pods' watch or a change
// of a checkpoint or of the socket. It closes the connection to the kubelet.
func (m *Map) Run(ctx context.Context) {
	defer m.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	if m.kubelet != nil {
		watching.Go(func() { m.Watch(ctx) })
	}
	if m.kubelet != nil && m.options.Socket != "" {
		go m.notify(ctx) // not waited for: a call for a file system that hangs does not return
	}
	var last time.Time // start of the last poll
	due := time.Now()
	var follow time.Time // until then an event is followed closely
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.events:
			follow = time.Now().Add(settling + firstRetry)
			if at := m.soon(time.Now(), last); at.Before(due) {
				due = at
				timer.Reset(time.Until(at))
			}
			continue
		case <-timer.C:
		}
		last = time.Now()
		_ = m.Poll(ctx) // the error is in the health of the source, and in the log if it is new
		m.options.Polled()
		delay := m.delay()
		if now := time.Now(); now.Before(follow) {
			// The kubelet may be later than the event: it lists a pod that has ended for up to two seconds more.
			delay = min(delay, m.soon(now, last).Sub(now))
		}
		due = time.Now().Add(delay)
		timer.Reset(delay)
	}
}

// changed makes Run poll soon.
func (m *Map) changed() {
	select {
	case m.events <- struct{}{}:
	default:
	}
}

// notify watches the files that the kubelet and a DRA driver write, where the kernel can.
func (m *Map) notify(ctx context.Context) {
	paths := slices.DeleteFunc([]string{m.options.Socket, m.options.Checkpoint, m.options.DRACheckpoint},
		func(path string) bool { return path == "" })
	retry := time.NewTicker(watchRetry)
	defer retry.Stop()
	for ctx.Err() == nil {
		if err := source.Notify(ctx, paths, m.changed); err != nil {
			m.options.Logger.Debug("cannot watch files, polling only", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-retry.C:
		}
	}
}

// watchRetry is the time until files that cannot be watched are tried again.
const watchRetry = time.Minute

// Events come in groups: one poll follows settling after the first of a group, and two polls start at least spacing
// apart. The kubelet allows 100 calls in a second, to all of its clients together.
const settling, spacing = 250 * time.Millisecond, 500 * time.Millisecond

// soon is the time of a poll that an event causes. A response that must be confirmed is not hurried, and a kubelet that
// fails is not pressed.
func (m *Map) soon(now, last time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := now.Add(settling)
	wait := spacing
	if m.state.unconfirmed || m.state.health.Failures() > 0 {
		wait = firstRetry
	}
	if earliest := last.Add(wait); at.Before(earliest) {
		at = earliest
	}
	return at
}

// Close closes the connection to the kubelet, if there is one. A later Poll opens another.
func (m *Map) Close() error {
	m.polling.Lock()
	defer m.polling.Unlock()
	if m.kubelet == nil {
		return nil
	}
	return m.kubelet.Close()
}

// firstRetry is the mean delay after the first failure, and the delay after a response that must be confirmed: a
// restarted kubelet lists nothing for up to a second.
const firstRetry = 2 * time.Second

// delay is the time from the end of one poll to the next; after failures its mean grows to six intervals.
func (m *Map) delay() time.Duration {
	m.mu.Lock()
	failures, unconfirmed := m.state.health.Failures(), m.state.unconfirmed
	m.mu.Unlock()
	switch {
	case failures > 0:
		return source.Backoff(failures, firstRetry, max(6*m.options.Interval, firstRetry), m.options.Jitter)
	case unconfirmed:
		return min(firstRetry, m.options.Interval)
	}
	return m.untilEnd()
}

// untilEnd is the delay by which the end of the youngest allocation is found soon enough: it is late by a fortieth of its
// duration on average. A change of a checkpoint causes a poll at the start of an allocation, and only an event of the pods'
// watch does so at its end; without either, start and end are late by as much.
func (m *Map) untilEnd() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.state.snapshot; s != nil && m.watch == nil && (m.checkpoint != nil || m.dra != nil) {
		if youngest, ok := s.youngest(); ok {
			return min(max(m.options.Clock().Sub(youngest)/20, spacing), m.options.Interval)
		}
	}
	return m.options.Interval
}

// Watch follows the pods and ResourceSlices of this node until ctx ends, as far as they are enabled. Run does so, too.
func (m *Map) Watch(ctx context.Context) {
	var listing sync.WaitGroup
	defer listing.Wait()
	if m.slices != nil {
		listing.Go(func() { m.slices.Run(ctx) })
	}
	if m.watch != nil {
		m.watch.Run(ctx)
	}
}

// Poll queries the kubelet once, and returns an error of that. The last response stays in use. Polls never overlap: a
// second waits for the first.
func (m *Map) Poll(ctx context.Context) error {
	if m.kubelet == nil {
		return nil
	}
	m.polling.Lock()
	defer m.polling.Unlock()
	start := m.options.Clock()
	list := podresources.NewList(m.table.filter(true))
	connection := m.kubelet.Connections()
	err := m.call(ctx, func(ctx context.Context) error { return m.kubelet.List(ctx, list) })
	if ctx.Err() != nil {
		return ctx.Err() // the end of this program is no failure of the kubelet
	}
	if err != nil {
		m.failed(start, err)
		return fmt.Errorf("list pod resources: %w", err)
	}
	response := m.table.parse(list)
	response.connection = connection
	if m.needsConfirmation(response) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.succeeded(start)
		m.state.unconfirmed = true
		m.options.Logger.Debug("no allocations in the response of the kubelet, waiting for a second one")
		return nil
	}
	// After the list, so that what is allocated was allocatable.
	capacity := podresources.NewDevices(m.table.filter(false))
	err = m.call(ctx, func(ctx context.Context) error { return m.kubelet.Allocatable(ctx, capacity) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// After the list, too: what is listed was written before it was allocated.
	if m.checkpoint != nil {
		m.checkpoint.Poll(ctx)
	}
	if m.dra != nil {
		m.dra.Poll(ctx)
	}
	if m.fractions != nil {
		m.fractions.Poll(ctx)
	}
	m.use(start, response, capacity, err)
	return nil
}

func (m *Map) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.options.Timeout)
	defer cancel()
	return f(ctx)
}

// needsConfirmation reports whether a response is used only if the next one is like it. A kubelet that was just
// restarted lists no pods for a moment, and all GPUs would seem unallocated: so a response without any allocation after
// one with some, or a first response without any pod (at least this exporter's own should be there). A kubelet that has
// not restarted since, and still lists pods, needs no second response: the wait would count as allocated.
func (m *Map) needsConfirmation(r *response) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.state.unconfirmed || !r.noAllocations():
		return false
	case m.state.snapshot == nil:
		return r.pods == 0
	case r.pods > 0 && m.kubelet.Connections() == m.state.snapshot.connection:
		return false
	}
	return !m.state.snapshot.noAllocations()
}

func (m *Map) failed(start time.Time, err error) {
	message := m.kubelet.Explain(err, m.options.Timeout)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.state
	// The confirming response must follow without a restart in between.
	s.unconfirmed = false
	s.health.Took(m.options.Clock().Sub(start))
	if s.health.Failed(message) {
		m.options.Logger.Warn("cannot list pod resources", "err", message)
	}
}

// succeeded records a response. The caller holds mu.
func (m *Map) succeeded(start time.Time) {
	now := m.options.Clock()
	m.state.health.Took(now.Sub(start))
	if n := m.state.health.Succeeded(now); n > 0 {
		m.options.Logger.Info("pod resources listed again", "after_failures", n)
	}
}

// use makes a response the one in use, with what the checkpoints have on it.
func (m *Map) use(start time.Time, r *response, list *podresources.Devices, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.succeeded(start)
	s := &m.state
	s.unconfirmed = false
	now := m.options.Clock()
	next, before := &snapshot{response: r}, s.snapshot
	if before != nil {
		next.capacity, next.resources = before.capacity, before.resources
		r.setSince(before.response, gpu.Some(now))
	}
	m.addCheckpoints(next, before)
	if before == nil || !maps.Equal(r.refused, before.refused) {
		for pod, err := range r.refused {
			s.health.Lost()
			m.options.Logger.Warn("ignoring pods of the kubelet's response", "pods", len(r.refused), "namespace", pod.Namespace,
				"pod", pod.Pod, "err", err)
			break // one is named
		}
	}
	next.schemes = m.podSchemes(next)
	next.capacityErr = err != nil
	switch {
	case err == nil:
		next.capacity = m.table.capacity(list, next.capacity)
		s.allocatableErr = ""
	case errors.Is(err, errors.ErrUnsupported):
	default:
		s.health.Lost()
		message := m.kubelet.Explain(err, m.options.Timeout)
		if message != s.allocatableErr {
			s.allocatableErr = message
			m.options.Logger.Warn("cannot list allocatable resources, using the last counts", "err", message)
		}
	}
	for resource := range r.allocated {
		if !r.uncertain[resource] && !slices.Contains(next.resources, resource) {
			next.resources = append(slices.Clone(next.resources), resource)
		}
	}
	if reflect.DeepEqual(next, before) {
		next = before // what was resolved of it stays valid; the kubelet lists in any order, so bytes are rarely equal
	}
	s.snapshot, s.at = next, now
	if m.watch != nil && !m.watch.Attempted() {
		return // its first response may identify all of them
	}
	for _, u := range next.unresolved(m.podMetadata()) {
		u.Devices = 0
		if !s.logged[u] && (!u.Ignored || u.Scheme != "") && len(s.logged) < maxForms {
			s.logged[u] = true
			what := "cannot map device IDs to GPUs, reporting them as unresolved"
			if u.Ignored {
				what = "ignoring pod annotations of a scheme that is not known to be installed"
			}
			m.options.Logger.Warn(what, "resource", u.Resource, "scheme", u.Scheme, "shape", u.Shape, "hint", u.Hint)
		}
	}
}

// addCheckpoints adds to a snapshot what belongs to it in the checkpoints.
func (m *Map) addCheckpoints(next, before *snapshot) {
	var entries *source.Checkpoint
	if m.checkpoint != nil {
		if entries = m.checkpoint.Value(); entries != nil {
			next.match(entries, m.options.Dev, before)
		} else if before != nil && m.checkpoint.Fresh() {
			next.carry(before)
		}
		next.settle(before, m.state.confirmed, m.options.Clock(), m.options.MaxAge)
	}
	next.addReceived(entries, before)
	if m.slices != nil {
		next.slices = m.slices.Value()
	}
	if m.fractions != nil {
		if next.fractions = m.fractions.Value(); next.fractions == nil && before != nil && m.fractions.Fresh() {
			next.fractions = before.fractions
		}
		next.unsure = next.fractions == nil || next.fractions.Partial
	}
	if m.dra != nil {
		if next.prepared = m.dra.Value(); next.prepared == nil && before != nil && m.dra.Fresh() {
			next.prepared = before.prepared
		}
	}
}

// podSchemes are the schemes of annotations that are in use on the node: the configured ones, those of which a daemon or
// a record is there, and those whose placeholder pods are in namespaces of their own.
func (m *Map) podSchemes(s *snapshot) []*deviceid.Scheme {
	return slices.DeleteFunc(slices.Clone(deviceid.PodSchemes()), func(scheme *deviceid.Scheme) bool {
		runs := scheme.Daemon.Pod == "" || slices.Contains(m.options.PodSchemes, scheme.Name) ||
			scheme == deviceid.NvFractions() && s.fractions != nil && len(s.fractions.List) > 0
		for pod := range s.order {
			runs = runs || scheme.Runs(pod)
		}
		return !runs
	})
}

// podMetadata is the metadata of the node's pods; nil without.
func (m *Map) podMetadata() *source.Pods {
	if m.watch == nil {
		return nil
	}
	return m.watch.Pods()
}

// Allocations resolves the response in use against the GPUs of inv, which must not change afterwards; nil is a node
// without GPUs. It does no input or output, and repeated calls with the same inventory cost next to nothing until the
// next response. The result is immutable and shared.
func (m *Map) Allocations(inv *gpu.Inventory) gpu.Allocations {
	if m.kubelet == nil {
		return gpu.Allocations{}
	}
	pods := m.podMetadata()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.state
	var out gpu.Allocations
	now := m.options.Clock()
	if s.snapshot != nil && now.Sub(s.at) <= m.options.MaxAge {
		if m.cache.snapshot != s.snapshot || m.cache.inventory != inv || m.cache.pods != pods {
			labels := podLabels{m.options.PodLabels, m.options.PodLabelPattern}
			m.cache = cache{s.snapshot, inv, pods, s.snapshot.allocations(inv, pods, labels)}
		}
		out = m.cache.allocs
		out.Known = true
	}
	out.Configured = true
	socket := s.health.Source(gpu.SourcePodResources, "no response from the kubelet yet", now, m.options.MaxAge)
	out.Sources = []gpu.Source{socket}
	for _, other := range m.optional {
		src := other.Source()
		// ResourceSlices are listed each few minutes; the watch of the same server notices an outage before.
		if last := out.Sources[len(out.Sources)-1]; src.Name == gpu.SourceSlices && last.Name == gpu.SourceAPI && !last.Up {
			src.Up, src.Message = false, cmp.Or(src.Message, last.Message)
		}
		out.Sources = append(out.Sources, src)
	}
	out.PollGroups = []gpu.PollHealth{{PollGroup: gpu.PollKubelet, Interval: m.options.Interval,
		Duration: socket.Duration}}
	return out
}

// Unrecognized lists the forms of device IDs in the response in use of which no data source identifies the GPU. IDs of
// GPUs that are not visible to NVML are not among them.
func (m *Map) Unrecognized() []Unrecognized {
	pods := m.podMetadata()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.snapshot == nil {
		return nil
	}
	return m.state.snapshot.unresolved(pods)
}

// ContainerOf returns the container that the processes of a pod's UID belong to, if that is certain: the kubelet lists
// the pod now, one data source has its UID and none contradicts, and only one of its containers has devices, or, where
// none has, it has only one container. An ordinary init container, which the kubelet does not list, counts as that
// container. It does no input or output, and is safe for concurrent use.
func (m *Map) ContainerOf(uid string) (gpu.Container, bool) {
	if m.kubelet == nil || uid == "" {
		return gpu.Container{}, false
	}
	pods := m.podMetadata()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.state
	if s.snapshot == nil || m.options.Clock().Sub(s.at) > m.options.MaxAge {
		return gpu.Container{}, false
	}
	if m.names.snapshot != s.snapshot || m.names.pods != pods {
		m.names = nameIndex{s.snapshot, pods, s.snapshot.names(pods)}
	}
	c, ok := m.names.byUID[uid]
	return c, ok
}
