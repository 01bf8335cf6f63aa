package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
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

// slow is a client that does not read its response before it may.
type slow struct {
	httptest.ResponseRecorder
	writing, may chan struct{}
	fails        bool
}

func (s *slow) Write(b []byte) (int, error) {
	close(s.writing)
	<-s.may
	if s.fails {
		return 0, io.ErrClosedPipe
	}
	return s.ResponseRecorder.Write(b)
}

// The memory of a page that is being sent, or whose sending failed, is not used for the page of a later View.
func TestPageBeingSent(t *testing.T) {
	var view atomic.Pointer[gpu.View]
	c := &cache{latest: view.Load}
	get := func(w http.ResponseWriter) {
		c.send(w, httptest.NewRequest(http.MethodGet, "/", nil), expfmt.TypeTextPlain, func(out io.Writer, v *gpu.View) {
			_, _ = io.WriteString(out, strings.Repeat(v.Node, 10))
		})
	}
	show := func(node string) (*formed, string) {
		view.Store(&gpu.View{Node: node})
		w := httptest.NewRecorder()
		get(w)
		return c.pages[form{format: expfmt.TypeTextPlain}], w.Body.String()
	}
	for _, fails := range []bool{false, true} {
		first, _ := show("a")
		if again, text := show("b"); again != first || text != "bbbbbbbbbb" {
			t.Errorf("%q is written to other memory", text)
		}
		s := &slow{ResponseRecorder: *httptest.NewRecorder(), writing: make(chan struct{}), may: make(chan struct{}), fails: fails}
		sent := make(chan struct{})
		go func() { get(s); close(sent) }()
		<-s.writing
		if other, text := show("c"); other == first || text != "cccccccccc" {
			t.Errorf("%q is written over a page that is being sent", text)
		}
		close(s.may)
		<-sent
		if got := first.String(); got != "bbbbbbbbbb" || !fails && s.Body.String() != got {
			t.Errorf("%q was sent, %q received", got, s.Body)
		}
		if first.readers != map[bool]int{true: 1}[fails] {
			t.Errorf("%d readers of a page, sending fails: %v", first.readers, fails)
		}
	}
}

// A page that could not be written is not sent to the next client, and one that nobody requests any more is dropped.
func TestPagesThatAreDropped(t *testing.T) {
	v := &gpu.View{}
	c := &cache{latest: func() *gpu.View { return v }}
	get := func(encoding string, write func(io.Writer, *gpu.View)) string {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		c.send(w, r, expfmt.TypeTextPlain, write)
		return w.Body.String()
	}
	whole := func(out io.Writer, _ *gpu.View) { _, _ = io.WriteString(out, "whole") }
	get("", whole)
	v = &gpu.View{}
	func() {
		defer func() { _ = recover() }()
		get("", func(out io.Writer, _ *gpu.View) { _, _ = io.WriteString(out, "half"); panic("a broken row") })
	}()
	if got := get("", whole); got != "whole" {
		t.Errorf("got %q", got)
	}
	c.pages[form{format: expfmt.TypeTextPlain}].at = time.Now().Add(-unused - time.Second)
	v = &gpu.View{}
	if get("gzip", whole); len(c.pages) != 1 {
		t.Errorf("%d pages are kept", len(c.pages))
	}
}
