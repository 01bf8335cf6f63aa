package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// A query that fails, or takes too long, is named and costs only its own figure.
func TestAsking(t *testing.T) {
	asks := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		asks[query]++
		switch query {
		case "slow":
			<-r.Context().Done()
		case "bad":
			http.Error(w, "found duplicate series", http.StatusUnprocessableEntity)
		default:
			fmt.Fprint(w, `{"status":"success","data":{"result":[{"metric":{"a":"b"},"value":[1,"2"]},{"metric":{},"value":[1,"2"]}]}}`)
		}
	}))
	defer server.Close()
	var panels []board.Panel
	for _, q := range []string{"good", "slow", "bad", "also good"} {
		panels = append(panels, board.Panel{Title: q, Targets: []board.Target{{Expr: q, Instant: true}}})
	}
	boards := []board.Board{{UID: "b", From: "now-6h", Panels: panels}}
	a := asking{URL: server.URL, Often: 3, Limit: 500 * time.Millisecond, For: time.Minute, Scrape: time.Minute}
	all, err := a.all(t.Context(), boards)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 4 {
		t.Fatalf("%d queries were asked", len(all))
	}
	for i, want := range []struct {
		took, asks int
		over       time.Duration
		err        string
	}{{3, 3, 0, ""}, {0, 2, a.Limit, ""}, {0, 1, 0, "422 Unprocessable Entity: found duplicate series"}, {3, 3, 0, ""}} {
		got := all[i]
		if len(got.Took) != want.took || got.Over != want.over || !strings.HasPrefix(got.Err, want.err) || (got.Err == "") != (want.err == "") || asks[got.Panel] != want.asks {
			t.Errorf("%+v after %d questions, expected %+v", got, asks[got.Panel], want)
		}
		if want.took > 0 && got.Series != 2 {
			t.Errorf("%s: %d series", got.Panel, got.Series)
		}
	}
	if got := slowest(all, false); !strings.HasPrefix(got, "> ") {
		t.Errorf("the slowest is %s", got)
	}
	a.For = -1
	if all, err = a.all(t.Context(), boards); err != nil || !slices.ContainsFunc(all, func(a asked) bool { return strings.HasPrefix(a.Err, "not asked") }) {
		t.Errorf("without time: %+v, %v", all, err)
	}
}

// A board of workloads is asked as it is opened, and as a link to the workload with most pods opens it. What is worked out
// from the choice follows it.
func TestOneWorkload(t *testing.T) {
	var asks []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		switch {
		case strings.HasPrefix(query, "topk(1, count by (namespace, workload)"):
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"namespace":"team","workload":"train"},"value":[1,"2"]}]}}`)
		case strings.Contains(r.URL.Path, "/label/"), strings.HasSuffix(r.URL.Path, "/series"):
			fmt.Fprint(w, `{"status":"success","data":["n1","n2"]}`)
		default:
			asks = append(asks, query)
			fmt.Fprint(w, `{"status":"success","data":{"result":[]}}`)
		}
	}))
	defer server.Close()
	b := board.Board{UID: "b", From: "now-6h", Panels: []board.Panel{{Title: "p", Targets: []board.Target{{Expr: `x{workload=~"$workload", node=~"$nodes"}`, Instant: true}}}}, Variables: []board.Variable{
		{Name: "workload", Type: "query", Query: "label_values(x, workload)", Multi: true, All: true, AllValue: ".*"},
		{Name: "nodes", Type: "query", Query: `label_values(x{workload=~"$workload"}, node)`, Multi: true, All: true}}}
	all, err := asking{URL: server.URL, Often: 1, Limit: time.Second, For: time.Minute, Scrape: time.Minute}.all(t.Context(), []board.Board{b})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := boardsOf(all), []string{"b", "b, one workload"}; !slices.Equal(got, want) {
		t.Errorf("asked %q, expected %q", got, want)
	}
	if want := []string{`x{workload=~".*", node=~"(n1|n2)"}`, `x{workload=~"train", node=~"(n1|n2)"}`}; !slices.Equal(asks, want) {
		t.Errorf("asked %q, expected %q", asks, want)
	}
}

// A series is counted once, wherever the reads of an answer end.
func TestCountSeries(t *testing.T) {
	text := strings.Repeat(`{"metric":{"a":"b"},"values":[[1,"2"]]},`, 7)
	for name, got := range map[string]func() (int, error){
		"whole":        func() (int, error) { return countSeries(strings.NewReader(text)) },
		"byte by byte": func() (int, error) { return countSeries(iotest.OneByteReader(strings.NewReader(text))) },
		"halves":       func() (int, error) { return countSeries(iotest.HalfReader(strings.NewReader(text))) },
	} {
		if n, err := got(); n != 7 || err != nil {
			t.Errorf("%s: %d series, %v", name, n, err)
		}
	}
}

func TestSpread(t *testing.T) {
	took := func(ms ...int) (out []time.Duration) {
		for _, v := range ms {
			out = append(out, time.Duration(v)*time.Millisecond)
		}
		return out
	}
	const limit = 30 * time.Second
	for _, c := range []struct {
		a    asked
		want string
	}{
		{asked{Took: took(9, 2, 5)}, "2 ms | 5 ms | 9 ms"},
		{asked{Took: took(7)}, "7 ms | 7 ms | 7 ms"},
		{asked{Took: took(7, 8), Over: limit, Overs: 1}, "7 ms | 8 ms | > 30s"},
		{asked{Took: took(7), Over: limit, Overs: 1}, "7 ms | > 30s | > 30s"},
		{asked{Over: limit, Overs: 2}, "> 30s | > 30s | > 30s"},
		{asked{Err: "no"}, "none | none | none"},
	} {
		if got := c.a.cells(3); got != c.want {
			t.Errorf("%v: %s, expected %s", c.a, got, c.want)
		}
	}
}
