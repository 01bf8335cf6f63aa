// Package reporttest simulates a Prometheus-compatible server for tests of the report. It knows no PromQL: a query
// returns the series of the first metric that it names and its matchers select, aggregated by its labels. Counters are
// given as what their rate would be.
package reporttest

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
}

// Server responds from series. Its fields are set before it serves.
type Server struct {
	Series []Series
	// Extra is part of every response, such as ,"warnings":["x"].
	Extra string
	// Interval is the scrape interval in seconds; 0 is 60.
	Interval int64
}

// Add adds a series with labels given as pairs.
func (s *Server) Add(name string, at At, pairs ...string) {
	labels := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	s.Series = append(s.Series, Series{name, labels, at})
}

var (
	nameRegexp = regexp.MustCompile(`__name__=~"([^"]+)"`)
	matcher    = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*")`)
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
		s.values(w, strings.Split(r.URL.Path, "/")[4], r.FormValue("match[]"), number("start"), number("end"))
	case strings.HasSuffix(r.URL.Path, "/query"):
		s.query(w, query, number("time"), number("time"), 1)
	case strings.HasSuffix(r.URL.Path, "/query_range"):
		s.query(w, query, number("start"), number("end"), max(1, number("step")))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *Server) values(w http.ResponseWriter, label, match string, from, to int64) {
	names := regexp.MustCompile("^(" + nameRegexp.FindStringSubmatch(match)[1] + ")$")
	seen := map[string]bool{}
	for _, x := range s.Series {
		v := x.Labels[label]
		if label == "__name__" {
			v = x.Name
		}
		for t := from; t <= to && names.MatchString(x.Name) && !seen[strconv.Quote(v)]; t += 300 {
			if _, ok := x.At(t); ok {
				seen[strconv.Quote(v)] = true
			}
		}
	}
	fmt.Fprintf(w, `{"status":"success"%s,"data":[%s]}`, s.Extra, strings.Join(slices.Sorted(maps.Keys(seen)), ","))
}

// matching are the series that a query names, by the labels by which it aggregates them.
func (s *Server) matching(query string) map[string][]*Series {
	names := map[string]bool{}
	if m := nameRegexp.FindStringSubmatch(query); m != nil {
		for n := range strings.SplitSeq(m[1], "|") {
			names[n] = true
		}
	} else {
		words := metric.FindAllString(query, -1) // others are joined to the first one
		if i := slices.IndexFunc(words, func(word string) bool {
			return slices.ContainsFunc(s.Series, func(x Series) bool { return x.Name == word })
		}); i >= 0 {
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
	wanted := map[string]string{}
	for _, m := range matcher.FindAllStringSubmatch(selector, -1) {
		if m[1] != "__name__" {
			wanted[m[1]], _ = strconv.Unquote(m[2])
		}
	}
	out := map[string][]*Series{}
	for i := range s.Series {
		x := &s.Series[i]
		ok := names[x.Name]
		for l, v := range wanted {
			ok = ok && x.Labels[l] == v
		}
		if !ok {
			continue
		}
		var pairs []string
		for l, v := range x.Labels {
			if by == nil || slices.Contains(by, l) {
				pairs = append(pairs, strconv.Quote(l)+":"+strconv.Quote(v))
			}
		}
		if by == nil || slices.Contains(by, "__name__") {
			pairs = append(pairs, `"__name__":`+strconv.Quote(x.Name))
		}
		slices.Sort(pairs)
		k := strings.Join(pairs, ",")
		same := func(y *Series) bool {
			return identity != nil && !slices.ContainsFunc(identity, func(l string) bool { return x.Labels[l] != y.Labels[l] })
		}
		if !slices.ContainsFunc(out[k], same) {
			out[k] = append(out[k], x)
		}
	}
	return out
}

func (s *Server) query(w http.ResponseWriter, query string, from, to, step int64) {
	back := int64(0)
	if m := overTime.FindStringSubmatch(query); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		back = n * map[string]int64{"s": 1, "m": 60, "h": 3600, "d": 86400}[m[2]]
	}
	if strings.Contains(query, "count_over_time") {
		n := float64(back / max(s.Interval, 60))
		count := func(int64) (float64, bool) { return n, true }
		s = &Server{Series: slices.Clone(s.Series), Extra: s.Extra}
		for i := range s.Series {
			s.Series[i].At = count
		}
	}
	largest := strings.HasPrefix(query, "max by") || strings.HasPrefix(query, "group")
	value := func(group []*Series, t int64) (sum float64, any bool) {
		for _, x := range group {
			v, ok := x.At(t)
			for u := t - 300; !ok && u > t-back; u -= 300 {
				v, ok = x.At(u)
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
	fmt.Fprintf(w, `{"status":"success"%s,"data":{"resultType":"matrix","result":[`, s.Extra)
	groups, separator := s.matching(query), ""
	for _, k := range slices.Sorted(maps.Keys(groups)) {
		var b []byte
		for t := from; t <= to; t += step {
			if v, ok := value(groups[k], t); ok {
				b = append(strconv.AppendInt(append(b, ",["...), t, 10), `,"`...)
				b = append(strconv.AppendFloat(b, v, 'g', -1, 64), `"]`...)
			}
		}
		if len(b) > 0 {
			fmt.Fprintf(w, `%s{"metric":{%s},"values":[%s]}`, separator, k, b[1:])
			separator = ","
		}
	}
	fmt.Fprint(w, "]}}")
}
