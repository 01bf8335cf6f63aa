package scale

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// A query about the servers that fails is a problem, and costs no other figure.
func TestProblems(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		switch {
		case r.URL.Path == "/api/v1/rules":
			fmt.Fprint(w, `not JSON`)
		case strings.Contains(query, "quantile") || strings.HasPrefix(query, "avg"):
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}`)
		default:
			fmt.Fprint(w,
				`{"status":"success","data":{"resultType":"vector","result":[`+
					`{"metric":{"rule_group":"/rules.yaml;some"},"value":[1,"3"]}]}}`)
		}
	}))
	defer api.Close()
	one := &server{name: "prometheus", Client: dashboard.Client{URL: api.URL}}
	m := &measurement{lab: &lab{options: options{interval: time.Minute, log: t.Output()}, servers: []*server{one, one}}, over: "[60000ms]",
		Step: Step{Servers: []map[string]float64{{}, {}}}}
	m.series(t.Context())
	m.rules(t.Context())
	if m.Of("series") != 6 || m.Of("targets") != 6 || m.Servers[1]["series"] != 3 || m.Of("scrape99") != 0 || m.Of("disk") != 6 {
		t.Errorf("%+v", m.Step)
	}
	if len(m.Groups) != 1 || m.Groups[0] != (Group{"some", 3, 0, 3, 3, 3}) {
		t.Errorf("%+v", m.Groups)
	}
	text := strings.Join(m.Problems, "\n")
	for _, want := range []string{"scrape99: ", "scrape50: ", "page: ", "rule groups: ", "rules: ", "503"} {
		if !strings.Contains(text, want) {
			t.Errorf("the problems lack %q:\n%s", want, text)
		}
	}
}
