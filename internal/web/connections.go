package web

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

const (
	// maxConnections may be open at once. Each may send a header of maxHeaderBytes.
	maxConnections = 400
	// sendBuffer is how much of a response the kernel buffers for a connection. Its default is megabytes on a fast
	// network, which count as the container's memory.
	sendBuffer = 64 << 10
)

// connections limits the open connections of a server. A connection over the limit displaces one that has no request in
// service: one that is idle, has not finished its request, or waits in the gate. It is the oldest of the client address
// that has most of these, so that a flood from one address costs the connections of no other.
type connections struct {
	max int

	mu   sync.Mutex
	open map[*connection]uint64 // in the order of their acceptance
	next uint64
}

type connection struct {
	net.Conn
	of      *connections
	client  string       // address without port
	serving atomic.Int32 // requests in service
}

// limitedListener counts the connections that it accepts.
type limitedListener struct {
	net.Listener
	connections *connections
}

// limitConnections limits the connections of all listeners of a server together.
func limitConnections(server *http.Server, listeners []net.Listener, limit int) []net.Listener {
	c := &connections{max: limit, open: map[*connection]uint64{}}
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		// With TLS, the server's connection wraps ours.
		if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
			conn = outer.NetConn()
		}
		return context.WithValue(ctx, connectionKey{}, conn)
	}
	out := make([]net.Listener, len(listeners))
	for i, l := range listeners {
		out[i] = limitedListener{l, c}
	}
	return out
}

type connectionKey struct{}

// serving protects the connection of a request from displacement until the returned function is called.
func serving(ctx context.Context) (done func()) {
	own, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return func() {}
	}
	own.serving.Add(1)
	return func() { own.serving.Add(-1) }
}

// Accept implements net.Listener.
func (l limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // without it the kernel's own limit applies
	}
	return l.connections.add(conn), nil
}

// add counts a connection, and closes another one if it is over the limit.
func (c *connections) add(conn net.Conn) *connection {
	own := &connection{Conn: conn, of: c, client: addressOf(conn.RemoteAddr().String())}
	c.mu.Lock()
	c.next++
	c.open[own] = c.next
	var displaced *connection
	if len(c.open) > c.max {
		idle := map[string]int{}
		for o := range c.open {
			if o.serving.Load() == 0 {
				idle[o.client]++
			}
		}
		for o, at := range c.open {
			if o.serving.Load() == 0 && (displaced == nil || idle[o.client] > idle[displaced.client] ||
				idle[o.client] == idle[displaced.client] && at < c.open[displaced]) {
				displaced = o
			}
		}
	}
	c.mu.Unlock()
	if displaced != nil {
		displaced.Close()
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
