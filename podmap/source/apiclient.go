package source

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// The paths of a pod's service account.
const (
	DefaultTokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	DefaultCAFile    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// APIOptions configure the watch of this node's pods: their metadata only, by one request that selects the node. It
// needs a ClusterRole with list and watch on pods, and nothing else.
type APIOptions struct {
	// Node is the name of this node in Kubernetes. It is required.
	Node string
	// Server is the URL of the API server; by default that of the cluster which this pod runs in.
	Server string
	// TokenFile and CAFile are read for every request, for both are replaced while the pod runs; by default those of
	// the pod's service account.
	TokenFile, CAFile string
	// Annotation selects the annotations that are kept.
	Annotation func(name string) bool
	// Changed is called after each change of the pods; nil: nothing is.
	Changed func()
	// Jitter is in [0, 1), and spreads retries.
	Jitter func() float64
}

// The media types of metadata. A server without them refuses; it never sends whole pods.
const (
	acceptList  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	acceptWatch = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// listTimeout is the timeout of a list.
const listTimeout = 30 * time.Second

// errExpired means that the server no longer has the version at which a watch should continue: list again.
var errExpired = errors.New("the resource version has expired")

// apiObject is the metadata of a pod, or the Status that stands in its place.
type apiObject struct {
	Code     int
	Message  string
	Metadata struct {
		Name, Namespace, UID, ResourceVersion string
		Labels, Annotations                   map[string]string
		OwnerReferences                       []struct {
			Kind, Name string
			Controller bool
		}
		ManagedFields json.RawMessage
	}
}

// apiClient sends requests to the API server. It belongs to one goroutine.
type apiClient struct {
	api    APIOptions
	grant  string // the permission that its requests need
	client *http.Client
	ca     []byte // that client trusts
	// timeout is that of each phase of a request, and of a connection that is silent.
	timeout time.Duration
}

func newAPIClient(api APIOptions, grant string) apiClient {
	api.TokenFile = cmp.Or(api.TokenFile, DefaultTokenFile)
	api.CAFile = cmp.Or(api.CAFile, DefaultCAFile)
	if host := os.Getenv("KUBERNETES_SERVICE_HOST"); api.Server == "" && host != "" {
		api.Server = "https://" + net.JoinHostPort(host, cmp.Or(os.Getenv("KUBERNETES_SERVICE_PORT"), "443"))
	}
	api.Server = strings.TrimSuffix(api.Server, "/")
	return apiClient{api: api, grant: grant, timeout: listTimeout}
}

// statusError is a refusal.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.code, e.message) }

// get sends a request and returns the body of the response.
func (c *apiClient) get(ctx context.Context, path, accept string, query url.Values) (io.ReadCloser, error) {
	if c.api.Node == "" {
		return nil, errors.New("the node name is not set")
	}
	if c.api.Server == "" {
		return nil, errors.New("the API server is not set, and this does not run in a pod")
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.api.Server+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "gpu-exporter")
	// The token is only sent encrypted.
	secret := ""
	if req.URL.Scheme == "https" {
		token, err := os.ReadFile(c.api.TokenFile)
		if err != nil {
			return nil, err
		}
		secret = strings.TrimSpace(string(token))
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // explain adds the address
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	var status apiObject
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		text = []byte(status.Message)
	}
	if resp.StatusCode == http.StatusGone {
		return nil, errExpired
	}
	return nil, &statusError{resp.StatusCode, without(string(text), secret)}
}

// without removes a secret from the text of a refusal, which may quote the request, and is published and logged. The
// text may end within the secret.
func without(text, secret string) string {
	if secret == "" {
		return text
	}
	text = strings.ReplaceAll(text, secret, "[token]")
	for n := len(secret) - 1; n >= 8; n-- {
		if rest, cut := strings.CutSuffix(text, secret[:n]); cut {
			return rest + "[token]"
		}
	}
	return text
}

// connect creates a client that trusts the certificates which are in the file now.
func (c *apiClient) connect() error {
	var ca []byte
	if strings.HasPrefix(c.api.Server, "https:") {
		var err error
		if ca, err = os.ReadFile(c.api.CAFile); err != nil {
			return err
		}
	}
	if c.client != nil && bytes.Equal(ca, c.ca) {
		return nil
	}
	pool := x509.NewCertPool()
	if len(ca) > 0 && !pool.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s has no certificate", c.api.CAFile)
	}
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	// No proxy of the environment is used, and no redirect is followed.
	c.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			DialContext: (&net.Dialer{Timeout: c.timeout}).DialContext, TLSHandshakeTimeout: c.timeout,
			ResponseHeaderTimeout: c.timeout, ForceAttemptHTTP2: true,
			// A watch may be silent for minutes: a ping shows whether the server is there.
			HTTP2:        &http.HTTP2Config{SendPingTimeout: c.timeout, PingTimeout: c.timeout},
			MaxIdleConns: 2, IdleConnTimeout: time.Minute},
	}
	c.ca = ca
	return nil
}

// explain describes an error: what failed, and what to do.
func (c *apiClient) explain(err error) string {
	text := err.Error()
	var status *statusError
	var file *fs.PathError
	switch {
	case errors.As(err, &status):
		switch status.code {
		case http.StatusUnauthorized:
			text = "token refused: mount a current token of the service account (automountServiceAccountToken)"
		case http.StatusForbidden:
			text = "forbidden: grant the service account " + c.grant + " by a ClusterRole"
		case http.StatusNotAcceptable:
			text = "the server cannot send metadata only, and whole pods are not requested"
		}
	case errors.As(err, &file):
		return text + ": mount the token of the service account (automountServiceAccountToken)"
	case errors.Is(err, context.DeadlineExceeded):
		text = "no response in time"
	}
	if c.api.Server == "" {
		return text
	}
	return c.api.Server + ": " + text
}
