package security_test

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
)

// An invalid web configuration stops the exporter before it listens.
func TestBrokenWebConfigurations(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"no file":                 func(t *testing.T, dir string) { remove(t, dir, "web.yml") },
		"no certificate":          func(t *testing.T, dir string) { remove(t, dir, "cert.pem") },
		"no key":                  func(t *testing.T, dir string) { remove(t, dir, "key.pem") },
		"a certificate for a key": func(t *testing.T, dir string) { copyFile(t, dir, "cert.pem", "key.pem") },
		"not YAML":                func(t *testing.T, dir string) { write(t, filepath.Join(dir, "web.yml"), "tls_server_config: [") },
		"a misspelled key":        func(t *testing.T, dir string) { add(t, dir, "basic_auth_user: {}\n") },
		"not a hash":              func(t *testing.T, dir string) { add(t, dir, "basic_auth_users:\n  a: plain-text-password\n") },
		"an old version of TLS": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "web.yml"), "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  min_version: "+
				"SSL30\n")
		},
		"clients without authority": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "web.yml"), "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  client_auth_type: "+
				"RequireAndVerifyClientCert\n  client_ca_file: nothing.pem\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config := machine.WebConfig(t, dir, machine.Web{})
			spoil(t, dir)
			out, err := exec.Command(machine.Binary(t), "--web.config.file="+config, "--web.listen-address=127.0.0.1:0",
				"--nvml.library="+filepath.Join(dir, "none.so"), "--no-kubelet").CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("it ended with %v, not with exit code 2:\n%s", err, out)
			}
			if text := strings.TrimSpace(string(out)); strings.Contains(text, "\n") || strings.Contains(text, "plain-text-password") {
				t.Errorf("more than one line, or a line with a secret:\n%s", text)
			}
		})
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	must.OK(t, os.Remove(filepath.Join(dir, name)))
}

func add(t *testing.T, dir, text string) {
	t.Helper()
	before := must.Read(t, filepath.Join(dir, "web.yml"))
	write(t, filepath.Join(dir, "web.yml"), before+text)
}

func copyFile(t *testing.T, dir, from, to string) {
	t.Helper()
	text := must.Read(t, filepath.Join(dir, from))
	write(t, filepath.Join(dir, to), text)
}

// What becomes of the configuration while the exporter runs closes it, and mending opens it again.
func TestAccessFailsClosed(t *testing.T) {
	t.Parallel()
	n := machine.Parse(t, twoGPUs, twoPods)
	config := machine.WebConfig(t, n.Dir, machine.Web{Users: true})
	e := n.Start(t, machine.Options{Flags: append([]string{"--compat=dcgm-4.9", "--web.config.file=" + config}, quick...)})
	e.TLS = true
	client := trusting(t, filepath.Join(n.Dir, "cert.pem"))
	good := must.Read(t, config)
	paths := []string{"/metrics", "/metrics/dcgm", "/", "/-/healthy", "/-/ready", "/nothing"}
	open := func(t *testing.T) {
		t.Helper()
		if status, body := askAs(t, client, e.Base()+"/metrics", machine.Password); status != http.StatusOK ||
			!strings.Contains(body, "gpu_") {
			t.Errorf("with the password: status %d: %.200s", status, body)
		}
	}
	closed := func(t *testing.T, client *http.Client, passwords ...string) {
		t.Helper()
		for _, path := range paths {
			for _, password := range passwords {
				if status, body := askAs(t, client, e.Base()+path, password); status != 0 && status != http.StatusUnauthorized &&
					status != http.StatusInternalServerError && status != http.StatusServiceUnavailable || strings.Contains(body, "gpu_") ||
					strings.Contains(body, "DCGM_") || strings.Contains(body, "H100") {
					t.Errorf("%s with %q: status %d: %.200s", path, password, status, body)
				}
			}
		}
	}
	open(t)
	closed(t, client, "", "wrong", machine.Password+"x", strings.Repeat("x", 80), machine.Password[:5])
	t.Run("another user", func(t *testing.T) {
		for _, user := range []string{"", "root", "Prometheus", "prometheus\x00"} {
			credentials := base64.StdEncoding.EncodeToString([]byte(user + ":" + machine.Password))
			if status, _ := ask(t, client, e.Base()+"/metrics", "Authorization", "Basic "+credentials); status != http.StatusUnauthorized {
				t.Errorf("%q: status %d", user, status)
			}
		}
		for _, header := range []string{"Basic", "Basic !!!", "Bearer " + machine.Password, "Basic " + strings.Repeat("A", 8000),
			"Digest x"} {
			if status, _ := ask(t, client, e.Base()+"/metrics", "Authorization", header); status != http.StatusUnauthorized {
				t.Errorf("%.20q: status %d", header, status)
			}
		}
	})
	t.Run("without TLS", func(t *testing.T) {
		if status, body := askAs(t, http.DefaultClient, "http://"+e.Address+"/metrics", machine.Password); status == http.StatusOK ||
			strings.Contains(body, "gpu_") {
			t.Errorf("status %d", status)
		}
	})
	t.Run("old versions of TLS", func(t *testing.T) {
		for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
			c, err := tls.Dial("tcp", e.Address, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
			if err == nil {
				c.Close()
				t.Errorf("%s is spoken", tls.VersionName(version))
			}
		}
	})
	// A client with an open connection, and a new one.
	kept := trusting(t, filepath.Join(n.Dir, "cert.pem"))
	kept.Transport.(*http.Transport).DisableKeepAlives = false
	for name, spoil := range map[string]func(){
		"deleted":       func() { remove(t, n.Dir, "web.yml") },
		"emptied":       func() { write(t, config, "") },
		"without users": func() { write(t, config, good[:strings.Index(good, "basic_auth_users")]) },
		"no users": func() {
			write(t, config, strings.Replace(good, "basic_auth_users:", "basic_auth_users: {}\nhttp_server_config: {}\n#", 1))
		},
		"not YAML":         func() { write(t, config, "tls_server_config: [") },
		"users of no kind": func() { write(t, config, strings.Replace(good, "prometheus:", "other:", 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			askAs(t, kept, e.Base()+"/metrics", machine.Password)
			spoil()
			closed(t, kept, "", machine.Password)
			closed(t, client, "", machine.Password)
			write(t, config, good)
			open(t)
		})
	}
	t.Run("the certificate deleted", func(t *testing.T) {
		text := must.Read(t, filepath.Join(n.Dir, "cert.pem"))
		remove(t, n.Dir, "cert.pem")
		closed(t, client, "", machine.Password)
		write(t, filepath.Join(n.Dir, "cert.pem"), text)
		open(t)
	})
	// The driver was read all the while.
	select {
	case <-e.Done:
		t.Errorf("it ended: %v", e.Err)
	default:
	}
}
