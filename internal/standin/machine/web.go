package machine

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// Password is that of the user prometheus in a Web with users.
const Password = "correct-horse-battery"

// PasswordHash is the bcrypt hash of Password, at minimum cost.
const PasswordHash = "$2a$04$4k7CcftXubj3hvwzw1iFdOAlsjCppQcTWDOpzA0DBMfFoHWqFZX.y"

// Web is what a web configuration has beside TLS.
type Web struct{ Users bool }

// WebConfig writes a certificate for the loopback, its key, and a web configuration into dir, and returns the path of
// the configuration. The certificate is dir/cert.pem.
func WebConfig(t testing.TB, dir string, w Web) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	must.OK(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must.OK(t, err)
	text := "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
	if w.Users {
		text += "basic_auth_users:\n  prometheus: " + PasswordHash + "\n"
	}
	for name, content := range map[string][]byte{"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: der}),
		"key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), "web.yml": []byte(text)} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return filepath.Join(dir, "web.yml")
}
