package testkit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Page is a response.
type Page struct {
	Status int // 0: there was no response
	Header http.Header
	Text   string
}

// Client requests pages. Its zero value is http.DefaultClient.
type Client struct {
	*http.Client
	// User and Password are sent if User is not empty.
	User, Password string
}

// Get requests a page, with headers by name and value.
func (c Client) Get(ctx context.Context, url string, headers ...string) (p Page, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return p, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if c.User != "" {
		req.SetBasicAuth(c.User, c.Password)
	}
	if c.Client == nil {
		c.Client = http.DefaultClient
	}
	res, err := c.Do(req)
	if err != nil {
		return p, err
	}
	defer res.Body.Close()
	var text strings.Builder
	_, err = io.Copy(&text, res.Body)
	return Page{res.StatusCode, res.Header, text.String()}, err
}

// Fetch returns the text of a page; any status but 200 is an error.
func (c Client) Fetch(ctx context.Context, url string, headers ...string) (string, error) {
	p, err := c.Get(ctx, url, headers...)
	if err == nil && p.Status != http.StatusOK {
		err = fmt.Errorf("%s: %d: %.500s", url, p.Status, p.Text)
	}
	return p.Text, err
}

// Families parses a page in the text format.
func Families(text string) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(text))
}
