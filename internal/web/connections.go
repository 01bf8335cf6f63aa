package web

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

const (
	// maxConnections are open at once. Each may hold a header of maxHeaderBytes.
	maxConnections = 400
	// sendBuffer is what the kernel takes of an answer before its reader does. Left to itself it takes megabytes of a
	// connection on a fast network, and they count as the container's memory.
	sendBuffer = 64 << 10
)

// connections bounds the connections of a server. Where there are too many, one goes that is not being answered: that
// idles, that has not ended its request, or that waits for its place. It is the oldest of the client address that has
// most of them, so that a flood from one address costs the connections of no other. A client that asks as soon as it
// is connected is answered, however many there are that do not.
type connections struct {
	most int

	mu   sync.Mutex
	open map[*connection]uint64 // in the order of their coming
	next uint64
}

type connection struct {
	net.Conn
	of      *connections
	client  string       // its address, without the port
	working atomic.Int32 // requests that are being answered
}

// bounded is a listener of which each connection is counted.
type bounded struct {
	net.Listener
	of *connections
}

// bound counts the connections of the listeners together, and lets the server's handlers say which of them work.
func bound(server *http.Server, listeners []net.Listener, most int) []net.Listener {
	c := &connections{most: most, open: map[*connection]uint64{}}
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		// Under TLS the server knows the connection that lies around ours.
		if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
			conn = outer.NetConn()
		}
		return context.WithValue(ctx, connectionKey{}, conn)
	}
	out := make([]net.Listener, len(listeners))
	for i, l := range listeners {
		out[i] = bounded{l, c}
	}
	return out
}

type connectionKey struct{}

// work says that a request is being answered from now on, until the returned function is called.
func work(ctx context.Context) (done func()) {
	own, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return func() {}
	}
	own.working.Add(1)
	return func() { own.working.Add(-1) }
}

// Accept implements net.Listener.
func (b bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // a wish; without it the kernel's own bound holds
	}
	return b.of.add(conn), nil
}

// add takes a connection in, and closes another where there are too many.
func (c *connections) add(conn net.Conn) *connection {
	own := &connection{Conn: conn, of: c, client: clientOf(conn.RemoteAddr().String())}
	c.mu.Lock()
	c.next++
	c.open[own] = c.next
	var oldest *connection
	if len(c.open) > c.most {
		idle := map[string]int{}
		for o := range c.open {
			if o.working.Load() == 0 {
				idle[o.client]++
			}
		}
		for o, at := range c.open {
			if o.working.Load() != 0 {
				continue
			}
			if oldest == nil || idle[o.client] > idle[oldest.client] || idle[o.client] == idle[oldest.client] && at < c.open[oldest] {
				oldest = o
			}
		}
	}
	c.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return own
}

// Close implements net.Conn.
func (o *connection) Close() error {
	o.of.mu.Lock()
	delete(o.of.open, o)
	o.of.mu.Unlock()
	return o.Conn.Close()
}
