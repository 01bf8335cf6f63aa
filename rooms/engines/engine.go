// Package engines names containers outside pods by what Docker and Podman list.
package engines

import (
	"cmp"
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
	"github.com/gpu-exporter/gpu-exporter/internal/host"
)

// The container engines, as in the label source and in the names of containers.
const (
	Docker = "docker"
	Podman = "podman"
)

const (
	// forgetLists is after how many lists an ID is forgotten that nothing looks up.
	forgetLists = 60
	// minListInterval is the minimum time from one list to the next.
	minListInterval = time.Second
	// maxWanted bounds the IDs that are remembered because they were looked up.
	maxWanted = 4096
	// maxHeader bounds the header of a response.
	maxHeader = 64 << 10
)

// Options configure an Engine. Kind and Socket are required.
type Options struct {
	// Kind is Docker or Podman: the first part of the names.
	Kind string
	// Socket is the path of the engine's socket.
	Socket string
	// Interval is the time from one list to the next, 10 s where 0; an unknown ID shortens it. Timeout is that of a
	// list, 5 s where 0.
	Interval, Timeout time.Duration
	// Clock is the time; time.Now where nil. Logger gets changes of health; nil discards.
	Clock  func() time.Time
	Logger *slog.Logger
}

// Engine has the names of the running containers of Docker or Podman. All methods are safe for concurrent use.
//
// It sends only GET /containers/json, of whose response it keeps IDs and names. Containers are not inspected: their
// configuration (HostConfig.DeviceRequests has the GPUs of --gpus) comes with their environment, which may contain
// secrets.
type Engine struct {
	o      Options
	client *http.Client
	reader *host.Reader
	wake   chan struct{}

	mu     sync.Mutex // guards what follows
	names  map[string]string
	wanted map[string]struct{} // IDs that were looked up since the last list started
	// absent are IDs that are not in a list which started after they were wanted, with the number of successful lists
	// when they were last looked up.
	absent map[string]int
	lists  int // successful
	health gpu.Health
}

// Open returns an Engine; it connects to nothing yet.
func Open(o Options) *Engine {
	o.Interval = cmp.Or(o.Interval, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", o.Socket)
	}
	return &Engine{o: o, reader: host.NewReader(o.Timeout + time.Second), wake: make(chan struct{}, 1),
		wanted: map[string]struct{}{}, absent: map[string]int{},
		client: &http.Client{
			// A restarted engine creates a new socket: each list has a connection of its own.
			Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true,
				MaxResponseHeaderBytes: maxHeader},
			// Redirects are not followed.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
}

// Kind is the engine's kind: Docker or Podman.
func (e *Engine) Kind() string { return e.o.Kind }

// Container returns the name of a container by its full ID; empty where unknown. Settled is false while the next list
// may have it: none has started since the ID was first looked up, and the engine responds. It does no input or output.
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
		if len(e.wanted)+len(e.absent) >= maxWanted {
			return "", true
		}
		e.wanted[id] = struct{}{}
	}
	if e.health.Failures() > 0 {
		return "", true
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return "", false
}

// Run lists until ctx is done.
func (e *Engine) Run(ctx context.Context) {
	for {
		_ = e.Poll(ctx) // the error is in the health, and in the log if it is new
		if !e.pause(ctx) {
			return
		}
	}
}

// pause waits for the next list, and reports false when ctx is done.
func (e *Engine) pause(ctx context.Context) bool {
	rest := time.NewTimer(e.o.Interval)
	defer rest.Stop()
	soonest := time.NewTimer(min(minListInterval, e.o.Interval))
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

// Poll lists once, and returns an error of that. The last list stays in use: IDs are not reused, so its names stay
// valid.
func (e *Engine) Poll(ctx context.Context) error {
	start := e.o.Clock()
	e.mu.Lock()
	wanted := e.wanted
	e.wanted = map[string]struct{}{}
	e.mu.Unlock()
	select { // this is the list that was to come early
	case <-e.wake:
	default:
	}
	limited, cancel := context.WithTimeout(ctx, e.o.Timeout)
	defer cancel()
	// A connection to a socket on a hung file system does not heed its context.
	names, err := host.Read(ctx, e.reader, e.o.Socket, func() (map[string]string, error) { return e.list(limited) })
	if ctx.Err() != nil {
		return ctx.Err() // the end of this program is no failure of the engine
	}
	if err != nil && (limited.Err() != nil || errors.Is(err, host.ErrHung)) {
		err = context.DeadlineExceeded // rather than that of the connection that was closed for it
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.o.Clock()
	e.health.Took(now.Sub(start))
	if err != nil {
		maps.Copy(e.wanted, wanted) // for the next list
		message := e.explain(err)
		if e.health.Failed(message) {
			e.o.Logger.Warn("cannot list containers", "engine", e.o.Kind, "err", message)
		}
		return fmt.Errorf("list the containers of %s: %w", e.o.Kind, err)
	}
	if n := e.health.Succeeded(now); n > 0 {
		e.o.Logger.Info("containers listed again", "engine", e.o.Kind, "after_failures", n)
	}
	e.names = names
	e.lists++
	for id := range wanted {
		e.absent[id] = e.lists
	}
	maps.DeleteFunc(e.absent, func(id string, last int) bool {
		_, known := names[id]
		return known || e.lists-last > forgetLists
	})
	return nil
}

func (e *Engine) list(ctx context.Context) (map[string]string, error) {
	// The host of the URL is not used: the dialer connects to the socket.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.o.Kind+"/containers/json", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "gpu-exporter")
	resp, err := e.client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("response status %d", resp.StatusCode)
	}
	return decodeNames(resp.Body)
}

// explain describes an error: what failed, and what to do.
func (e *Engine) explain(err error) string {
	at := e.o.Socket
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return at + " does not exist: mount it, or unset --containers.socket"
	case errors.Is(err, fs.ErrPermission):
		return at + ": permission denied: run as user 0, or as a member of the socket's group"
	case errors.Is(err, syscall.ECONNREFUSED):
		return at + ": connection refused; a mounted socket goes stale when the engine restarts: mount its directory"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s: no response within %s", at, e.o.Timeout)
	}
	return fmt.Sprintf("%s: %.200q", at, err.Error())
}

// Source returns the health of the engine.
func (e *Engine) Source() gpu.Source {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.health.Source(e.o.Kind, "not queried yet", e.o.Clock(), 0)
}
