package dashboard

import (
	"testing"
	"time"
)

func TestFill(t *testing.T) {
	d := Dashboard{UID: "d", Variables: []Variable{
		{Name: "datasource", Type: "datasource", Query: "prometheus"},
		{Name: "cluster", Type: "query", Multi: true, All: true, AllValue: ".*"},
		{Name: "node", Type: "query"},
		{Name: "price", Type: "textbox", Query: "2.5"},
	}}
	to := time.Unix(100000, 0)
	w := Window{From: to.Add(-time.Hour), To: to, Step: 30 * time.Second, Scrape: 15 * time.Second}
	for _, c := range []struct {
		expr   string
		values Values
		want   string
	}{
		{`rate(x{cluster=~"$cluster"}[$__rate_interval])`, nil, `rate(x{cluster=~".*"}[60s])`},
		{`x{cluster=~"${cluster}"}`, Values{"cluster": {"a.b", "c"}}, `x{cluster=~"(a\\.b|c)"}`},
		{`x{cluster=~"$cluster"}`, Values{"cluster": {"a.b"}}, `x{cluster=~"a\\.b"}`},
		{`x{node="$node"}`, Values{"node": {"n1"}}, `x{node="n1"}`},
		{`increase(x[$__range]) / $__range_s * $price`, nil, `increase(x[3600s]) / 3600 * 2.5`},
		{`label_replace(x, "a", "$1", "b", "(.*)")`, nil, `label_replace(x, "a", "$1", "b", "(.*)")`},
		{`x{pod="$pod"}`, nil, ``},
	} {
		got, err := d.Fill(c.expr, c.values, w)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: no error, although the dashboard has no such variable", c.expr)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.expr, got, err, c.want)
		}
	}
}
