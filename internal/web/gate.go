package web

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"
)

// gate bounds what clients may take at once. A page that was rendered occupies memory until its reader has taken it,
// so that an answer counts until its last byte has left; and one client address may have half of all, so that a
// client that takes nothing cannot shut out the others. Who finds no place waits a little, for it will not be long
// while readers read, and is then sent away. Rendering is work for the processor alone: more at once than
// there are processors would only take memory, so they wait for each other.
type gate struct {
	most      int // answers at once
	rendering chan struct{}
	answers   sync.Pool // of *answer

	mu      sync.Mutex
	taken   map[string]int // by client address
	all     int
	waiting []*visitor // in the order of their coming
}

// visitor waits for a place.
type visitor struct {
	client string
	enter  chan struct{} // closed when there is one
}

// patience is how long an answer waits for its place: less than a scrape's timeout, which is 10 s as a rule.
const patience = 3 * time.Second

func newGate(most int) *gate {
	return &gate{most: most, rendering: make(chan struct{}, runtime.GOMAXPROCS(0)), answers: sync.Pool{New: func() any { return newAnswer() }}, taken: map[string]int{}}
}

// share is what one client address may have.
func (g *gate) share() int { return (g.most + 1) / 2 }

// take takes a place if there is one for the client. The caller holds mu.
func (g *gate) take(client string) bool {
	if g.all >= g.most || g.taken[client] >= g.share() {
		return false
	}
	g.all++
	g.taken[client]++
	return true
}

// enter waits for a place and reports whether there was one; then leave has to be called.
func (g *gate) enter(ctx context.Context, client string) bool {
	g.mu.Lock()
	if g.take(client) {
		g.mu.Unlock()
		return true
	}
	v := &visitor{client, make(chan struct{})}
	g.waiting = append(g.waiting, v)
	g.mu.Unlock()
	tired := time.NewTimer(patience)
	defer tired.Stop()
	select {
	case <-v.enter:
		return true
	case <-tired.C:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting, v)
	if at < 0 {
		return true // it was let in at the last moment
	}
	g.waiting = slices.Delete(g.waiting, at, at+1)
	return false
}

func (g *gate) leave(client string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all--
	if g.taken[client]--; g.taken[client] == 0 {
		delete(g.taken, client)
	}
	at := slices.IndexFunc(g.waiting, func(v *visitor) bool { return g.take(v.client) })
	if at >= 0 {
		close(g.waiting[at].enter)
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
}

// around has next render into a buffer, packs what it writes for a client that takes it packed, and writes that at once:
// a page that leaves in hundreds of small chunks now and then waits 40 ms for a delayed acknowledgement in the middle.
func (g *gate) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client := clientOf(r.RemoteAddr)
		if !g.enter(r.Context(), client) {
			http.Error(w, fmt.Sprintf("too many requests at once: %d are answered, %d of one address; see --web.max-requests", g.most, g.share()), http.StatusServiceUnavailable)
			return
		}
		defer g.leave(client)
		defer work(r.Context())()
		select {
		case g.rendering <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		a := g.answers.Get().(*answer)
		defer g.answers.Put(a)
		func() {
			defer func() { <-g.rendering }()
			a.begin(w, r)
			next.ServeHTTP(a, r)
			a.end()
		}()
		a.send()
	})
}

// clientOf is the address of a client without its port.
func clientOf(remote string) string {
	client, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote // neither a unix socket nor a virtual machine has a port of this form
	}
	return client
}
