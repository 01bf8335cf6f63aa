package web

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// cache writes the page of a View once per form, and compresses it once: a further request for it costs one write. It
// is safe for concurrent use, and writes one page at a time.
type cache struct {
	latest func() *gpu.View

	mu         sync.Mutex // guards what follows
	pages      map[form]*formed
	compressor *gzip.Writer
}

// formed is a page in a form, which the cache guards. Its memory is used for a later View, unless it is still being sent
// then.
type formed struct {
	bytes.Buffer
	view    *gpu.View
	at      time.Time // when it was written
	readers int
}

// unused is the age of a page from which its form is not expected to be requested again.
const unused = 2 * time.Minute

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
	h.Set("Content-Length", strconv.Itoa(page.Len()))
	if _, err := w.Write(page.Bytes()); err == nil { // else the client has disconnected, and the server may still read it
		c.done(page)
	}
}

// page returns the page of the latest View; it is shared, and must not be modified. The caller is done with it later.
func (c *cache) page(f form, write func(io.Writer, *gpu.View)) *formed {
	c.mu.Lock()
	defer c.mu.Unlock()
	page, view := c.pages[f], c.latest()
	if page != nil && page.view == view {
		page.readers++
		return page
	}
	now := time.Now()
	maps.DeleteFunc(c.pages, func(other form, p *formed) bool { return other == f || now.Sub(p.at) > unused })
	if page == nil || page.readers > 0 {
		next := &formed{}
		if page != nil {
			next.Grow(page.Len() + page.Len()/16)
		}
		page = next
	}
	page.Reset()
	page.view, page.at, page.readers = view, now, 1
	if f.gzip {
		if c.compressor == nil {
			c.compressor, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		}
		c.compressor.Reset(page)
		write(c.compressor, view)
		_ = c.compressor.Close()
	} else {
		write(page, view)
	}
	if c.pages == nil {
		c.pages = map[form]*formed{}
	}
	c.pages[f] = page
	return page
}

func (c *cache) done(page *formed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	page.readers--
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
