package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestsAreLimitedPerClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(5)
		var mu sync.Mutex
		entered := map[string][]func(){}
		enter := func(client string) bool {
			leave, ok := g.enter(t.Context(), client)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				entered[client] = append(entered[client], leave)
			}
			return ok
		}
		leave := func(client string) {
			mu.Lock()
			defer mu.Unlock()
			entered[client][0]()
			entered[client] = entered[client][1:]
		}
		for i := range 3 {
			if !enter("flood") {
				t.Fatalf("request %d was refused", i)
			}
		}
		start := time.Now()
		if enter("flood") || time.Since(start) != maxWait {
			t.Errorf("one address exceeded its limit, or was refused after %v", time.Since(start))
		}
		if !enter("a") || !enter("b") {
			t.Error("one address used the requests of the others")
		}
		if enter("c") {
			t.Error("a sixth request of five")
		}

		// Waiting requests enter in the order in which they came, but not past the limit of their client.
		var order []string
		var all sync.WaitGroup
		for i, client := range []string{"flood", "x", "y"} {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if !enter(client) {
					t.Errorf("%s was refused", client)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, client)
			})
		}
		time.Sleep(time.Second)
		for _, client := range []string{"a", "b", "flood"} {
			leave(client)
			synctest.Wait()
		}
		all.Wait()
		if fmt.Sprint(order) != "[x y flood]" {
			t.Errorf("entered: %v", order)
		}

		// A client that disconnects while it waits leaves nothing behind.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, ok := g.enter(ctx, "z"); ok {
			t.Error("a disconnected client entered")
		}
		for _, client := range []string{"flood", "flood", "flood", "x", "y"} {
			leave(client)
		}
		if len(g.clients) != 0 || !g.requests.TryAcquire(5) {
			t.Errorf("left behind: %v", g.clients)
		}
	})
}

// A handler that panics leaves the gate.
func TestPanicLeavesTheGate(t *testing.T) {
	g := newGate(1)
	broken := g.limit(buffered(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		panic(http.ErrAbortHandler)
	})))
	for range 100 {
		func() {
			defer func() { _ = recover() }()
			broken.ServeHTTP(nil, &http.Request{RemoteAddr: "a:1"})
		}()
	}
	if !g.requests.TryAcquire(1) {
		t.Error("a request is left in the gate")
	}
}

// listen runs a server with at most a number of connections. Its handler responds once release is closed.
func listen(t *testing.T, limit int) (address string, entered <-chan struct{}, release chan<- struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in, out := make(chan struct{}, 100), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer serving(r.Context())()
		in <- struct{}{}
		<-out
		fmt.Fprint(w, "done")
	})}
	go server.Serve(limitConnections(server, []net.Listener{l}, limit)[0])
	t.Cleanup(func() { server.Close() })
	return l.Addr().String(), in, out
}

// The oldest connection without a request in service is displaced; the others stay.
func TestIdleConnectionIsDisplaced(t *testing.T) {
	address, entered, release := listen(t, 3)
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	worker := dial()
	fmt.Fprint(worker, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	var idle []net.Conn
	for range 2 {
		c := dial()
		fmt.Fprint(c, "GET / HTTP/1.1\r\n") // started and never finished
		idle = append(idle, c)
	}
	late := dial()
	fmt.Fprint(late, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	idle[0].SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := idle[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest idle connection: %v", err)
	}
	close(release)
	for name, c := range map[string]net.Conn{"the first": worker, "the last": late} {
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "done" {
			t.Errorf("%s: %q, %v", name, body, err)
		}
	}
	// The newer idle connection may still finish its request.
	fmt.Fprint(idle[1], "Host: x\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(idle[1]), nil); err != nil {
		t.Errorf("the newer idle connection: %v", err)
	}
}

// A flood from one address takes none of another's connections, however old they are.
func TestFloodDisplacesItsOwnConnections(t *testing.T) {
	address, entered, release := listen(t, 4)
	close(release)
	scraper, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer scraper.Close()
	responses := bufio.NewReader(scraper)
	request := func() {
		t.Helper()
		fmt.Fprint(scraper, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(responses, nil)
		if err != nil {
			t.Fatalf("the scraper's connection: %v", err)
		}
		io.Copy(io.Discard, res.Body)
		<-entered
	}
	request()
	for range 20 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// A response here means that all connections before it were accepted.
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Fatal(err)
		}
		<-entered
	}
	request()
}
