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
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	toolkit "github.com/prometheus/exporter-toolkit/web"
)

func TestPlacesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(5)
		enter := func(client string) bool { t.Helper(); return g.enter(t.Context(), client) }
		for i, want := range []bool{true, true, true} {
			if enter("greedy") != want {
				t.Fatalf("place %d", i)
			}
		}
		began := time.Now()
		if enter("greedy") || time.Since(began) != patience {
			t.Errorf("one address got more than its share, or was sent away after %v", time.Since(began))
		}
		if !enter("a") || !enter("b") {
			t.Error("the others' places are taken")
		}
		if enter("c") {
			t.Error("a sixth place of five")
		}

		// Who waits is let in as soon as somebody leaves, in the order of coming, and past those at their share.
		var order []string
		var mu sync.Mutex
		var all sync.WaitGroup
		for i, client := range []string{"greedy", "x", "y"} {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if !enter(client) {
					t.Errorf("%s was sent away", client)
				}
				mu.Lock()
				order = append(order, client)
				mu.Unlock()
			})
		}
		time.Sleep(time.Second)
		for _, client := range []string{"a", "b", "greedy"} {
			g.leave(client)
			synctest.Wait()
		}
		all.Wait()
		if fmt.Sprint(order) != "[x y greedy]" {
			t.Errorf("let in: %v", order)
		}

		// Who goes away while waiting leaves nothing behind.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if g.enter(ctx, "z") {
			t.Error("a place for nobody")
		}
		for _, client := range []string{"greedy", "greedy", "greedy", "x", "y"} {
			g.leave(client)
		}
		if g.all != 0 || len(g.taken) != 0 || len(g.waiting) != 0 {
			t.Errorf("left behind: %d places, %v, %d waiting", g.all, g.taken, len(g.waiting))
		}
	})
}

// A handler that panics gives its place back, and the processor.
func TestAPanicKeepsNoPlace(t *testing.T) {
	g := newGate(1)
	broken := g.around(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for range 100 {
		func() {
			defer func() { _ = recover() }()
			broken.ServeHTTP(nil, &http.Request{RemoteAddr: "a:1"})
		}()
	}
	if g.all != 0 || len(g.rendering) != 0 {
		t.Errorf("%d places and %d processors are taken", g.all, len(g.rendering))
	}
}

// listen runs a server with at most a number of connections. Its handler answers once release is closed.
func listen(t *testing.T, most int) (address string, entered <-chan struct{}, release chan<- struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in, out := make(chan struct{}, 100), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer work(r.Context())()
		in <- struct{}{}
		<-out
		fmt.Fprint(w, "done")
	})}
	go server.Serve(bound(server, []net.Listener{l}, most)[0])
	t.Cleanup(func() { server.Close() })
	return l.Addr().String(), in, out
}

// The oldest connection that does not work makes room; those that are answered stay.
func TestTheOldestIdlerMakesRoom(t *testing.T) {
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
		fmt.Fprint(c, "GET / HTTP/1.1\r\n") // begun, and never ended
		idle = append(idle, c)
	}
	late := dial()
	fmt.Fprint(late, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	idle[0].SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := idle[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest idler: %v", err)
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
	// The younger idler may still end its request.
	fmt.Fprint(idle[1], "Host: x\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(idle[1]), nil); err != nil {
		t.Errorf("the younger idler: %v", err)
	}
}

// A flood from one address takes none of another's connections, however old they are.
func TestAFloodCostsItsOwnAddress(t *testing.T) {
	address, entered, release := listen(t, 4)
	close(release)
	scraper, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer scraper.Close()
	answers := bufio.NewReader(scraper)
	ask := func() {
		t.Helper()
		fmt.Fprint(scraper, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("the scraper's connection: %v", err)
		}
		io.Copy(io.Discard, res.Body)
		<-entered
	}
	ask()
	for range 20 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// Once this one is answered, all before it were taken in.
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Fatal(err)
		}
		<-entered
	}
	ask()
}

// Pages are read, and nothing else: no method changes anything, and none is echoed.
func TestPagesAreOnlyRead(t *testing.T) {
	ts := serve(t, nil, nil)
	for _, path := range []string{"/", "/metrics", "/-/healthy", "/-/ready"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodTrace, http.MethodOptions, "GIMME"} {
			req, err := http.NewRequest(method, ts.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %s", method, path, res.Status)
			}
		}
	}
}

// The parser of a configuration writes many lines; an error is one.
func TestABrokenConfigurationIsOneLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(path, []byte("basic_auth_user: {}\nother: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Listen(&toolkit.FlagConfig{WebConfigFile: &path})
	if err == nil || strings.ContainsAny(err.Error(), "\n\r") || !strings.Contains(err.Error(), "basic_auth_user") {
		t.Errorf("the error is %q", err)
	}
}
