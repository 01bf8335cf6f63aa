package web

import (
	"bytes"
	"net/http"
	"strconv"

	"github.com/klauspost/compress/gzip"
)

// response buffers what a handler writes, so that it is sent in one write: a page sent in many small chunks may wait
// 40 ms for a delayed acknowledgement.
type response struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// compressFrom is the minimum size of a compressed body: a smaller one fits into a packet anyway.
const compressFrom = 1400

func (b *response) WriteHeader(status int)            { b.status = status }
func (b *response) Write(p []byte) (n int, err error) { return b.body.Write(p) }

// buffered has next write into a buffer and sends it in one write, compressed if the client accepts gzip.
func buffered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &response{ResponseWriter: w, status: http.StatusOK}
		h := w.Header()
		h.Add("Vary", "Accept-Encoding")
		next.ServeHTTP(b, r)
		body := b.body.Bytes()
		// Without a type the server would detect that of the compressed bytes.
		if acceptsGzip(r.Header) && len(body) >= compressFrom && h.Get("Content-Encoding") == "" &&
			h.Get("Content-Type") != "" {
			h.Set("Content-Encoding", "gzip")
			// Without state between blocks the compressor needs no memory of its own, where others need most of a
			// megabyte for each of these rare requests.
			c, _ := gzip.NewWriterLevel(nil, gzip.StatelessCompression) // the level is valid
			body = compress(c, body)
		}
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(b.status)
		_, _ = w.Write(body) // the client may have disconnected
	})
}
