// Package security_test looks at the real binary as an attacker would: what it opens, writes and starts, which secrets
// it exposes, and how it handles hostile names and requests. docs/security.md has the threat model.
package security_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

const twoGPUs, twoPods, GPUA, GPUB = machine.TwoGPUs, machine.TwoPods, machine.GPUA, machine.GPUB

// ask requests a page; status 0 means no response.
func ask(t *testing.T, client *http.Client, url string, headers ...string) (int, string) {
	t.Helper()
	return askAs(t, client, url, "", headers...)
}

func askAs(t *testing.T, client *http.Client, url, password string, headers ...string) (int, string) {
	t.Helper()
	c := testkit.Client{Client: client, Password: password}
	if password != "" {
		c.User = "prometheus"
	}
	p, err := c.Get(t.Context(), url, headers...)
	if err != nil {
		return 0, err.Error()
	}
	return p.Status, p.Text
}

// await waits until the metrics contain all of the texts.
func await(t *testing.T, client *http.Client, url, password string, texts ...string) {
	t.Helper()
	servers.Until(t, "the metrics", func() error {
		_, body := askAs(t, client, url+"/metrics", password)
		for _, text := range texts {
			if !strings.Contains(body, text) {
				return fmt.Errorf("there is no %s in %d bytes", text, len(body))
			}
		}
		return nil
	})
}

// trusting is a client that trusts the certificate in a file alone, and keeps no connection.
func trusting(t *testing.T, path string) *http.Client {
	t.Helper()
	text := must.Read(t, path)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(text))
	// The certificate is for one address of the loopback, whichever the exporter listens on.
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"},
		DisableKeepAlives: true}}
}

// apiServer plays the API server, and writes its certificate to a file.
func apiServer(t *testing.T, ca string, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		answer(w, r)
	}))
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	must.OK(t, os.WriteFile(ca, text, 0o600))
	return s
}

// engineServer plays a container engine on a socket.
func engineServer(t *testing.T, socket, answer string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	must.OK(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, answer) })}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}
