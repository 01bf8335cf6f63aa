package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// The engines, as the label source and the names of containers spell them.
const (
	Docker = "docker"
	Podman = "podman"
)

const (
	// DefaultInterval is the time from one list to the next; an id that nobody knows yet hurries it.
	DefaultInterval = 10 * time.Second
	// DefaultTimeout is the deadline of one list.
	DefaultTimeout = 5 * time.Second
	// patience is after how many lists an id is forgotten of which nobody asks.
	patience = 60
	// hurry is the least time from one list to the next.
	hurry = time.Second
	// mostWanted bounds the ids that are remembered because somebody asked for them.
	mostWanted = 4096
	// mostHeader bounds the head of an answer.
	mostHeader = 64 << 10
)

// Options say which engine is asked. Kind and Socket are required.
type Options struct {
	// Kind is Docker or Podman: the first part of the names.
	Kind string
	// Socket is the path of the engine's socket.
	Socket string
	// Interval and Timeout are DefaultInterval and DefaultTimeout where 0.
	Interval, Timeout time.Duration
	// Clock is the time; time.Now where nil. Logger gets changes of health; nil discards.
	Clock  func() time.Time
	Logger *slog.Logger
}

// Engine knows the names of one engine's running containers. All methods are safe for concurrent use.
type Engine struct {
	o      Options
	client *http.Client
	wake   chan struct{}

	mu     sync.Mutex // guards what follows
	names  map[string]string
	wanted map[string]struct{} // ids of which somebody asked since the last list began
	// absent are ids that a list lacked although it began after they were wanted: how many good lists there had
	// been when somebody last wanted them.
	absent map[string]int
	lists  int  // good ones
	asked  bool // one attempt has ended
	health
}

// health is what came of the attempts.
type health struct {
	failures int // in a row
	errors   uint64
	problem  string
	success  gpu.Opt[time.Time]
	duration gpu.Opt[time.Duration]
}

// New returns an Engine that has not asked yet.
func New(o Options) *Engine {
	if o.Interval <= 0 {
		o.Interval = DefaultInterval
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", o.Socket)
	}
	return &Engine{o: o, wake: make(chan struct{}, 1), wanted: map[string]struct{}{}, absent: map[string]int{},
		client: &http.Client{
			// An engine that is started anew makes its socket anew: each list has a connection of its own.
			Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: mostHeader},
			// Nothing is followed elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
}

// Kind is the engine's kind: Docker or Podman.
func (e *Engine) Kind() string { return e.o.Kind }

// Container returns the name of a container by its full id; empty where it is not known. Settled is false while the
// next list may well tell: none began since the id was first wanted, and the engine answers. It does no input or output.
func (e *Engine) Container(id string) (name string, settled bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if name, ok := e.names[id]; ok {
		return name, true
	}
	if _, ok := e.absent[id]; ok {
		e.absent[id] = e.lists
		return "", true
	}
	if _, ok := e.wanted[id]; !ok {
		if len(e.wanted)+len(e.absent) >= mostWanted {
			return "", true
		}
		e.wanted[id] = struct{}{}
	}
	if e.asked && e.failures > 0 {
		return "", true
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return "", false
}

// Run asks again and again until ctx ends, and returns nil then.
func (e *Engine) Run(ctx context.Context) error {
	for {
		// The error is in the health already, and in the log if it is new.
		_ = e.Poll(ctx)
		if !e.pause(ctx) {
			return nil
		}
	}
}

// pause waits for the next list, and reports false at the end of ctx.
func (e *Engine) pause(ctx context.Context) bool {
	rest := time.NewTimer(e.o.Interval)
	defer rest.Stop()
	soonest := time.NewTimer(min(hurry, e.o.Interval))
	defer soonest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-soonest.C:
	}
	select {
	case <-ctx.Done():
		return false
	case <-rest.C:
	case <-e.wake:
	}
	return true
}

// Poll asks once and returns what went wrong with that. The last good list stays in use: an id is never given out
// again, so that its name stays true.
func (e *Engine) Poll(ctx context.Context) error {
	began := e.o.Clock()
	e.mu.Lock()
	wanted := e.wanted
	e.wanted = map[string]struct{}{}
	e.mu.Unlock()
	select { // who wanted to hurry this list has it
	case <-e.wake:
	default:
	}
	limited, cancel := context.WithTimeout(ctx, e.o.Timeout)
	defer cancel()
	names, err := e.list(limited)
	if ctx.Err() != nil {
		return ctx.Err() // our own end is no failure of the engine's
	}
	if err != nil && limited.Err() != nil {
		err = limited.Err() // rather than what a connection says that was closed for it
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = true
	now := e.o.Clock()
	e.duration = gpu.Some(now.Sub(began))
	if err != nil {
		maps.Copy(e.wanted, wanted) // the list that was for them is yet to come
		problem := e.explain(err)
		if problem != e.problem {
			e.o.Logger.Warn("cannot list the containers of "+e.o.Kind, "problem", problem)
		}
		e.errors++
		e.failures++
		e.problem = problem
		return fmt.Errorf("list the containers of %s: %w", e.o.Kind, err)
	}
	if e.failures > 0 {
		e.o.Logger.Info("the containers of "+e.o.Kind+" are listed again", "after_failures", e.failures)
	}
	e.failures, e.problem, e.success = 0, "", gpu.Some(now)
	e.names = names
	e.lists++
	for id := range wanted {
		e.absent[id] = e.lists
	}
	maps.DeleteFunc(e.absent, func(id string, last int) bool {
		_, known := names[id]
		return known || e.lists-last > patience
	})
	return nil
}

// list asks for the running containers.
func (e *Engine) list(ctx context.Context) (map[string]string, error) {
	// The host of the address is not used: the socket is the engine.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.o.Kind+"/containers/json", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "gpu-exporter")
	resp, err := e.client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // without the address, which says nothing
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers with status %d", resp.StatusCode)
	}
	return readNames(resp.Body)
}

// explain says in one line what is wrong and what to do.
func (e *Engine) explain(err error) string {
	at := e.o.Socket
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return at + " does not exist: mount it, or leave out --" + e.o.Kind + ".socket"
	case errors.Is(err, fs.ErrPermission):
		return at + ": permission denied: run as user 0, or as a member of the socket's group"
	case errors.Is(err, syscall.ECONNREFUSED):
		return at + ": nobody listens; a mounted socket goes stale when the engine starts anew: mount its folder"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s: no answer within %s", at, e.o.Timeout)
	}
	return fmt.Sprintf("%s: %.200q", at, err.Error())
}

// Source is the health of the engine as a source of facts.
func (e *Engine) Source() gpu.Source {
	e.mu.Lock()
	defer e.mu.Unlock()
	src := gpu.Source{Name: e.o.Kind, Up: e.asked && e.failures == 0, LastSuccess: e.success, Errors: e.errors, Duration: e.duration, Message: e.problem}
	at, ok := e.success.Get()
	switch {
	case src.Up:
	case !e.asked:
		src.Message = "it was not asked yet"
	case ok:
		src.Message += fmt.Sprintf("; using the names of %s ago", max(e.o.Clock().Sub(at), 0).Round(time.Second))
	}
	return src
}
