package web

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
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
	g.rendering = semaphore.NewWeighted(1)
	broken := g.around(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for range 100 {
		func() {
			defer func() { _ = recover() }()
			broken.ServeHTTP(nil, &http.Request{RemoteAddr: "a:1"})
		}()
	}
	if !g.requests.TryAcquire(1) || !g.rendering.TryAcquire(1) {
		t.Error("a request is left in the gate")
	}
}

// A client address gets half of the connections, so that a flood from one address closes no other's connection and
// leaves room for new ones; a closed connection makes room.
func TestConnectionsAreLimitedPerClient(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })}
	go server.Serve(limitConnections([]net.Listener{l}, 4)[0])
	t.Cleanup(func() { server.Close() })
	client := func(host byte) *http.Client {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
		c := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	get := func(c *http.Client) error {
		res, err := c.Get("http://" + l.Addr().String())
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		return err
	}
	scraper, flood := client(2), []*http.Client{client(1), client(1), client(1), client(1)}
	if err := get(scraper); err != nil {
		t.Fatal(err)
	}
	for i, c := range flood {
		if err := get(c); (err == nil) != (i < 2) {
			t.Errorf("connection %d of one address: %v", i, err)
		}
	}
	if err := get(scraper); err != nil {
		t.Errorf("an open connection of another address: %v", err)
	}
	if err := get(client(3)); err != nil {
		t.Errorf("a new connection of another address: %v", err)
	}
	if err := get(client(4)); err == nil {
		t.Error("a fifth connection of four")
	}
	flood[0].CloseIdleConnections()
	for end := time.Now().Add(10 * time.Second); get(flood[3]) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a closed connection makes no room")
		}
	}
}
