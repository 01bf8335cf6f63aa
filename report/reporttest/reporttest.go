// Package reporttest plays a Prometheus-compatible server for tests of the report. It knows no PromQL: a question is
// answered with the series of the metric that it names, those of its matchers, added up by its labels. Counters are given as
// what their rate would be.
package reporttest

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Series is one series: its value at a moment in Unix seconds; ok is false where there is none.
type Series struct {
	Name   string
	Labels map[string]string
	At     func(unix int64) (v float64, ok bool)
}

// Server answers from series. Its fields are set before it serves.
type Server struct {
	Series []Series
	// Extra stands in every answer, such as ,"warnings":["x"].
	Extra string
	// Refuse may answer instead of the server.
	Refuse func(w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	asked []string
}

// Asked lists the queries so far.
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

var (
	several  = regexp.MustCompile(`__name__=~"([^"]+)"`)
	matcher  = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*")`)
	grouping = regexp.MustCompile(`^(sum|max|count|group|avg) by \(([^)]*)\)`)
	metric   = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
)

// ServeHTTP answers label values, instant and range queries.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if s.Refuse != nil && s.Refuse(w, r) {
		return
	}
	number := func(name string) float64 { v, _ := strconv.ParseFloat(r.Form.Get(name), 64); return v }
	switch {
	case strings.HasSuffix(r.URL.Path, "/values"):
		s.values(w, strings.Split(r.URL.Path, "/")[4], r.Form.Get("match[]"), int64(number("start")), int64(number("end")))
	case strings.HasSuffix(r.URL.Path, "/query"):
		t := int64(number("time"))
		s.query(w, r.Form.Get("query"), t, t, 1)
	case strings.HasSuffix(r.URL.Path, "/query_range"):
		s.query(w, r.Form.Get("query"), int64(number("start")), int64(number("end")), max(1, int64(number("step"))))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *Server) values(w http.ResponseWriter, label, match string, from, to int64) {
	names := regexp.MustCompile("^(" + several.FindStringSubmatch(match)[1] + ")$")
	seen := map[string]bool{}
	for i := range s.Series {
		x := &s.Series[i]
		if !names.MatchString(x.Name) {
			continue
		}
		v := x.Labels[label]
		if label == "__name__" {
			v = x.Name
		}
		if seen[v] {
			continue
		}
		for t := from; t <= to; t += 300 {
			if _, ok := x.At(t); ok {
				seen[v] = true
				break
			}
		}
	}
	var list []string
	for v := range seen {
		list = append(list, strconv.Quote(v))
	}
	slices.Sort(list)
	fmt.Fprintf(w, `{"status":"success"%s,"data":[%s]}`, s.Extra, strings.Join(list, ","))
}

// matching are the series that a query names, and the labels by which it adds them up; nil keeps all.
func (s *Server) matching(query string) (list []*Series, by []string) {
	names := map[string]bool{}
	if m := several.FindStringSubmatch(query); m != nil {
		for n := range strings.SplitSeq(m[1], "|") {
			names[n] = true
		}
	} else {
		known := map[string]bool{}
		for i := range s.Series {
			known[s.Series[i].Name] = true
		}
		for _, word := range metric.FindAllString(query, -1) {
			if known[word] {
				names[word] = true
				break // the first one is what is asked for; others are joined to it
			}
		}
	}
	if m := grouping.FindStringSubmatch(query); m != nil {
		for l := range strings.SplitSeq(m[2], ",") {
			by = append(by, strings.TrimSpace(l))
		}
	}
	// Matchers of the first selector alone: those of joined metrics are not of interest.
	selector := query
	if i := strings.Index(query, "}"); i >= 0 {
		selector = query[:i]
	}
	want := map[string]string{}
	for _, m := range matcher.FindAllStringSubmatch(selector, -1) {
		if v, err := strconv.Unquote(m[2]); err == nil {
			want[m[1]] = v
		}
	}
	for i := range s.Series {
		x := &s.Series[i]
		ok := names[x.Name]
		for l, v := range want {
			ok = ok && (l == "__name__" || x.Labels[l] == v)
		}
		if ok {
			list = append(list, x)
		}
	}
	return list, by
}

func (s *Server) query(w http.ResponseWriter, query string, from, to, step int64) {
	s.mu.Lock()
	s.asked = append(s.asked, query)
	s.mu.Unlock()
	list, by := s.matching(query)
	groups := map[string][]*Series{}
	labels := map[string][]string{}
	for _, x := range list {
		var pairs []string
		for l, v := range x.Labels {
			if by == nil || slices.Contains(by, l) {
				pairs = append(pairs, strconv.Quote(l)+":"+strconv.Quote(v))
			}
		}
		if by == nil {
			pairs = append(pairs, `"__name__":`+strconv.Quote(x.Name))
		}
		slices.Sort(pairs)
		k := strings.Join(pairs, ",")
		groups[k], labels[k] = append(groups[k], x), pairs
	}
	keys := make([]string, 0, len(groups))
	for k := range groups {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	back := int64(0)
	if strings.Contains(query, "_over_time(") {
		if m := regexp.MustCompile(`\[(\d+)([smhd])\]`).FindStringSubmatch(query); m != nil {
			n, _ := strconv.ParseInt(m[1], 10, 64)
			back = n * map[string]int64{"s": 1, "m": 60, "h": 3600, "d": 86400}[m[2]]
		}
	}
	most := strings.HasPrefix(query, "max") || strings.HasPrefix(query, "group")
	b := make([]byte, 0, 1<<20)
	b = append(b, `{"status":"success"`+s.Extra+`,"data":{"resultType":"matrix","result":[`...)
	first := true
	for _, k := range keys {
		begun := false
		for t := from; t <= to; t += step {
			sum, any := 0.0, false
			for _, x := range groups[k] {
				v, ok := x.At(t)
				for u := t - 300; !ok && u > t-back; u -= 300 {
					v, ok = x.At(u)
				}
				if ok {
					any = true
					if most {
						sum = max(sum, v)
					} else {
						sum += v
					}
				}
			}
			if !any {
				continue
			}
			switch {
			case begun:
				b = append(b, ',')
			case first:
				b = append(b, `{"metric":{`+k+`},"values":[`...)
			default:
				b = append(b, `,{"metric":{`+k+`},"values":[`...)
			}
			begun, first = true, false
			b = append(b, '[')
			b = strconv.AppendInt(b, t, 10)
			b = append(b, `,"`...)
			b = strconv.AppendFloat(b, sum, 'g', -1, 64)
			b = append(b, `"]`...)
		}
		if begun {
			b = append(b, "]}"...)
		}
	}
	b = append(b, "]}}"...)
	_, _ = w.Write(b)
}

// Steady is a value that holds from one moment up to another.
func Steady(v float64, from, to time.Time) func(int64) (float64, bool) {
	a, b := from.Unix(), to.Unix()
	return func(t int64) (float64, bool) { return v, t > a && t <= b }
}
