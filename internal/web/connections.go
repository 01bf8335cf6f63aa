package web

import (
	"context"
	"net"
	"net/http"
	"sync"
)

const (
	// maxConnections may be open at once. Each may send a header of maxHeaderBytes, and holds a page while it is sent.
	maxConnections = 400
	// sendBuffer is how much of a response the kernel buffers for a connection. Its default is megabytes on a fast
	// network, which count as the container's memory.
	sendBuffer = 64 << 10
)

// connections limits the open connections of a server, whoever accepted them (TCP, systemd, vsock). A connection over
// the limit displaces one of the client address that has most of them, so that a flood from one address costs the
// connections of no other: the oldest that has no request in service, else the oldest of all, whose client does not
// read.
type connections struct {
	max int

	mu   sync.Mutex
	open map[net.Conn]*connection
	next uint64
}

type connection struct {
	client  string // address without port
	order   uint64 // of acceptance
	serving int    // requests in service
}

type connectionKey struct{}

// limitConnections limits the connections of a server that does not serve yet.
func limitConnections(server *http.Server, limit int) {
	c := &connections{max: limit, open: map[net.Conn]*connection{}}
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		c.add(conn)
		return context.WithValue(ctx, connectionKey{}, conn)
	}
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.open, conn)
		}
	}
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connectionKey{}).(net.Conn)
		c.serving(conn, 1)
		defer c.serving(conn, -1)
		next.ServeHTTP(w, r)
	})
}

func (c *connections) serving(conn net.Conn, requests int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[conn]; known != nil {
		known.serving += requests
	}
}

// add counts a connection, and closes another one if it is over the limit.
func (c *connections) add(conn net.Conn) {
	if tcp, ok := transport(conn).(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // without it the kernel's own limit applies
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	own := &connection{client: addressOf(conn.RemoteAddr().String()), order: c.next}
	c.open[conn] = own
	if len(c.open) <= c.max {
		return
	}
	count := map[string]int{}
	for _, o := range c.open {
		count[o.client]++
	}
	var displaced net.Conn
	for other, o := range c.open {
		if d := c.open[displaced]; o != own && (d == nil || count[o.client] > count[d.client] ||
			count[o.client] == count[d.client] && (o.serving == 0 && d.serving > 0 ||
				(o.serving == 0) == (d.serving == 0) && o.order < d.order)) {
			displaced = other
		}
	}
	delete(c.open, displaced)
	_ = transport(displaced).Close() // not TLS's own, which would wait for the client
}

// transport is the connection below TLS.
func transport(conn net.Conn) net.Conn {
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return outer.NetConn()
	}
	return conn
}

// addressOf is the address of a client without its port.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote // a Unix socket or a virtual machine
	}
	return host
}
