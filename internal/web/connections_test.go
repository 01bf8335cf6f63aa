package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// listen runs a server with at most a number of connections. Its handler responds once release is closed.
func listen(t *testing.T, limit int) (address string, entered <-chan struct{}, release chan<- struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	in, out := make(chan struct{}, 100), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in <- struct{}{}
		<-out
		fmt.Fprint(w, "done")
	})}
	limitConnections(server, limit)
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return l.Addr().String(), in, out
}

// The oldest connection without a request in service is displaced; the others stay.
func TestIdleConnectionIsDisplaced(t *testing.T) {
	address, entered, release := listen(t, 3)
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		must.OK(t, err)
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
	if _, err := idle[0].Read(make([]byte, 1)); err == nil {
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
	must.OK(t, err)
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
		must.OK(t, err)
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

// A client that does not read its response is displaced, too: it keeps no other address out.
func TestClientThatDoesNotReadIsDisplaced(t *testing.T) {
	address, entered, release := listen(t, 4)
	request := func(host byte) net.Conn {
		t.Helper()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}).Dial("tcp", address)
		must.OK(t, err)
		t.Cleanup(func() { c.Close() })
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		<-entered
		return c
	}
	first := request(1) // its response does not end
	for range 3 {
		request(1)
	}
	scraper := request(2)
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Errorf("the oldest of the others: %v", err)
	}
	close(release)
	if _, err := http.ReadResponse(bufio.NewReader(scraper), nil); err != nil {
		t.Errorf("the scraper: %v", err)
	}
}
