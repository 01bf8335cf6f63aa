package web

import (
	"net"
	"sync"
)

const (
	// maxConnections may be open at once, half of them from one client address. Each may send a header of
	// maxHeaderBytes.
	maxConnections = 400
	// sendBuffer is how much of a response the kernel buffers for a connection. Its default is megabytes on a fast
	// network, which count as the container's memory.
	sendBuffer = 64 << 10
)

// connections counts the open connections of a server by client address.
type connections struct {
	max  int
	mu   sync.Mutex
	all  int
	from map[string]int
}

// limitedListener closes new connections over the limit: a flood from one address takes no other's.
type limitedListener struct {
	net.Listener
	connections *connections
}

// limitConnections limits the connections of all listeners together.
func limitConnections(listeners []net.Listener, limit int) []net.Listener {
	c := &connections{max: limit, from: map[string]int{}}
	out := make([]net.Listener, len(listeners))
	for i, l := range listeners {
		out[i] = limitedListener{l, c}
	}
	return out
}

// Accept implements net.Listener.
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressOf(conn.RemoteAddr().String())
		if !l.connections.add(address) {
			conn.Close()
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(sendBuffer) // without it the kernel's own limit applies
		}
		return &connection{Conn: conn, release: sync.OnceFunc(func() { l.connections.remove(address) })}, nil
	}
}

func (c *connections) add(address string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.max || c.from[address] >= (c.max+1)/2 {
		return false
	}
	c.all++
	c.from[address]++
	return true
}

func (c *connections) remove(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.from[address]--; c.from[address] == 0 {
		delete(c.from, address)
	}
}

type connection struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *connection) Close() error {
	defer c.release()
	return c.Conn.Close()
}
