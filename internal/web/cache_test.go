package web

import (
	"net/http"
	"testing"
)

func TestAcceptsGzip(t *testing.T) {
	for _, c := range []struct {
		accepts []string
		want    bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"gzip"}, true},
		{[]string{"x-gzip"}, true},
		{[]string{"GZIP"}, true},
		{[]string{"deflate, gzip;q=0.5"}, true},
		{[]string{"deflate", "gzip"}, true},
		{[]string{"gzip;q=0"}, false},
		{[]string{"gzip; Q=0.000"}, false},
		{[]string{"gzip;q=0, *"}, false},
		{[]string{"*, gzip;q=0"}, false},
		{[]string{"*"}, true},
		{[]string{"*;q=0"}, false},
		{[]string{"identity"}, false},
		{[]string{"gzip;q=nonsense"}, false},
		{[]string{"gzip;q=NaN"}, false},
		{[]string{"zstd,br"}, false},
		{[]string{"notgzip"}, false},
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": c.accepts}); got != c.want {
			t.Errorf("%q: %v, want %v", c.accepts, got, c.want)
		}
	}
}
