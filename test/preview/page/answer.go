package page

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// Asker answers queries; board.Client does.
type Asker interface {
	Instant(ctx context.Context, query string, at time.Time) ([]board.Series, error)
	Range(ctx context.Context, query string, w board.Window) ([]board.Series, error)
}

// Answer is what one query of a panel was answered.
type Answer struct {
	Target board.Target
	Series []board.Series
}

// Ask asks the queries of a panel; hidden ones are left out, as in Grafana.
func Ask(ctx context.Context, from Asker, b board.Board, p board.Panel, values board.Values, w board.Window) ([]Answer, error) {
	var out []Answer
	for _, t := range p.Targets {
		if t.Hidden || t.Expr == "" {
			continue
		}
		query, err := b.Fill(t.Expr, values, w)
		if err != nil {
			return nil, err
		}
		a := Answer{Target: t}
		if t.Instant {
			a.Series, err = from.Instant(ctx, query, w.Moment())
		} else {
			a.Series, err = from.Range(ctx, query, w)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// line is one series under the name by which the panel shows it.
type line struct {
	name, refID string
	labels      map[string]string
	points      []board.Point
	look        look
	// nth is its place among the panel's series, from which the palette's colour is taken.
	nth int
}

// lines names the series of all answers and looks up how each is shown.
func lines(answers []Answer, ls looks) ([]line, error) {
	var out []line
	for _, a := range answers {
		for _, s := range a.Series {
			l := line{name: legend(a.Target.Legend, s.Labels), refID: a.Target.RefID, labels: s.Labels, points: s.Points, nth: len(out)}
			var err error
			if l.look, err = ls.of(l.name, l.refID, true); err != nil {
				return nil, err
			}
			if l.look.DisplayName != "" {
				l.name = fillLabels(l.look.DisplayName, s.Labels)
			}
			out = append(out, l)
		}
	}
	return out, nil
}

var (
	inLegend = regexp.MustCompile(`\{\{\s*([^{}]*?)\s*\}\}`)
	inName   = regexp.MustCompile(`\$\{__field\.labels\.([A-Za-z_]\w*)\}`)
)

// legend fills {{label}}; without a legend the series is called by its labels.
func legend(form string, labels map[string]string) string {
	if form == "" || form == "__auto" {
		return labelText(labels)
	}
	return inLegend.ReplaceAllStringFunc(form, func(m string) string { return labels[inLegend.FindStringSubmatch(m)[1]] })
}

func fillLabels(form string, labels map[string]string) string {
	return inName.ReplaceAllStringFunc(form, func(m string) string { return labels[inName.FindStringSubmatch(m)[1]] })
}

// labelText writes labels as PromQL does: name{a="b"}.
func labelText(labels map[string]string) string {
	var parts []string
	for _, name := range sortedKeys(labels) {
		if name != "__name__" {
			parts = append(parts, fmt.Sprintf("%s=%q", name, labels[name]))
		}
	}
	if len(parts) == 0 && labels["__name__"] != "" {
		return labels["__name__"]
	}
	return labels["__name__"] + "{" + strings.Join(parts, ", ") + "}"
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// reduce makes one number of a series, as Grafana's calculation of that name. No point: NaN.
func reduce(calc string, points []board.Point) (float64, error) {
	var values []float64
	for _, p := range points {
		if !math.IsNaN(p.Value) {
			values = append(values, p.Value)
		}
	}
	if len(values) == 0 {
		return math.NaN(), nil
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	switch calc {
	case "lastNotNull", "":
		return values[len(values)-1], nil
	case "last":
		return points[len(points)-1].Value, nil
	case "first", "firstNotNull":
		return values[0], nil
	case "mean":
		return sum / float64(len(values)), nil
	case "max":
		return slices.Max(values), nil
	case "min":
		return slices.Min(values), nil
	case "sum":
		return sum, nil
	case "count":
		return float64(len(values)), nil
	case "range":
		return slices.Max(values) - slices.Min(values), nil
	case "diff":
		return values[len(values)-1] - values[0], nil
	}
	return 0, fmt.Errorf("unknown calculation %q: teach it to test/preview/page/answer.go", calc)
}

// calcTitle is how a legend heads the column of a calculation.
func calcTitle(calc string) string {
	switch calc {
	case "lastNotNull":
		return "Last *"
	case "firstNotNull":
		return "First *"
	case "sum":
		return "Total"
	case "diff":
		return "Difference"
	case "":
		return ""
	}
	return strings.ToUpper(calc[:1]) + calc[1:]
}
