// Package reporttest simulates a Prometheus-compatible server for tests of the report. It knows no PromQL: a query
// returns the series of the first metric that it names and its matchers select, aggregated by its labels. Counters are
// given as what their rate would be.
package reporttest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/prom"
)

// At is the value of a series at a Unix time in seconds; ok is false if there is none.
type At func(unix int64) (v float64, ok bool)

// Constant is always the same value.
func Constant(v float64) At { return func(int64) (float64, bool) { return v, true } }

// Series is one series.
type Series struct {
	Name   string
	Labels map[string]string
	At     At
	// From and To are the Unix times after and up to which it has values; a To of 0 is no limit.
	From, To int64
}

func (s *Series) at(unix int64) (v float64, ok bool) {
	if unix <= s.From || s.To > 0 && unix > s.To {
		return 0, false
	}
	return s.At(unix)
}

// Server responds from series. Its fields are set before it serves.
type Server struct {
	Series []Series
	// Extra is part of every response, such as ,"warnings":["x"].
	Extra string
	// Interval is the scrape interval in seconds; 0 is 60.
	Interval int64

	mu     sync.Mutex
	byName map[string][]int // indices of the series
	listed int              // series in byName
}

// Add adds a series with labels given as pairs.
func (s *Server) Add(name string, at At, pairs ...string) {
	labels := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	s.Series = append(s.Series, Series{Name: name, Labels: labels, At: at})
}

var (
	nameRegexp = regexp.MustCompile(`__name__=~"([^"]+)"`)
	matcher    = regexp.MustCompile(`(\w+)(!?)=("(?:[^"\\]|\\.)*")`)
	grouping   = regexp.MustCompile(`^(?:max\()?(sum|max|count|group|avg) by \(([^)]*)\)`)
	metric     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	once       = regexp.MustCompile(`max by \(([^)]*__name__[^)]*)\)`)
	overTime   = regexp.MustCompile(`_over_time\([^[]*\[(\d+)([smhd])\]`)
)

// ServeHTTP responds to queries of label values, instants and ranges.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := func(name string) int64 { v, _ := strconv.ParseFloat(r.FormValue(name), 64); return int64(v) }
	query := r.FormValue("query")
	switch {
	case strings.HasSuffix(r.URL.Path, "/values"):
		var quoted []string
		for _, v := range s.labelValues(strings.Split(r.URL.Path, "/")[4], r.FormValue("match[]"), number("start"), number("end")) {
			quoted = append(quoted, strconv.Quote(v))
		}
		fmt.Fprintf(w, `{"status":"success"%s,"data":[%s]}`, s.Extra, strings.Join(quoted, ","))
	case strings.HasSuffix(r.URL.Path, "/query"):
		s.query(w, query, number("time"), number("time"), 1)
	case strings.HasSuffix(r.URL.Path, "/query_range"):
		s.query(w, query, number("start"), number("end"), max(1, number("step")))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// labelValues lists the values of a label of the series that match and exist in a time.
func (s *Server) labelValues(label, match string, from, to int64) []string {
	names := regexp.MustCompile("^(" + nameRegexp.FindStringSubmatch(match)[1] + ")$")
	seen, matches := map[string]bool{}, map[string]bool{}
	for i := range s.Series {
		x := &s.Series[i]
		v := x.Labels[label]
		if label == "__name__" {
			v = x.Name
		}
		is, known := matches[x.Name]
		if !known {
			is = names.MatchString(x.Name)
			matches[x.Name] = is
		}
		for t := max(from, from+(x.From-from)/300*300); t <= to && !seen[v] && is; t += 300 {
			if _, ok := x.at(t); ok {
				seen[v] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// named are the series of a metric.
func (s *Server) named(name string) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed != len(s.Series) {
		s.byName, s.listed = map[string][]int{}, len(s.Series)
		for i := range s.Series {
			s.byName[s.Series[i].Name] = append(s.byName[s.Series[i].Name], i)
		}
	}
	return s.byName[name]
}

// group is what one series of a response is made of.
type group struct {
	labels prom.Labels
	series []*Series
}

// matching are the series that a query names, by the labels by which it aggregates them.
func (s *Server) matching(query string) map[string]*group {
	names := map[string]bool{}
	if m := nameRegexp.FindStringSubmatch(query); m != nil {
		for n := range strings.SplitSeq(m[1], "|") {
			names[n] = true
		}
	} else {
		words := metric.FindAllString(query, -1) // others are joined to the first one
		if i := slices.IndexFunc(words, func(word string) bool { return len(s.named(word)) > 0 }); i >= 0 {
			names[words[i]] = true
		}
	}
	var by, identity []string
	if m := once.FindStringSubmatch(query); m != nil {
		identity = strings.Split(strings.ReplaceAll(m[1], " ", ""), ",")
	}
	if m := grouping.FindStringSubmatch(query); m != nil {
		by = strings.Split(strings.ReplaceAll(m[2], " ", ""), ",")
	}
	// Only the matchers of the first selector count, not those of joined metrics.
	selector, _, _ := strings.Cut(query, "}")
	wanted, unwanted := map[string]string{}, map[string]string{}
	for _, m := range matcher.FindAllStringSubmatch(selector, -1) {
		switch {
		case m[2] != "":
			unwanted[m[1]], _ = strconv.Unquote(m[3])
		case m[1] != "__name__":
			wanted[m[1]], _ = strconv.Unquote(m[3])
		}
	}
	out := map[string]*group{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, i := range s.named(name) {
			x := &s.Series[i]
			ok := true
			for l, v := range wanted {
				ok = ok && x.Labels[l] == v
			}
			for l, v := range unwanted {
				ok = ok && x.Labels[l] != v
			}
			if !ok {
				continue
			}
			var labels prom.Labels
			for l, v := range x.Labels {
				if by == nil || slices.Contains(by, l) {
					labels = append(labels, prom.Label{Name: l, Value: v})
				}
			}
			if by == nil || slices.Contains(by, "__name__") {
				labels = append(labels, prom.Label{Name: "__name__", Value: x.Name})
			}
			slices.SortFunc(labels, func(a, b prom.Label) int { return strings.Compare(a.Name, b.Name) })
			k := object(labels)
			g := out[k]
			if g == nil {
				g = &group{labels: labels}
				out[k] = g
			}
			same := func(y *Series) bool {
				return identity != nil && !slices.ContainsFunc(identity, func(l string) bool { return x.Labels[l] != y.Labels[l] })
			}
			if !slices.ContainsFunc(g.series, same) {
				g.series = append(g.series, x)
			}
		}
	}
	return out
}

// object are labels as JSON.
func object(labels prom.Labels) string {
	var b []byte
	for i, l := range labels {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, l.Name), ':')
		b = strconv.AppendQuote(b, l.Value)
	}
	return string(b)
}

// evaluate passes on each series of a response.
func (s *Server) evaluate(query string, from, to, step int64, each func(*prom.Series) error) error {
	back := int64(0)
	if m := overTime.FindStringSubmatch(query); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		back = n * map[string]int64{"s": 1, "m": 60, "h": 3600, "d": 86400}[m[2]]
	}
	counting, samples := strings.Contains(query, "count_over_time"), float64(back/max(s.Interval, 60))
	largest := strings.HasPrefix(query, "max by") || strings.HasPrefix(query, "group")
	value := func(group []*Series, t int64) (sum float64, any bool) {
		for _, x := range group {
			v, ok := x.at(t)
			for u := t - 300; !ok && u > t-back; u -= 300 {
				v, ok = x.at(u)
			}
			if counting {
				v, ok = samples, true
			}
			switch {
			case !ok:
			case largest:
				sum = max(sum, v)
			default:
				sum += v
			}
			any = any || ok
		}
		return sum, any
	}
	groups := s.matching(query)
	var r prom.Series
	for _, k := range slices.Sorted(maps.Keys(groups)) {
		g, first, last := groups[k], int64(1<<62), int64(0)
		for _, x := range g.series {
			first = min(first, x.From)
			if x.To == 0 {
				last = to
			}
			last = max(last, x.To+back)
		}
		r.Labels, r.At, r.Value = g.labels, r.At[:0], r.Value[:0]
		for t := from + max(0, first-from)/step*step; t <= min(to, last); t += step {
			if v, ok := value(g.series, t); ok {
				r.At, r.Value = append(r.At, t*1000), append(r.Value, v)
			}
		}
		if len(r.At) == 0 {
			continue
		}
		if err := each(&r); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) query(w http.ResponseWriter, query string, from, to, step int64) {
	fmt.Fprintf(w, `{"status":"success"%s,"data":{"resultType":"matrix","result":[`, s.Extra)
	separator, b := "", []byte(nil)
	_ = s.evaluate(query, from, to, step, func(r *prom.Series) error {
		b = b[:0]
		for i, t := range r.At {
			b = append(strconv.AppendInt(append(b, ",["...), t/1000, 10), `,"`...)
			b = append(strconv.AppendFloat(b, r.Value[i], 'g', -1, 64), `"]`...)
		}
		_, err := fmt.Fprintf(w, `%s{"metric":{%s},"values":[%s]}`, separator, object(r.Labels), b[1:])
		separator = ","
		return err
	})
	fmt.Fprint(w, "]}}")
}

// Direct is the server without HTTP, so that what is measured is the report alone.
type Direct struct{ *Server }

// Range evaluates a query over time.
func (s Direct) Range(_ context.Context, r prom.Range, each func(*prom.Series) error) error {
	return s.evaluate(r.Query, r.From.Unix(), r.To.Unix(), max(1, int64(r.Step.Seconds())), each)
}

// Instant evaluates a query at one time.
func (s Direct) Instant(_ context.Context, query string, at time.Time, each func(*prom.Series) error) error {
	return s.evaluate(query, at.Unix(), at.Unix(), 1, each)
}

// Values lists the values of a label.
func (s Direct) Values(_ context.Context, label, match string, from, to time.Time) ([]string, error) {
	return s.labelValues(label, match, from.Unix(), to.Unix()), nil
}

// Warnings are none.
func (s Direct) Warnings() []string { return nil }
