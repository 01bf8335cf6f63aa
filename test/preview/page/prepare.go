package page

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// Chooser answers the queries of variables; board.Client does.
type Chooser interface {
	Asker
	Choices(ctx context.Context, b board.Board, v board.Variable, values board.Values, w board.Window) ([]string, error)
}

// Range is a window as people and links write it: now-6h and now, -6h, a time, or milliseconds since 1970.
type Range struct{ From, To string }

// Prepare makes a request: it reads the window, drops values that the board has no variable for, and chooses
// the first value of each variable that has no All, as Grafana does.
func Prepare(ctx context.Context, from Chooser, b board.Board, values board.Values, window Range, scrape time.Duration) (Request, error) {
	r := Request{Board: b, Values: board.Values{}, Texts: map[string]string{}, Scrape: scrape, RangeFrom: window.From, RangeTo: window.To}
	now := time.Now()
	var err error
	if r.To, err = moments(window.To, now); err != nil {
		return r, err
	}
	if r.From, err = moments(window.From, now); err != nil {
		return r, err
	}
	if !r.From.Before(r.To) {
		return r, fmt.Errorf("the window from %s to %s is empty", window.From, window.To)
	}
	maps.Copy(r.Values, values)
	maps.DeleteFunc(r.Values, func(name string, chosen []string) bool {
		return len(chosen) == 0 || slices.Contains(chosen, "$__all") || slices.Contains(chosen, "All") ||
			!slices.ContainsFunc(b.Variables, func(v board.Variable) bool { return v.Name == name })
	})
	w := board.Window{From: r.From, To: r.To, Step: time.Minute, Scrape: scrape}
	for _, v := range b.Variables {
		// A value that was chosen needs its words only where they are other than the value.
		if chosen := len(r.Values[v.Name]) > 0; v.Type != "query" || chosen && v.Regex == "" || !chosen && v.All {
			continue
		}
		choices, err := choices(ctx, from, b, v, r.Values, w)
		if err != nil {
			return r, fmt.Errorf("board %s: variable %s: %w", b.UID, v.Name, err)
		}
		slices.SortFunc(choices, func(x, y choice) int { return natural(x.text, y.text) })
		if len(r.Values[v.Name]) == 0 && len(choices) > 0 {
			r.Values[v.Name] = []string{choices[0].value}
		}
		for _, c := range choices {
			if len(r.Values[v.Name]) == 1 && c.value == r.Values[v.Name][0] {
				r.Texts[v.Name] = c.text
			}
		}
	}
	return r, nil
}

type choice struct{ text, value string }

var queryResult = regexp.MustCompile(`^query_result\((.+)\)$`)

// choices answers a variable. What query_result prints is taken apart by the variable's expression.
func choices(ctx context.Context, from Chooser, b board.Board, v board.Variable, values board.Values, w board.Window) ([]choice, error) {
	query, err := b.Fill(v.Query, values, w)
	if err != nil {
		return nil, err
	}
	var printed []string
	if m := queryResult.FindStringSubmatch(query); m != nil {
		series, err := from.Instant(ctx, m[1], w.To)
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			for _, p := range s.Points {
				printed = append(printed, fmt.Sprintf("%s %s %d", strings.ReplaceAll(labelText(s.Labels), `", `, `",`), strconv.FormatFloat(p.Value, 'f', -1, 64), p.At.UnixMilli()))
			}
		}
	} else if printed, err = from.Choices(ctx, b, v, values, w); err != nil {
		return nil, err
	}
	var out []choice
	for _, text := range printed {
		c := choice{text, text}
		if v.Regex != "" {
			r, err := javaScript(v.Regex)
			if err != nil {
				return nil, err
			}
			m := r.FindStringSubmatch(text)
			if m == nil {
				continue
			}
			switch value, label := r.SubexpIndex("value"), r.SubexpIndex("text"); {
			case value > 0 && label > 0:
				c = choice{m[label], m[value]}
			case len(m) > 1:
				c = choice{m[1], m[1]}
			default:
				c = choice{m[0], m[0]}
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// moments reads a moment.
func moments(text string, now time.Time) (time.Time, error) {
	if text == "now" || text == "" {
		return now, nil
	}
	if rest := strings.TrimPrefix(text, "now"); strings.HasPrefix(rest, "-") {
		length := rest[1:]
		days := map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}
		if n, err := strconv.Atoi(length[:max(0, len(length)-1)]); err == nil && days[length[len(length)-1]] > 0 {
			return now.Add(-time.Duration(n) * days[length[len(length)-1]]), nil
		}
		if d, err := time.ParseDuration(length); err == nil {
			return now.Add(-d), nil
		}
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.UnixMilli(ms), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%q is no moment: now, now-6h, -6h, 2026-11-21T03:00:00Z", text)
}
