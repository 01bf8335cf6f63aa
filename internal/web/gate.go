package web

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// gate limits concurrent requests. A response counts until its last byte is sent, because it occupies memory until
// then.
// One client address gets at most half of the requests, so that a client that does not read cannot lock out the others.
// Requests over the limit wait for maxWait, then get status 503.
type gate struct {
	max      int
	requests *semaphore.Weighted

	mu      sync.Mutex
	clients map[string]*client
}

// client is an address with requests in the gate.
type client struct {
	requests *semaphore.Weighted
	count    int // waiting or responded to
}

// maxWait is below the usual scrape timeout of 10 s.
const maxWait = 3 * time.Second

func newGate(maxRequests int) *gate {
	return &gate{
		max:      maxRequests,
		requests: semaphore.NewWeighted(int64(maxRequests)),
		clients:  map[string]*client{},
	}
}

// perClient is the maximum number of requests of one client address.
func (g *gate) perClient() int { return (g.max + 1) / 2 }

// enter waits until the request may be served; then leave has to be called.
func (g *gate) enter(ctx context.Context, address string) (leave func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	g.mu.Lock()
	c := g.clients[address]
	if c == nil {
		c = &client{requests: semaphore.NewWeighted(int64(g.perClient()))}
		g.clients[address] = c
	}
	c.count++
	g.mu.Unlock()
	forget := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if c.count--; c.count == 0 {
			delete(g.clients, address)
		}
	}
	if c.requests.Acquire(ctx, 1) != nil {
		forget()
		return nil, false
	}
	if g.requests.Acquire(ctx, 1) != nil {
		c.requests.Release(1)
		forget()
		return nil, false
	}
	return func() {
		g.requests.Release(1)
		c.requests.Release(1)
		forget()
	}, true
}

// limit has next serve the requests within the limits.
func (g *gate) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, ok := g.enter(r.Context(), addressOf(r.RemoteAddr))
		if !ok {
			text := fmt.Sprintf("too many concurrent requests: the limit is %d, %d per client address; see "+
				"--web.max-requests", g.max, g.perClient())
			http.Error(w, text, http.StatusServiceUnavailable)
			return
		}
		defer leave()
		defer serving(r.Context())()
		next.ServeHTTP(w, r)
	})
}

// addressOf is the address of a client without its port.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote // a Unix socket or a virtual machine
	}
	return host
}
