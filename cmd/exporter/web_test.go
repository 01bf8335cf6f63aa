package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// selfSigned writes a certificate for the loopback and its key, and returns a pool that trusts it.
func selfSigned(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, content := range map[string][]byte{"cert.pem": certificate,
		"key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	return pool
}

// TLS and basic authentication hold for every path, and there is no way around them.
func TestTLSAndBasicAuthentication(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, twoPods)
	pool := selfSigned(t, m.dir)
	config := filepath.Join(m.dir, "web.yml")
	// The hash is bcrypt's of "secret".
	text := "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\nbasic_auth_users:\n  prometheus: " +
		"$2b$10$FfA/4hIcPhDeKQ7PoCrojOea3o.FYuXPIUJAls0fI4URYF5YTMxxi\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := m.start("--web.config.file=" + config)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	base := strings.Replace(p.base, "http://", "https://", 1)
	ask := func(path, password string) (int, string, error) {
		req, err := http.NewRequest(http.MethodGet, base+path, nil)
		if err != nil {
			return 0, "", err
		}
		if password != "" {
			req.SetBasicAuth("prometheus", password)
		}
		res, err := client.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return res.StatusCode, string(body), err
	}
	var code int
	var body string
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if code, body, err = ask("/metrics", "secret"); err == nil && strings.Contains(body, "gpu_device_up{") {
			break
		}
	}
	if err != nil || code != http.StatusOK || !strings.Contains(body, "gpu_device_up{") {
		t.Fatalf("with the password: %d, %v", code, err)
	}
	for _, path := range []string{"/metrics", "/", "/-/healthy", "/-/ready"} {
		for _, password := range []string{"", "wrong"} {
			if code, body, err := ask(path, password); err != nil || code != http.StatusUnauthorized || strings.Contains(body, "gpu_") {
				t.Errorf("%s with password %q: %d, %v", path, password, code, err)
			}
		}
	}
	if res, err := http.Get(p.base + "/metrics"); err == nil {
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			t.Error("the metrics are served without TLS")
		}
	}
	if strings.Contains(p.said(), "secret") {
		t.Error("the log holds the password")
	}
}

// The three forms of the exposition, and compression.
func TestFormats(t *testing.T) {
	t.Parallel()
	m := node(t, twoGPUs, twoPods)
	p := m.start()
	p.until(t, "gpus", bothUp)
	for accept, want := range map[string]struct {
		contentType string
		contains    []string
	}{
		"": {"text/plain", []string{"# TYPE gpu_energy_joules_total counter", "gpu_power_watts{"}},
		"application/openmetrics-text;version=1.0.0": {"application/openmetrics-text",
			[]string{"# TYPE gpu_energy_joules counter", "# UNIT gpu_energy_joules joules", "\n# EOF\n"}},
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": {"application/vnd.google.protobuf",
			[]string{"gpu_exporter_call_duration_seconds"}},
	} {
		req, err := http.NewRequest(http.MethodGet, p.base+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		res, err := http.DefaultClient.Do(req) // asks for gzip by itself, and undoes it
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil && !res.Uncompressed {
			err = errors.New("it is not compressed")
		}
		if err == nil && !strings.HasPrefix(res.Header.Get("Content-Type"), want.contentType) {
			err = fmt.Errorf("it is %s", res.Header.Get("Content-Type"))
		}
		for _, c := range want.contains {
			if err == nil && !strings.Contains(string(body), c) {
				err = fmt.Errorf("it lacks %q", c)
			}
		}
		if err != nil {
			t.Errorf("Accept %q: %v", accept, err)
		}
	}
}
