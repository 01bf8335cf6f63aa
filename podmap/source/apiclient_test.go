package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

// What an error of a request means, and what to do.
func TestExplanationsOfTheAPI(t *testing.T) {
	at := &apiClient{api: APIOptions{Server: "https://api"}, grant: "list and watch on pods"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&statusError{401, "Unauthorized"},
			"https://api: token refused: mount a current token of the service account (automountServiceAccountToken)"},
		{&statusError{403, "pods is forbidden"},
			"https://api: forbidden: grant the service account list and watch on pods by a ClusterRole"},
		{&statusError{406, "no"}, "https://api: the server cannot send metadata only, and whole pods are not requested"},
		{&statusError{500, "etcd is gone"}, "https://api: HTTP 500: etcd is gone"},
		{fmt.Errorf("read the list: %w", &statusError{401, ""}),
			"https://api: token refused: mount a current token of the service account (automountServiceAccountToken)"},
		{&fs.PathError{Op: "open", Path: "/token", Err: fs.ErrNotExist},
			"open /token: file does not exist: mount the token of the service account (automountServiceAccountToken)"},
		{fmt.Errorf("read the list: %w", context.DeadlineExceeded), "https://api: no response in time"},
		{errors.New("dial tcp 10.0.0.1:443: connect: connection refused"),
			"https://api: dial tcp 10.0.0.1:443: connect: connection refused"},
	} {
		if got := at.explain(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	if got := (&apiClient{}).explain(errors.New("not set")); got != "not set" {
		t.Errorf("without a server: %q", got)
	}
}

// A response that is no success is an error with the server's own reason, of bounded length.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		text   string
		want   string
	}{
		{500, `{"kind":"Status","message":"etcd is gone"}`, "HTTP 500: etcd is gone"},
		{500, `{"kind":"Status"}`, `HTTP 500: {"kind":"Status"}`},
		{500, `["message"]`, `HTTP 500: ["message"]`},
		{404, "404 page not found", "HTTP 404: 404 page not found"},
		{201, "created", "HTTP 201: created"},
		{204, "", "HTTP 204: "},
		{302, "", "HTTP 302: "},
		{410, `{"message":"too old"}`, errExpired.Error()},
		{500, strings.Repeat("x", 1<<20), "HTTP 500: " + strings.Repeat("x", 4<<10)},
	} {
		s := newScript(step{status: c.status, text: c.text})
		w := s.watch(io.Discard)
		body, err := w.get(t.Context(), "/x", "", nil)
		if body != nil || err == nil || err.Error() != c.want {
			t.Errorf("%d %.40q: %.80v, want %.80q", c.status, c.text, err, c.want)
		}
		if !s.bodies[0].closed {
			t.Errorf("%d %.40q: not closed", c.status, c.text)
		}
	}
}

// What a request needs is checked before it is sent.
func TestRequestsThatCannotBeSent(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct {
		api  APIOptions
		want string
	}{
		{APIOptions{Server: "http://api"}, "the node name is not set"},
		{APIOptions{Node: "n"}, "the API server is not set, and this does not run in a pod"},
		{APIOptions{Node: "n", Server: "http://a b"}, `parse "http://a b/x?": invalid character " " in host name`},
		{APIOptions{Node: "n", Server: "https://api", CAFile: "/nowhere/ca.crt"}, "open /nowhere/ca.crt: no such file or directory"},
	} {
		client := newAPIClient(c.api, "")
		if _, err := client.get(t.Context(), "/x", "", url.Values{}); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %q", c.api, err, c.want)
		}
	}
}

// The server is that of the cluster which the pod runs in, unless it is set.
func TestDefaultServer(t *testing.T) {
	for _, c := range []struct{ host, port, set, want string }{
		{"fd00::1", "6443", "", "https://[fd00::1]:6443"},
		{"10.0.0.1", "", "", "https://10.0.0.1:443"},
		{"10.0.0.1", "6443", "http://proxy/", "http://proxy"},
		{"", "6443", "", ""},
	} {
		t.Setenv("KUBERNETES_SERVICE_HOST", c.host)
		t.Setenv("KUBERNETES_SERVICE_PORT", c.port)
		if got := newAPIClient(APIOptions{}, "").api; got.TokenFile != DefaultTokenFile || got.CAFile != DefaultCAFile {
			t.Errorf("%+v", got)
		}
		got := newAPIClient(APIOptions{Server: c.set, TokenFile: "/t", CAFile: "/c"}, "").api
		if got.Server != c.want || got.TokenFile != "/t" || got.CAFile != "/c" {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// closing counts how often idle connections are closed.
type closing struct {
	http.RoundTripper
	closed int
}

func (c *closing) CloseIdleConnections() { c.closed++ }

// The certificates are read for every request; a client lives as long as they are the same.
func TestCertificatesAreRotated(t *testing.T) {
	a := newAPIServer(t)
	c := newAPIClient(a.options(), "")
	must.OK(t, c.connect())
	first := c.client
	transport := first.Transport.(*http.Transport)
	if transport.Proxy != nil || transport.IdleConnTimeout < time.Second || transport.IdleConnTimeout > 5*time.Minute {
		t.Error("a proxy of the environment, or connections that are never closed")
	}
	if err := c.connect(); err != nil || c.client != first {
		t.Errorf("another client for the same certificates: %v", err)
	}
	old := &closing{}
	c.client = &http.Client{Transport: old}
	cert := must.Read(t, a.ca)
	must.OK(t, os.WriteFile(a.ca, []byte(cert+"\n"), 0o600))
	if err := c.connect(); err != nil || c.client.Transport == old || old.closed != 1 {
		t.Errorf("the old connections were closed %d times, %v", old.closed, err)
	}
	body, err := c.get(t.Context(), "/api/v1/pods", acceptList, url.Values{"fieldSelector": {
		"spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed"}, "watch": {"true"}})
	if body != nil || err == nil || !strings.HasPrefix(err.Error(), "HTTP 400: unexpected GET /api/v1/pods") {
		t.Errorf("%v", err) // of the server that has the certificate
	}
	a.list = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://evil.example/", http.StatusFound)
	}
	if _, err := c.get(t.Context(), "/api/v1/pods", acceptList, url.Values{"fieldSelector": {
		"spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed"}}); err == nil || !strings.HasPrefix(err.Error(), "HTTP 302") {
		t.Errorf("a redirect: %v", err)
	}
	must.OK(t, os.WriteFile(a.ca, nil, 0o600))
	// Of an empty file nothing is trusted: the server's certificate is of none of the system's authorities.
	if _, err := c.get(t.Context(), "/api/v1/pods", "", nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v", err)
	}
	c.api.TokenFile = "/nowhere/token"
	if _, err := c.get(t.Context(), "/x", "", nil); err == nil || err.Error() != "open /nowhere/token: no such file or directory" {
		t.Errorf("%v", err)
	}
	none := filepath.Join(t.TempDir(), "ca.crt")
	must.OK(t, os.WriteFile(none, []byte("nothing"), 0o600))
	c.api.CAFile = none
	if err := c.connect(); err == nil || err.Error() != none+" has no certificate" {
		t.Errorf("%v", err)
	}
}

// frozen forwards connections to an address until it is frozen: then they stay open, and nothing is forwarded.
func frozen(t *testing.T, to string) (address string, freeze func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	var mu sync.RWMutex
	var conns []net.Conn
	forward := func(to, from net.Conn) {
		buffer := make([]byte, 1<<16)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			mu.RLock()
			_, err = to.Write(buffer[:n])
			mu.RUnlock()
			if err != nil {
				return
			}
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				return
			}
			conns = append(conns, in, out)
			go forward(in, out)
			go forward(out, in)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, c := range conns {
			c.Close()
		}
	})
	return l.Addr().String(), func() { mu.Lock(); t.Cleanup(mu.Unlock) }
}

// full listens at an address whose connections are never accepted, and fills its queue: the next one gets no answer.
func full(t *testing.T) (address string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	must.OK(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	must.OK(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must.OK(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	must.OK(t, err)
	address = fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for {
		c, err := net.DialTimeout("tcp", address, 50*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { c.Close() })
	}
}

// A server that no longer answers is given up in every phase of a watch, long before the watch is over.
func TestAServerThatHangs(t *testing.T) {
	for _, c := range []struct{ phase, want string }{
		{"connection", "i/o timeout"}, {"handshake", "TLS handshake timeout"}, {"response", "timeout awaiting response headers"},
		{"events", "read an event: http2: client connection lost"},
	} {
		t.Run(c.phase, func(t *testing.T) {
			a := newAPIServer(t)
			release := make(chan struct{})
			defer close(release)
			hang := func(w http.ResponseWriter, r *http.Request) {
				if c.phase == "events" {
					w.(http.Flusher).Flush()
				}
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
			a.watch = hang
			o := a.options()
			address := strings.TrimPrefix(a.URL, "https://")
			freeze := func() {}
			switch c.phase {
			case "connection":
				address = full(t)
			case "handshake":
				address, freeze = frozen(t, address)
				freeze()
				freeze = func() {}
			case "events":
				address, freeze = frozen(t, address)
			}
			o.Server = "https://" + address
			w := NewWatch(o, Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler), MaxAge: time.Minute})
			w.timeout = 100 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			var watching sync.WaitGroup
			defer watching.Wait()
			defer cancel()
			watching.Go(func() {
				testkit.Until(func() bool { return ctx.Err() != nil || w.Source().Up }) // the watch has begun
				freeze()
			})
			version, err := w.watch(ctx, "7")
			for err != nil && !strings.HasSuffix(err.Error(), c.want) && w.timeout < time.Hour {
				// A busy machine was too slow for an earlier phase.
				w.timeout, w.client = 2*w.timeout, nil
				version, err = w.watch(ctx, "7")
			}
			if version != "7" || err == nil || ctx.Err() != nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("version %s, %v, want %q", version, err, c.want)
			}
			w.client.CloseIdleConnections()
		})
	}
	if d := newAPIClient(APIOptions{}, "").timeout; d < 10*time.Second || d > time.Minute {
		t.Errorf("by default after %v", d)
	}
}
