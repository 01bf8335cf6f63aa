// Package board reads generated dashboards as Grafana would: panels in their places, queries with
// variables and macros filled in. The end-to-end test asks the queries, the preview draws their answers.
package board

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Board is one dashboard of the classic schema.
type Board struct {
	UID         string
	Title       string
	Description string
	// From is how far back the board looks when it is opened: now-6h.
	From      string
	Variables []Variable
	Marks     []Mark
	// Panels holds every panel, those of collapsed rows included, rows themselves too (Type "row").
	Panels []Panel
}

// Variable is a template variable: a datasource, a query, a text box or a constant.
type Variable struct {
	Name, Label, Type string
	// Query is the PromQL or label_values(...) of a query variable, the kind of a datasource, the text of a box.
	Query string
	// Regex takes the value, and perhaps a text to show, out of what a query_result prints.
	Regex string
	// AllValue is what All stands for; Multi says that several may be chosen.
	AllValue   string
	Multi, All bool
}

// Mark is an annotation: moments that a query finds.
type Mark struct {
	Name      string `json:"name"`
	Expr      string `json:"expr"`
	Title     string `json:"titleFormat"`
	Text      string `json:"textFormat"`
	IconColor string `json:"iconColor"`
	Enable    bool   `json:"enable"`
}

// Panel is one panel of a board.
type Panel struct {
	ID          int
	Title       string
	Description string
	Type        string
	X, Y, W, H  int
	Collapsed   bool
	Targets     []Target
	Field       Field
	// Overrides are kept as they stand: by field name or expression.
	Overrides       []Override
	Options         json.RawMessage
	Transformations []Transformation
	// Row is the title of the row under which the panel stands.
	Row string
	// Raw is the panel's own JSON, for what the fields above leave out.
	Raw json.RawMessage
}

// Target is one query.
type Target struct {
	RefID, Expr, Legend, Format string
	Instant, Hidden             bool
}

// Field is how a panel shows a value.
type Field struct {
	Unit       string      `json:"unit"`
	Decimals   *int        `json:"decimals"`
	Min        *float64    `json:"min"`
	Max        *float64    `json:"max"`
	NoValue    string      `json:"noValue"`
	Thresholds Thresholds  `json:"thresholds"`
	Mappings   []Mapping   `json:"mappings"`
	Custom     FieldCustom `json:"custom"`
}

// FieldCustom is what a kind of panel adds to Field.
type FieldCustom struct {
	DrawStyle   string  `json:"drawStyle"`
	FillOpacity float64 `json:"fillOpacity"`
	Stacking    struct {
		Mode string `json:"mode"`
	} `json:"stacking"`
}

// Thresholds color a value; the first step's value is null.
type Thresholds struct {
	Mode  string `json:"mode"`
	Steps []struct {
		Value *float64 `json:"value"`
		Color string   `json:"color"`
	} `json:"steps"`
}

// Mapping gives values a text and a color.
type Mapping struct {
	Type    string          `json:"type"`
	Options json.RawMessage `json:"options"`
}

// Override changes how some fields are shown.
type Override struct {
	Matcher struct {
		ID      string `json:"id"`
		Options any    `json:"options"`
	} `json:"matcher"`
	Properties []struct {
		ID    string          `json:"id"`
		Value json.RawMessage `json:"value"`
	} `json:"properties"`
}

// Transformation changes the answer's table before it is shown.
type Transformation struct {
	ID      string          `json:"id"`
	Options json.RawMessage `json:"options"`
}

type rawPanel struct {
	ID          int    `json:"id"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Type        string `json:"type"`
	Collapsed   bool   `json:"collapsed"`
	GridPos     struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	} `json:"gridPos"`
	Targets []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
		Format       string `json:"format"`
		Instant      bool   `json:"instant"`
		Hide         bool   `json:"hide"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults  Field      `json:"defaults"`
		Overrides []Override `json:"overrides"`
	} `json:"fieldConfig"`
	Options         json.RawMessage  `json:"options"`
	Transformations []Transformation `json:"transformations"`
	Panels          []rawPanel       `json:"panels"`
	text            json.RawMessage
}

// UnmarshalJSON keeps the text beside what is read of it.
func (r *rawPanel) UnmarshalJSON(text []byte) error {
	type plain rawPanel
	if err := json.Unmarshal(text, (*plain)(r)); err != nil {
		return err
	}
	r.text = slices.Clone(text)
	return nil
}

type rawBoard struct {
	UID         string     `json:"uid"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Panels      []rawPanel `json:"panels"`
	Time        struct {
		From string `json:"from"`
	} `json:"time"`
	Annotations struct {
		List []Mark `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []struct {
			Name       string          `json:"name"`
			Label      string          `json:"label"`
			Type       string          `json:"type"`
			Query      json.RawMessage `json:"query"`
			Regex      string          `json:"regex"`
			AllValue   string          `json:"allValue"`
			Multi      bool            `json:"multi"`
			IncludeAll bool            `json:"includeAll"`
		} `json:"list"`
	} `json:"templating"`
}

// LoadAll reads every *.json of the folder, in the order of their names.
func LoadAll(dir string) ([]Board, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no boards in %s; run make generate", dir)
	}
	var out []Board
	for _, f := range files {
		b, err := load(f)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func load(path string) (Board, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Board{}, err
	}
	b, err := Read(text)
	if err != nil {
		return Board{}, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// Read reads the JSON of one board.
func Read(text []byte) (Board, error) {
	var r rawBoard
	if err := json.Unmarshal(text, &r); err != nil {
		return Board{}, err
	}
	if r.UID == "" {
		return Board{}, errors.New("no board: it has no uid")
	}
	b := Board{UID: r.UID, Title: r.Title, Description: r.Description, From: r.Time.From, Marks: r.Annotations.List}
	for _, v := range r.Templating.List {
		query := ""
		// A query variable's query is a text or an object that holds it.
		if json.Unmarshal(v.Query, &query) != nil {
			var object struct {
				Query string `json:"query"`
			}
			if err := json.Unmarshal(v.Query, &object); err != nil {
				return Board{}, fmt.Errorf("variable %s: %w", v.Name, err)
			}
			query = object.Query
		}
		b.Variables = append(b.Variables, Variable{Name: v.Name, Label: v.Label, Type: v.Type, Query: query, Regex: v.Regex, AllValue: v.AllValue, Multi: v.Multi, All: v.IncludeAll})
	}
	row := ""
	for _, p := range r.Panels {
		if p.Type == "row" {
			row = p.Title
		}
		b.Panels = append(b.Panels, p.panel(row))
		for _, inner := range p.Panels {
			b.Panels = append(b.Panels, inner.panel(row))
		}
	}
	slices.SortStableFunc(b.Panels, func(p, q Panel) int { return cmp.Or(cmp.Compare(p.Y, q.Y), cmp.Compare(p.X, q.X)) })
	return b, nil
}

func (r rawPanel) panel(row string) Panel {
	p := Panel{ID: r.ID, Title: r.Title, Description: r.Description, Type: r.Type, Collapsed: r.Collapsed,
		X: r.GridPos.X, Y: r.GridPos.Y, W: r.GridPos.W, H: r.GridPos.H,
		Field: r.FieldConfig.Defaults, Overrides: r.FieldConfig.Overrides, Options: r.Options, Transformations: r.Transformations, Row: row, Raw: r.text}
	for _, t := range r.Targets {
		p.Targets = append(p.Targets, Target{RefID: t.RefID, Expr: t.Expr, Legend: t.LegendFormat, Format: t.Format, Instant: t.Instant, Hidden: t.Hide})
	}
	return p
}
