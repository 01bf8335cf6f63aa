package web

import (
	"bufio"
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// answer keeps back what a handler writes until it is sent whole, packed as it comes where the client takes it so: of
// a page only its twentieth is ever held in memory then. It is used again and again.
type answer struct {
	to        http.ResponseWriter
	status    int
	takesGzip bool
	body      bytes.Buffer
	packing   bool
	packer    *gzip.Writer  // into body
	blocks    *bufio.Writer // into packer
}

const (
	// packFrom is the size in bytes from which packing an answer is worth it: what fits into a packet arrives no sooner.
	packFrom = 1400
	// block is how many bytes are packed together: the compressor sees no further back.
	block = 32 << 10
)

func newAnswer() *answer {
	a := &answer{}
	// The compressor without a state holds no memory between blocks, where the others hold most of a megabyte. Its pages
	// are a third larger than those of the usual level, and made in a fraction of the time.
	a.packer, _ = gzip.NewWriterLevel(&a.body, gzip.StatelessCompression) // the level is one that there is
	a.blocks = bufio.NewWriterSize(a.packer, block)
	return a
}

// begin makes the answer ready for a request.
func (a *answer) begin(w http.ResponseWriter, r *http.Request) {
	a.to, a.status, a.takesGzip, a.packing = w, http.StatusOK, takesGzip(r.Header), false
	a.body.Reset()
	w.Header().Add("Vary", "Accept-Encoding")
}

func (a *answer) Header() http.Header    { return a.to.Header() }
func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(p []byte) (int, error) {
	if a.packing {
		return a.blocks.Write(p)
	}
	a.body.Write(p)
	h := a.to.Header()
	// Without a type a server would guess it, and see packed bytes.
	if a.takesGzip && a.body.Len() >= packFrom && h.Get("Content-Encoding") == "" && h.Get("Content-Type") != "" {
		h.Set("Content-Encoding", "gzip")
		a.packing = true
		a.packer.Reset(&a.body)
		a.blocks.Reset(a.packer)
		head := bytes.Clone(a.body.Bytes())
		a.body.Reset()
		_, _ = a.blocks.Write(head) // into memory, as in end
	}
	return len(p), nil
}

// end completes the body. Memory takes all that is written to it: there is no error to look for.
func (a *answer) end() {
	if a.packing {
		_ = a.blocks.Flush()
		_ = a.packer.Close()
	}
}

func (a *answer) send() {
	a.to.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	a.to.WriteHeader(a.status)
	_, _ = a.to.Write(a.body.Bytes()) // a client that has gone needs no answer
	a.to = nil
}

// takesGzip reports whether a client takes gzip (RFC 9110, section 12.5.3).
func takesGzip(h http.Header) bool {
	others := false
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		coding, parameters, _ := strings.Cut(part, ";")
		refused := false
		if name, weight, ok := strings.Cut(strings.TrimSpace(parameters), "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
			refused = err != nil || !(q > 0)
		}
		switch coding = strings.ToLower(strings.TrimSpace(coding)); coding {
		case "gzip", "x-gzip":
			return !refused
		case "*":
			others = !refused
		}
	}
	return others
}
