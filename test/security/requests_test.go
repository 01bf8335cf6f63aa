package security_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
)

// Malformed requests get the right status and no content of a file, and the exporter then serves the next request.
func TestRequestsThatAbuse(t *testing.T) {
	t.Parallel()
	n := machine.Parse(t, twoGPUs, twoPods)
	e := n.Start(t, machine.Options{Flags: append([]string{"--compat=dcgm-4.9"}, quick...)})
	visit(t, e, "gpu_device_up{")
	get := func(target string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	}
	with := func(header string) string {
		return "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + "\r\n\r\n"
	}
	method := func(name, path string) string {
		return name + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	}
	for _, c := range []struct {
		name, request string
		want          []int // one of these; 0 is a connection that is closed without an answer
	}{
		{"the page", get("/"), []int{200}},
		{"a path upwards", get("/../../../../etc/passwd"), []int{301, 307, 308, 404}},
		{"a path upwards, encoded", get("/%2e%2e/%2e%2e/etc/passwd"), []int{301, 307, 308, 400, 404}},
		{"a path upwards, encoded twice", get("/%252e%252e/etc/passwd"), []int{404}},
		{"a path upwards from the metrics", get("/metrics/../../etc/passwd"), []int{301, 307, 308, 404}},
		{"a path with a backslash", get(`/..\..\etc\passwd`), []int{400, 404}},
		{"a zero byte", get("/metrics%00.txt"), []int{400, 404}},
		{"a raw zero byte", get("/metrics\x00"), []int{400}},
		{"two slashes", get("//metrics"), []int{301, 307, 308, 404}},
		{"another's address", get("http://169.254.169.254/latest/meta-data"), []int{404}},
		{"a path without a slash", get("metrics"), []int{400}},
		{"profiles", get("/debug/pprof/"), []int{404}},
		{"variables", get("/debug/vars"), []int{404}},
		{"a query", get("/metrics?name[]=x&collect[]=%3Cscript%3E&debug=true"), []int{200}},
		{"a broken query", get("/metrics?%zz=;&&==%"), []int{200, 400}},
		{"a long path", get("/" + strings.Repeat("a", 15<<10)), []int{404}},
		{"a path without bounds", get("/" + strings.Repeat("a", 1<<20)), []int{431}},
		{"a header without bounds", with("X: " + strings.Repeat("a", 1<<20)), []int{431}},
		{"headers without end", with(strings.TrimSuffix(strings.Repeat("X: y\r\n", 10_000), "\r\n")), []int{431}},
		{"a strange Accept", with("Accept: " + strings.Repeat("application/openmetrics-text;version=99;q=x,", 200)), []int{200, 400}},
		{"a strange Accept-Encoding", with("Accept-Encoding: gzip;q=1e309, \x7f, br, *;q=-1"), []int{200, 400}},
		{"a folded header", with("X: a\r\n b"), []int{200, 400}},
		{"two lengths", with("Content-Length: 1\r\nContent-Length: 2"), []int{400}},
		{"length and chunks", with("Content-Length: 5\r\nTransfer-Encoding: chunked") + "0\r\n\r\n", []int{200, 400}},
		{"no host", "GET / HTTP/1.1\r\n\r\n", []int{400}},
		{"a host of another", "GET / HTTP/1.1\r\nHost: <script>\r\nConnection: close\r\n\r\n", []int{200, 400}},
		{"an old version", "GET /metrics HTTP/0.9\r\n\r\n", []int{400, 505}},
		{"a version to come", "GET /metrics HTTP/9.9\r\n\r\n", []int{400, 505}},
		{"HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{0, 400, 404, 405, 505}},
		{"TLS to a server without", "\x16\x03\x01\x02\x00\x01\x00", []int{0, 400}},
		{"noise", strings.Repeat("\xff\xfe", 500) + "\r\n\r\n", []int{0, 400}},
		{"HEAD", "HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{200}},
		{"POST", method("POST", "/metrics"), []int{405}},
		{"PUT", method("PUT", "/metrics"), []int{405}},
		{"other names", get("/metrics/dcgm"), []int{200}},
		{"POST to other names", method("POST", "/metrics/dcgm"), []int{405}},
		{"beside other names", get("/metrics/dcgm/../../etc/passwd"), []int{301, 307, 308, 404}},
		{"DELETE", method("DELETE", "/"), []int{405}},
		{"PATCH", method("PATCH", "/-/healthy"), []int{405}},
		{"TRACE", method("TRACE", "/metrics"), []int{405}},
		{"OPTIONS", method("OPTIONS", "/metrics"), []int{405}},
		{"OPTIONS *", method("OPTIONS", "*"), []int{200, 400, 405}},
		{"CONNECT", method("CONNECT", "example.org:443"), []int{404, 405}},
		{"an unknown method", method("GIMME", "/metrics"), []int{405}},
		{"no method", method("", "/metrics"), []int{400}},
		{"an upgrade", with("Upgrade: websocket\r\nConnection: Upgrade"), []int{200}},
		{"a body for a page", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1048576\r\n\r\n" + strings.Repeat("a",
			1<<20), []int{0, 200}},
		{"an expectation", with("Expect: 100-continue\r\nContent-Length: 5") + "hello", []int{200, 417}},
	} {
		conn, err := net.Dial("tcp", e.Address)
		must.OK(t, err)
		conn.SetDeadline(time.Now().Add(15 * time.Second))
		go io.WriteString(conn, c.request)
		status, body := 0, ""
		text, _ := io.ReadAll(conn)
		conn.Close()
		if len(text) > 0 {
			res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(text))), nil)
			if err != nil {
				t.Errorf("%s: not a response: %v: %.200q", c.name, err, text)
				continue
			}
			b, _ := io.ReadAll(res.Body)
			status, body = res.StatusCode, string(b)
		}
		fits := false
		for _, w := range c.want {
			fits = fits || w == status
		}
		if !fits {
			t.Errorf("%s: status %d, want one of %v", c.name, status, c.want)
		}
		if status >= 500 && status != 505 || strings.Contains(string(text), "root:") || strings.Contains(body, "goroutine ") ||
			strings.Contains(body, "<script>") {
			t.Errorf("%s: status %d: %.300q", c.name, status, text)
		}
	}
	if status, body := ask(t, http.DefaultClient, e.Base()+"/metrics"); status != http.StatusOK ||
		!strings.Contains(body, "gpu_device_up{") {
		t.Errorf("afterwards: status %d", status)
	}
	if strings.Contains(e.Said(), "panic") {
		t.Errorf("it panicked: %s", e.Said())
	}
}
