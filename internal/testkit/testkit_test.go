package testkit

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// A program that exits ends the wait for it, whatever the limit, with its last line.
func TestExitEndsTheWait(t *testing.T) {
	c, err := Start(exec.Command("sh", "-c", "echo first; echo it broke; exit 3"))
	must.OK(t, err)
	err = c.Within(t.Context(), 24*time.Hour, func() error { return errors.New("not ready") })
	for _, part := range []string{"exit status 3", "it broke", "not ready"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if err := c.Stop(); err == nil {
		t.Error("a program that had exited was stopped")
	}
}

func TestStop(t *testing.T) {
	c, err := Start(exec.Command("sleep", "3600"))
	must.OK(t, err)
	tries := 0
	if err := c.Within(t.Context(), 24*time.Hour, func() error {
		if tries++; tries < 3 {
			return errors.New("not ready")
		}
		return nil
	}); err != nil || c.Exited() != nil || tries != 3 {
		t.Errorf("%v, %v after %d tries", err, c.Exited(), tries)
	}
	if err := c.Stop(); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("it ended with %v", err)
	}
}

func TestOutputIsLimited(t *testing.T) {
	var o Output
	for i := range 40 {
		fmt.Fprintf(&o, "%s\nline %d\n", strings.Repeat("x", 1<<20), i)
	}
	if n := len(o.String()); n > outputLimit || n < outputLimit/2 || o.LastLine() != "line 39" || len(o.End()) != 4000 {
		t.Errorf("%d bytes, %q", n, o.LastLine())
	}
}

func TestPages(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user+password != "ab" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(w, "# TYPE a_total counter\na_total{accept=%q} 3\n", r.Header.Get("Accept"))
	}))
	defer s.Close()
	c := Client{User: "a", Password: "b"}
	text, err := c.Fetch(t.Context(), s.URL, "Accept", "text/plain")
	must.OK(t, err)
	families, err := Families(text)
	if err != nil || families["a_total"].GetMetric()[0].GetLabel()[0].GetValue() != "text/plain" {
		t.Errorf("%v, %v", families, err)
	}
	if p, err := (Client{}).Get(t.Context(), s.URL); err != nil || p.Status != http.StatusUnauthorized || p.Text == "" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := (Client{}).Fetch(t.Context(), s.URL); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a password: %v", err)
	}
}
