package scale

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/dashboard"
)

// A query that fails or times out costs its own figure alone.
func TestQueries(t *testing.T) {
	runs := map[string]int{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		runs[query]++
		switch query {
		case "slow":
			<-r.Context().Done()
		case "bad":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"status":"error","errorType":"execution","error":"found duplicate series"}`)
		default:
			fmt.Fprint(w,
				`{"status":"success","data":{"resultType":"vector","result":[`+
					`{"metric":{"a":"b"},"value":[1,"2"]},{"metric":{},"value":[1,"2"]}]}}`)
		}
	}))
	defer api.Close()
	var panels []dashboard.Panel
	for _, q := range []string{"good", "slow", "bad", "also good"} {
		panels = append(panels, dashboard.Panel{Title: q, Targets: []dashboard.Target{{Expr: q, Instant: true}}})
	}
	boards := []dashboard.Dashboard{{UID: "b", From: "now-6h", Panels: panels}}
	on := &server{Client: dashboard.Client{URL: api.URL}}
	a := querier{server: on, repeat: 3, timeout: 500 * time.Millisecond, total: time.Minute, scrape: time.Minute}
	all, err := a.all(t.Context(), boards)
	must.OK(t, err)
	if len(all) != 4 {
		t.Fatalf("%d queries ran", len(all))
	}
	for i, want := range []struct {
		took, runs, timeouts int
		err                  string
	}{{3, 3, 0, ""}, {0, 2, 2, ""}, {0, 1, 0, "found duplicate series"}, {3, 3, 0, ""}} {
		got := all[i]
		if len(got.Seconds) != want.took || got.Timeouts != want.timeouts || !strings.Contains(got.Err, want.err) ||
			(got.Err == "") != (want.err == "") || runs[got.Panel] != want.runs {
			t.Errorf("%+v after %d runs, expected %+v", got, runs[got.Panel], want)
		}
		if want.took > 0 && got.Series != 2 {
			t.Errorf("%s: %d series", got.Panel, got.Series)
		}
	}
	if got := Slowest(all); len(got) != 1 || got[0].Panel != "slow" {
		t.Errorf("the slowest is %v", got)
	}
	a.total = -1
	if all, err = a.all(t.Context(), boards); err != nil || !strings.HasPrefix(all[0].Err, "not run") {
		t.Errorf("without time: %+v, %v", all, err)
	}
}

// A dashboard of workloads runs as a link to the workload with most pods opens it, and with all workloads. Variables that depend on
// the choice follow it.
func TestOneWorkload(t *testing.T) {
	var queries []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		switch {
		case strings.HasPrefix(query, "topk(1, count by (namespace, workload)"):
			fmt.Fprint(w,
				`{"status":"success","data":{"resultType":"vector","result":[`+
					`{"metric":{"namespace":"team","workload":"train"},"value":[1,"2"]}]}}`)
		case strings.Contains(r.URL.Path, "/label/"), strings.HasSuffix(r.URL.Path, "/series"):
			fmt.Fprint(w, `{"status":"success","data":["n1","n2"]}`)
		default:
			queries = append(queries, query)
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
		}
	}))
	defer api.Close()
	b := dashboard.Dashboard{UID: "b", From: "now-6h", Panels: []dashboard.Panel{{Title: "p",
		Targets: []dashboard.Target{{Expr: `x{workload=~"$workload", node=~"$nodes"}`, Instant: true}}}}, Variables: []dashboard.Variable{
		{Name: "workload", Type: "query", Query: "label_values(x, workload)", Multi: true, All: true, AllValue: ".*"},
		{Name: "nodes", Type: "query", Query: `label_values(x{workload=~"$workload"}, node)`, Multi: true, All: true}}}
	all, err := querier{server: &server{Client: dashboard.Client{URL: api.URL}}, repeat: 1, timeout: time.Second, total: time.Minute,
		scrape: time.Minute}.all(t.Context(), []dashboard.Dashboard{b})
	must.OK(t, err)
	if got := Slowest(all); len(got) != 2 || got[0].Dashboard != "b" || got[1].Dashboard != "b, all workloads of a namespace" {
		t.Errorf("ran %v", got)
	}
	if want := []string{`x{workload=~"train", node=~"(n1|n2)"}`, `x{workload=~".*", node=~"(n1|n2)"}`}; !slices.Equal(queries, want) {
		t.Errorf("ran %q, expected %q", queries, want)
	}
}

// A panel that limits its points is asked for so many.
func TestPoints(t *testing.T) {
	var steps []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		steps = append(steps, r.FormValue("step"))
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[]}}`)
	}))
	defer api.Close()
	targets := []dashboard.Target{{Expr: "x"}}
	b := dashboard.Dashboard{UID: "b", From: "now-24h", Panels: []dashboard.Panel{{Targets: targets},
		{Targets: targets, MaxDataPoints: 288}}}
	if _, err := (querier{server: &server{Client: dashboard.Client{URL: api.URL}}, repeat: 1, timeout: time.Second, total: time.Minute,
		scrape: time.Minute}).all(t.Context(), []dashboard.Dashboard{b}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(steps, []string{"60", "300"}) {
		t.Errorf("steps of %q seconds", steps)
	}
}
