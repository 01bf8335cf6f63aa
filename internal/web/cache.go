package web

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// cache writes the page of a View once per form, and compresses it once: a further request for it costs one write. It
// is safe for concurrent use, and writes one page at a time.
type cache struct {
	latest func() *gpu.View

	mu         sync.Mutex // guards what follows
	view       *gpu.View  // of pages
	pages      map[form][]byte
	sizes      map[form]int // of the pages before
	compressor *gzip.Writer
}

// form is a form of a page. The versions of a format, and its ways to escape names, make no difference to our names.
type form struct {
	format expfmt.FormatType // zero for the node page
	gzip   bool
}

// send sends the page of the latest View, compressed if the client accepts that. write writes the page
// of a View into memory: out returns no error.
func (c *cache) send(w http.ResponseWriter, r *http.Request, format expfmt.FormatType, write func(io.Writer, *gpu.View)) {
	f := form{format, acceptsGzip(r.Header)}
	page := c.page(f, write)
	h := w.Header()
	h.Add("Vary", "Accept-Encoding")
	if f.gzip {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(page)))
	_, _ = w.Write(page) // the client may have disconnected
}

// page returns the page of the latest View; it is shared, and must not be modified.
func (c *cache) page(f form, write func(io.Writer, *gpu.View)) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if view := c.latest(); c.pages == nil || view != c.view {
		c.view, c.pages = view, map[form][]byte{}
	}
	if c.sizes == nil {
		c.sizes = map[form]int{}
	}
	if page, ok := c.pages[f]; ok {
		return page
	}
	var page bytes.Buffer
	page.Grow(c.sizes[f] + c.sizes[f]/16)
	if f.gzip {
		if c.compressor == nil {
			c.compressor, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		}
		c.compressor.Reset(&page)
		write(c.compressor, c.view)
		_ = c.compressor.Close()
	} else {
		write(&page, c.view)
	}
	c.pages[f], c.sizes[f] = page.Bytes(), page.Len()
	return c.pages[f]
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
