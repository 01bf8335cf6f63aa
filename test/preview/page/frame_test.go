package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

func answer(ref string, series ...board.Series) Answer {
	return Answer{Target: board.Target{RefID: ref, Format: "table", Instant: true}, Series: series}
}

func one(value float64, labels ...string) board.Series {
	s := board.Series{Labels: map[string]string{}, Points: []board.Point{{At: start, Value: value}}}
	for i := 0; i < len(labels); i += 2 {
		s.Labels[labels[i]] = labels[i+1]
	}
	return s
}

// text writes a table for a test: a line per row, absent cells as a dash.
func (f frame) text() string {
	var head []string
	for _, c := range f.columns {
		head = append(head, c.shownName())
	}
	rows := []string{strings.Join(head, "|")}
	for r := range f.rows() {
		var row []string
		for _, c := range f.columns {
			switch v := c.cells[r]; {
			case !v.present:
				row = append(row, "-")
			case v.kind == isText:
				row = append(row, v.text)
			default:
				row = append(row, fmt.Sprint(v.number))
			}
		}
		rows = append(rows, strings.Join(row, "|"))
	}
	return strings.Join(rows, "\n")
}

func TestTransform(t *testing.T) {
	hideTime := board.Transformation{ID: "organize", Options: json.RawMessage(`{"excludeByName":{"Time":true}}`)}
	for _, c := range []struct {
		name    string
		answers []Answer
		steps   []board.Transformation
		want    string
	}{
		{"one query", []Answer{answer("A", one(1, "node", "n1"))}, []board.Transformation{hideTime}, "node|Value\nn1|1"},
		{"merge", []Answer{answer("A", one(1, "node", "n1"), one(2, "node", "n2")), answer("B", one(7, "node", "n2"), one(8, "node", "n3"))},
			[]board.Transformation{{ID: "merge"}, hideTime}, "node|Value #A|Value #B\nn1|1|-\nn2|2|7\nn3|-|8"},
		{"merge of other labels", []Answer{answer("A", one(1, "node", "n1", "gpu", "0"), one(2, "node", "n1", "gpu", "1")), answer("B", one(7, "node", "n1"))},
			[]board.Transformation{{ID: "merge"}, hideTime}, "gpu|node|Value #A|Value #B\n0|n1|1|7\n1|n1|2|-"},
		{"merge where one has nothing", []Answer{answer("A", one(1, "node", "n1")), answer("B")}, []board.Transformation{{ID: "merge"}, hideTime}, "node|Value #A\nn1|1"},
		{"organize", []Answer{answer("A", one(1, "a", "x", "b", "y"))},
			[]board.Transformation{{ID: "organize", Options: json.RawMessage(`{"excludeByName":{"Time":true},"indexByName":{"b":0,"a":1,"Value":2},"renameByName":{"b":"Bee"}}`)}}, "Bee|a|Value\ny|x|1"},
		{"without a place of its own", []Answer{answer("A", one(1, "a", "x"))},
			[]board.Transformation{{ID: "organize", Options: json.RawMessage(`{"excludeByName":{"Time":true},"indexByName":{"a":1}}`)}}, "Value|a\n1|x"},
		{"sortBy and limit", []Answer{answer("A", one(1, "n", "a"), one(3, "n", "b"), one(2, "n", "c"))},
			[]board.Transformation{hideTime, {ID: "sortBy", Options: json.RawMessage(`{"sort":[{"field":"Value","desc":true}]}`)}, {ID: "limit", Options: json.RawMessage(`{"limitField":2}`)}}, "n|Value\nb|3\nc|2"},
		{"numbers in names", []Answer{answer("A", one(1, "n", "node-10"), one(1, "n", "node-9"))},
			[]board.Transformation{hideTime, {ID: "sortBy", Options: json.RawMessage(`{"sort":[{"field":"n"}]}`)}}, "n|Value\nnode-9|1\nnode-10|1"},
		{"filterFieldsByName", []Answer{answer("A", one(1, "a", "x", "b", "y"))},
			[]board.Transformation{{ID: "filterFieldsByName", Options: json.RawMessage(`{"include":{"pattern":"/^(a|Value)$/"}}`)}}, "a|Value\nx|1"},
		{"joinByField", []Answer{answer("A", one(1, "n", "a")), answer("B", one(2, "n", "a"), one(3, "n", "b"))},
			[]board.Transformation{hideTime, {ID: "joinByField", Options: json.RawMessage(`{"byField":"n","mode":"outer"}`)}}, "n|Value #A|Value #B\na|1|2\nb|-|3"},
	} {
		var notes []string
		got, err := transform(frames(c.answers), c.steps, func(f string, a ...any) { notes = append(notes, fmt.Sprintf(f, a...)) })
		if err != nil || len(got) != 1 || got[0].text() != c.want || notes != nil {
			t.Errorf("%s: %v %v\n%s\nwant\n%s", c.name, err, notes, got[0].text(), c.want)
		}
	}
}

func TestUnknownTransformationIsNoted(t *testing.T) {
	noted := ""
	_, err := transform(nil, []board.Transformation{{ID: "spinRoundTwice"}}, func(f string, a ...any) { noted = fmt.Sprintf(f, a...) })
	if err != nil || !strings.Contains(noted, "spinRoundTwice") {
		t.Errorf("%v, %q", err, noted)
	}
}
