package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What a server does not tell is named, and costs no other figure.
func TestTroubleIsNamed(t *testing.T) {
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		switch {
		case r.URL.Path == "/api/v1/rules":
			fmt.Fprint(w, `not JSON`)
		case strings.Contains(query, "quantile") || strings.HasPrefix(query, "avg"):
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"status":"error","error":"query timed out in expression evaluation"}`)
		default:
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"rule_group":"/rules.yaml;some"},"value":[1,"3"]}]}}`)
		}
	}))
	defer answers.Close()
	one := &program{name: "prometheus", url: answers.URL}
	twice := make([]server, 2)
	m := &measuring{installation: &installation{options: options{Interval: time.Minute, Log: t.Output()}, servers: []*program{one, one}}, over: "[60000ms]", figures: figures{Servers: 2, Each: twice}}
	m.series(t.Context())
	m.rules(t.Context())
	if m.Series != 6 || m.Targets != 6 || m.Each[1].Series != 3 || m.Scrape99 != 0 || m.ScrapeMost != 3*time.Second {
		t.Errorf("%+v", m.figures)
	}
	if len(m.Groups) != 1 || m.Groups[0].Name != "some" || m.Groups[0].Most != 3*time.Second || m.Groups[0].Mean != 0 || m.Groups[0].Missed != 6 {
		t.Errorf("%+v", m.Groups)
	}
	text := strings.Join(m.Problems, "\n")
	for _, want := range []string{"quantile(0.99, ", "quantile(0.5, ", "avg(scrape_samples", "time of rule groups: ", "time of rules: ", "query timed out"} {
		if !strings.Contains(text, want) {
			t.Errorf("the problems lack %q:\n%s", want, text)
		}
	}
}
