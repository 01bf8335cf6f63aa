package web

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
)

func compress(c *gzip.Writer, page []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(page) / 8)
	c.Reset(&b)
	_, _ = c.Write(page) // into memory: never an error, as Close
	_ = c.Close()
	return b.Bytes()
}

// acceptsGzip reports whether a client accepts gzip (RFC 9110, section 12.5.3).
func acceptsGzip(h http.Header) bool {
	others := false
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		coding, parameters, _ := strings.Cut(part, ";")
		refused := false
		if name, weight, ok := strings.Cut(strings.TrimSpace(parameters), "="); ok &&
			strings.EqualFold(strings.TrimSpace(name), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
			refused = err != nil || !(q > 0)
		}
		switch strings.ToLower(strings.TrimSpace(coding)) {
		case "gzip", "x-gzip":
			return !refused
		case "*":
			others = !refused
		}
	}
	return others
}
