package podmap

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The defaults of Options.
const (
	DefaultSocket     = "/var/lib/kubelet/pod-resources/kubelet.sock"
	DefaultInterval   = 10 * time.Second
	DefaultTimeout    = 5 * time.Second
	DefaultMaxAge     = 5 * time.Minute
	DefaultMaxMessage = 64 << 20

	// The usual paths of what is read only if it is named.
	DefaultCheckpoint    = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
	DefaultDRACheckpoint = "/var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint.json"
)

// lister asks the kubelet. Each method makes one call, within the deadline of its context, and fills what
// it is given. An error that is errors.ErrUnsupported says that this kubelet does not offer the call.
type lister interface {
	list(context.Context, *listing) error
	allocatable(context.Context, *allocatable) error
}

// Options are what a Map needs. The zero value of a field is its default.
type Options struct {
	// Socket is the path of the kubelet's PodResources socket. Empty: no source is configured, and holdings
	// are never known. The socket's directory has to be mounted, not the socket, which is another file
	// after each restart of the kubelet.
	Socket string
	// Interval is the time from one poll to the next.
	Interval time.Duration
	// Timeout is the deadline of one call.
	Timeout time.Duration
	// MaxAge is how long the last good answer is used when no other comes.
	MaxAge time.Duration
	// MaxMessage bounds one answer, in bytes.
	MaxMessage int
	// HonestResources are resource names, besides those of the table, whose device ids always name the
	// real GPU.
	HonestResources []string
	// Checkpoint is the path of the kubelet's device checkpoint, DefaultCheckpoint on most nodes; empty: it is not
	// read. It tells the UIDs of pods, and the GPUs of schemes whose device ids do not. It takes user 0 and its
	// folder mounted read-only. Like the two below, it only adds to what the socket lists.
	Checkpoint string
	// Dev is the folder with the host's device nodes, in which links of one scheme are followed; "/dev" by default.
	Dev string
	// API are the pods of this node at the API server, watched while Run runs; nil: they are not. It tells the GPUs
	// of schemes that write them into annotations, and the UIDs, labels and owners of pods.
	API *APIOptions
	// DRACheckpoint is the path of the checkpoint of NVIDIA's DRA driver, DefaultDRACheckpoint on most nodes; empty:
	// it is not read. It tells MIG devices that the driver makes, shares of claims and administrators' claims.
	DRACheckpoint string
	// Logger gets changes of health and unknown ids, each once. The default discards.
	Logger *slog.Logger
	// Clock is the time; time.Now by default.
	Clock func() time.Time
	// Jitter is in [0, 1), and spreads retries; a random number by default.
	Jitter func() float64
}

// Map knows who holds which GPU. All methods are safe for concurrent use.
type Map struct {
	options Options
	grammar grammar
	lister  lister // nil: not configured
	log     *slog.Logger
	watch   *podWatch // nil: not configured

	polling sync.Mutex // held through a Poll: one at a time
	files   files      // guarded by polling

	mu    sync.Mutex // guards what follows
	state state
	cache cache
	names nameIndex // the last answer to ContainerOf
}

// state is what the last polls have left.
type state struct {
	record *record   // the believed one; nil before
	at     time.Time // when its answer came
	// doubted tells that the last answer dropped everything and waits for another that says the same.
	doubted  bool
	errors   uint64
	failures int // in a row
	problem  string
	duration gpu.Opt[time.Duration]
	success  gpu.Opt[time.Time]
	// complaint is the last problem of the second call, which does not make the source fail.
	complaint string
	logged    map[Unrecognised]bool
	// checkpoint and dra are the health of the files.
	checkpoint, dra health
}

// cache is the last resolution: it is good as long as neither argument changes.
type cache struct {
	record    *record
	inventory *gpu.Inventory
	pods      *podTable
	allocs    gpu.Allocations
}

// New returns a Map. It starts nothing and touches nothing.
func New(o Options) *Map {
	if o.Socket == "" {
		return newMap(o, nil)
	}
	return newMap(o, newSocketLister(o.Socket, positive(o.MaxMessage, DefaultMaxMessage)))
}

func newMap(o Options, l lister) *Map {
	o.Interval = positive(o.Interval, DefaultInterval)
	o.Timeout = positive(o.Timeout, DefaultTimeout)
	o.MaxAge = positive(o.MaxAge, DefaultMaxAge)
	o.MaxMessage = positive(o.MaxMessage, DefaultMaxMessage)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	m := &Map{options: o, grammar: grammar{honest: slices.Clone(o.HonestResources), seed: maphash.MakeSeed()}, lister: l, log: o.Logger}
	if o.Dev == "" {
		m.options.Dev = "/dev"
	}
	if o.API != nil {
		api := *o.API
		api.MaxAge = positive(api.MaxAge, o.MaxAge)
		m.watch = newPodWatch(api, o.Clock, o.Jitter, o.Logger)
	}
	m.state.logged = map[Unrecognised]bool{}
	return m
}

func positive[T int | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// Run polls until ctx ends, and returns nil then. It closes the connection to the kubelet.
func (m *Map) Run(ctx context.Context) error {
	defer m.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	if m.watch != nil && m.lister != nil {
		var watching sync.WaitGroup
		defer watching.Wait()
		watching.Go(func() { m.watch.run(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		// The error is in the health of the source already, and in the log if it is new.
		_ = m.Poll(ctx)
		timer.Reset(m.delay())
	}
}

// Close ends the connection to the kubelet, if there is one. A later Poll opens another.
func (m *Map) Close() error {
	m.polling.Lock()
	defer m.polling.Unlock()
	if c, ok := m.lister.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// firstRetry is the mean delay after the first failure, and the delay after an answer that needs another
// to be believed: a restarted kubelet lists nothing for up to a second.
const firstRetry = 2 * time.Second

// delay is the time from the end of one poll to the next. After failures its mean grows from firstRetry to
// six intervals; it is spread by half to both sides, so that the clients of a node do not knock together.
func (m *Map) delay() time.Duration {
	m.mu.Lock()
	failures, doubted := m.state.failures, m.state.doubted
	m.mu.Unlock()
	switch {
	case failures > 0:
		longest := max(6*m.options.Interval, firstRetry)
		mean := firstRetry
		for i := 1; i < failures && mean < longest; i++ {
			mean *= 2
		}
		mean = min(mean, longest)
		return mean/2 + time.Duration(m.options.Jitter()*float64(mean))
	case doubted:
		return min(firstRetry, m.options.Interval)
	}
	return m.options.Interval
}

// Poll asks the kubelet once and returns what went wrong with that. The last good answer stays in use.
// Polls never overlap: a second waits for the first.
func (m *Map) Poll(ctx context.Context) error {
	if m.lister == nil {
		return nil
	}
	m.polling.Lock()
	defer m.polling.Unlock()
	began := m.options.Clock()
	list := newListing(m.grammar)
	err := m.call(ctx, func(ctx context.Context) error { return m.lister.list(ctx, list) })
	if ctx.Err() != nil {
		return ctx.Err() // our own end is no failure of the kubelet's
	}
	if err != nil {
		m.failed(began, err)
		return fmt.Errorf("list pod resources: %w", err)
	}
	answer := readAnswer(list)
	if !m.credible(answer) {
		m.doubt(began)
		return nil
	}
	// The capacity is asked after the list, so that what is held was listed as allocatable.
	capacity := newAllocatable(m.grammar)
	err = m.call(ctx, func(ctx context.Context) error { return m.lister.allocatable(ctx, capacity) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The files are read after the list: what is listed was written before it was handed out.
	m.read(answer)
	m.believe(began, answer, capacity, err)
	return nil
}

func (m *Map) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.options.Timeout)
	defer cancel()
	return f(ctx)
}

// credible reports whether an answer may be believed at once. A kubelet that was just restarted lists no
// pods for a moment, and all GPUs would seem free: an answer without any holding after one with some, or a
// first answer without any pod (at least this exporter's own should be there), needs a second like it.
func (m *Map) credible(a *answer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.state.doubted || !a.holdsNothing():
		return true
	case m.state.record == nil:
		return a.pods > 0
	}
	return m.state.record.answer.holdsNothing()
}

func (m *Map) doubt(began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.succeeded(began)
	m.state.doubted = true
	m.log.Debug("kubelet lists no holdings at all; waiting for a second answer")
}

func (m *Map) failed(began time.Time, err error) {
	problem := explain(err, m.options)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.state
	s.errors++
	s.failures++
	// The confirming answer has to follow the doubted one, with no restart in between.
	s.doubted = false
	s.duration = gpu.Some(m.options.Clock().Sub(began))
	if problem != s.problem {
		m.log.Warn("cannot list pod resources", "problem", problem)
	}
	s.problem = problem
}

// succeeded keeps the health of a good answer. The caller holds mu.
func (m *Map) succeeded(began time.Time) {
	s := &m.state
	now := m.options.Clock()
	if s.problem != "" {
		m.log.Info("pod resources are listed again", "after_failures", s.failures)
	}
	s.failures, s.problem = 0, ""
	s.duration = gpu.Some(now.Sub(began))
	s.success = gpu.Some(now)
}

func (m *Map) believe(began time.Time, a *answer, list *allocatable, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.succeeded(began)
	s := &m.state
	s.doubted = false
	next := m.evidence(a, s.record)
	var before *answer
	if s.record != nil {
		before, next.capacity, next.resources = s.record.answer, s.record.capacity, s.record.resources
	}
	switch {
	case err == nil:
		next.capacity = readCapacity(list, next.capacity)
		s.complaint = ""
	case errors.Is(err, errors.ErrUnsupported):
	default:
		s.errors++
		if complaint := explain(err, m.options); complaint != s.complaint {
			s.complaint = complaint
			m.log.Warn("cannot list allocatable resources; counts and shares stay as they were", "problem", complaint)
		}
	}
	next.resources = remember(next.resources, a)
	date(a, before, s.success)
	s.record, s.at = next, m.options.Clock()
	if m.watch != nil && !m.watch.asked() {
		return // it may tell all of them in a moment
	}
	for _, u := range m.unexplained() {
		u.Devices = 0
		if !s.logged[u] && len(s.logged) < strangest {
			s.logged[u] = true
			m.log.Warn("device ids do not tell the GPU; they count as unresolved",
				"resource", u.Resource, "scheme", u.Scheme, "shape", u.Shape, "truth", u.Truth)
		}
	}
}

// remember adds the resources of an answer to those that were seen.
func remember(seen []string, a *answer) []string {
	for resource := range a.allocated {
		if !a.uncertain[resource] && !slices.Contains(seen, resource) {
			seen = append(slices.Clone(seen), resource)
		}
	}
	return seen
}

// date gives every unit its beginning: kept from the answer before, else now. What the first answer has
// began at some time before, and nobody tells when.
func date(a, before *answer, now gpu.Opt[time.Time]) {
	if before == nil {
		return
	}
	since := make(map[unitKey]gpu.Opt[time.Time], len(before.units))
	for _, u := range before.units {
		since[u.unitKey] = u.since
	}
	for i := range a.units {
		u := &a.units[i]
		if began, ok := since[u.unitKey]; ok {
			u.since = began
		} else {
			u.since = now
		}
	}
	hidden := make(map[holderKey]gpu.Opt[time.Time], len(before.blind))
	for _, b := range before.blind {
		hidden[b.holderKey] = b.since
	}
	for i := range a.blind {
		b := &a.blind[i]
		if began, ok := hidden[b.holderKey]; ok {
			b.since = began
		} else {
			b.since = now
		}
	}
}

// Holdings resolves the last believed answer against the GPUs of inv, which must not change afterwards;
// nil is a node without GPUs. It does no input or output, and the same inventory costs next to nothing
// until there is a new answer. The result is immutable and shared.
func (m *Map) Allocations(inv *gpu.Inventory) gpu.Allocations {
	if m.lister == nil {
		return gpu.Allocations{}
	}
	pods := m.watched()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.state
	age := max(m.options.Clock().Sub(s.at), 0)
	var h gpu.Allocations
	if s.record != nil && age <= m.options.MaxAge {
		if m.cache.record != s.record || m.cache.inventory != inv || m.cache.pods != pods {
			m.cache = cache{record: s.record, inventory: inv, pods: pods, allocs: s.record.resolve(inv, pods)}
		}
		h = m.cache.allocs
		h.Known = true
	}
	h.Configured = true
	h.Sources = m.sources(age)
	h.PollGroups = []gpu.PollHealth{{PollGroup: gpu.PollKubelet, Interval: m.options.Interval, Duration: s.duration}}
	return h
}

// source is the health of the socket. The caller holds mu.
func (m *Map) source(age time.Duration) gpu.Source {
	s := &m.state
	src := gpu.Source{Name: gpu.SourcePodResources, Up: s.failures == 0 && s.success.Present(), LastSuccess: s.success,
		Errors: s.errors, Duration: s.duration, Message: s.problem}
	age = age.Round(time.Second)
	switch {
	case src.Up:
	case s.failures == 0:
		src.Message = "the kubelet has not been asked yet"
	case s.record == nil:
		src.Message += "; owners are not known yet"
	case age > m.options.MaxAge:
		src.Message += fmt.Sprintf("; the last answer is %s old and no longer used", age)
	default:
		src.Message += fmt.Sprintf("; using the answer of %s ago", age)
	}
	return src
}

// Unrecognised lists the kinds of device ids in the last believed answer that do not tell their GPU, for
// the page. GPUs that NVML does not have are not among them: their ids are understood.
func (m *Map) Unrecognised() []Unrecognised {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.record == nil {
		return nil
	}
	return m.unexplained()
}

// unexplained lists the kinds of ids of which no source tells the GPU. The caller holds mu.
func (m *Map) unexplained() []Unrecognised {
	r := m.state.record
	dark := map[string]bool{} // resources with a claim of which nothing is told
	for i, c := range r.claims(m.watched()) {
		b := &r.answer.blind[i]
		if _, ok := c.tell(b.row); !ok {
			dark[b.resource] = true
		}
	}
	var out []Unrecognised
	for _, u := range r.answer.strange {
		if dark[u.Resource] {
			out = append(out, u)
		}
	}
	return out
}
