package page

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

// look is how one field is shown: the panel's defaults and what its overrides change.
type look struct {
	board.Field
	DisplayName string `json:"displayName"`
	Color       struct {
		Mode       string `json:"mode"`
		FixedColor string `json:"fixedColor"`
	} `json:"color"`
	Links  []link `json:"links"`
	Custom custom `json:"custom"`
}

type link struct {
	Title       string `json:"title"`
	URL         string `json:"url"`
	TargetBlank bool   `json:"targetBlank"`
}

// custom is what kinds of panels add.
type custom struct {
	DrawStyle         string   `json:"drawStyle"`
	LineInterpolation string   `json:"lineInterpolation"`
	LineWidth         *float64 `json:"lineWidth"`
	FillOpacity       float64  `json:"fillOpacity"`
	SpanNulls         any      `json:"spanNulls"`
	AxisSoftMin       *float64 `json:"axisSoftMin"`
	AxisSoftMax       *float64 `json:"axisSoftMax"`
	AxisLabel         string   `json:"axisLabel"`
	Stacking          struct {
		Mode string `json:"mode"`
	} `json:"stacking"`
	ThresholdsStyle struct {
		Mode string `json:"mode"`
	} `json:"thresholdsStyle"`
	LineStyle struct {
		Fill string    `json:"fill"`
		Dash []float64 `json:"dash"`
	} `json:"lineStyle"`
	HideFrom struct {
		Viz    bool `json:"viz"`
		Legend bool `json:"legend"`
	} `json:"hideFrom"`
	CellOptions struct {
		Type             string `json:"type"`
		Mode             string `json:"mode"`
		ValueDisplayMode string `json:"valueDisplayMode"`
	} `json:"cellOptions"`
	Width    float64 `json:"width"`
	MinWidth float64 `json:"minWidth"`
	Align    string  `json:"align"`
	Hidden   bool    `json:"hidden"`
}

// looks makes the look of each field of a panel.
type looks struct {
	defaults  json.RawMessage
	overrides []board.Override
}

func newLooks(p board.Panel) (looks, error) {
	var raw struct {
		FieldConfig struct {
			Defaults json.RawMessage `json:"defaults"`
		} `json:"fieldConfig"`
	}
	if len(p.Raw) == 0 {
		return looks{defaults: json.RawMessage(`{}`)}, nil
	}
	if err := json.Unmarshal(p.Raw, &raw); err != nil {
		return looks{}, err
	}
	if len(raw.FieldConfig.Defaults) == 0 {
		raw.FieldConfig.Defaults = json.RawMessage(`{}`)
	}
	return looks{raw.FieldConfig.Defaults, p.Overrides}, nil
}

// of returns the look of a field: its own name, the query it comes from, and whether it is a number.
func (ls looks) of(name, refID string, number bool) (look, error) {
	var tree map[string]any
	if err := json.Unmarshal(ls.defaults, &tree); err != nil {
		return look{}, err
	}
	for _, o := range ls.overrides {
		is, err := matches(o, name, refID, number)
		if err != nil {
			return look{}, err
		}
		if !is {
			continue
		}
		for _, p := range o.Properties {
			var value any
			if len(p.Value) > 0 {
				if err := json.Unmarshal(p.Value, &value); err != nil {
					return look{}, err
				}
			}
			at := tree
			path := strings.Split(p.ID, ".")
			for _, part := range path[:len(path)-1] {
				next, ok := at[part].(map[string]any)
				if !ok {
					next = map[string]any{}
					at[part] = next
				}
				at = next
			}
			at[path[len(path)-1]] = value
		}
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return look{}, err
	}
	var l look
	return l, json.Unmarshal(text, &l)
}

func matches(o board.Override, name, refID string, number bool) (bool, error) {
	want, _ := o.Matcher.Options.(string)
	switch o.Matcher.ID {
	case "byName":
		return name == want, nil
	case "byFrameRefID":
		return refID == want, nil
	case "byType":
		return want == "number" && number || want == "string" && !number, nil
	case "byRegexp":
		r, err := javaScript(want)
		if err != nil {
			return false, err
		}
		return r.MatchString(name), nil
	}
	return false, fmt.Errorf("unknown matcher %q of an override: teach it to test/preview/page/look.go", o.Matcher.ID)
}

// javaScript reads an expression that may stand between slashes.
func javaScript(text string) (*regexp.Regexp, error) {
	if rest, ok := strings.CutPrefix(text, "/"); ok {
		if at := strings.LastIndexByte(rest, '/'); at >= 0 {
			flags := rest[at+1:]
			rest = rest[:at]
			if strings.Contains(flags, "i") {
				rest = "(?i)" + rest
			}
			text = rest
		}
	}
	return regexp.Compile(text)
}

// shown is a value as it is read, with the colour that its mapping gives, if any.
type shown struct {
	amount
	colour string
}

type mapped struct {
	Text  string `json:"text"`
	Color string `json:"color"`
	Index int    `json:"index"`
}

// mapping returns what a value is called instead. A text that is not a number has only itself to match.
func (l look) mapping(text string, value float64, number bool) (mapped, bool, error) {
	for _, m := range l.Mappings {
		switch m.Type {
		case "value":
			var options map[string]mapped
			if err := json.Unmarshal(m.Options, &options); err != nil {
				return mapped{}, false, err
			}
			key := text
			if number {
				key = strconv.FormatFloat(value, 'f', -1, 64)
			}
			if r, ok := options[key]; ok {
				return r, true, nil
			}
		case "range":
			var options struct {
				From, To *float64
				Result   mapped
			}
			if err := json.Unmarshal(m.Options, &options); err != nil {
				return mapped{}, false, err
			}
			if number && (options.From == nil || value >= *options.From) && (options.To == nil || value <= *options.To) {
				return options.Result, true, nil
			}
		case "regex":
			var options struct {
				Pattern string
				Result  mapped
			}
			if err := json.Unmarshal(m.Options, &options); err != nil {
				return mapped{}, false, err
			}
			r, err := javaScript(options.Pattern)
			if err != nil {
				return mapped{}, false, err
			}
			if !number && r.MatchString(text) {
				out := options.Result
				if out.Text != "" {
					out.Text = r.ReplaceAllString(text, out.Text)
				}
				return out, true, nil
			}
		case "special":
			var options struct {
				Match  string
				Result mapped
			}
			if err := json.Unmarshal(m.Options, &options); err != nil {
				return mapped{}, false, err
			}
			nan := number && math.IsNaN(value)
			if options.Match == "empty" && !number && text == "" || nan && strings.Contains(options.Match, "na") || nan && options.Match == "null" {
				return options.Result, true, nil
			}
		default:
			return mapped{}, false, fmt.Errorf("unknown mapping %q: teach it to test/preview/page/look.go", m.Type)
		}
	}
	return mapped{}, false, nil
}

// show writes a number by its mapping, its unit and its decimals.
func (l look) show(value float64, now time.Time) (shown, error) {
	m, is, err := l.mapping("", value, true)
	if err != nil {
		return shown{}, err
	}
	if math.IsNaN(value) && !(is && m.Text != "") {
		return shown{amount: amount{number: noValue(l)}}, nil
	}
	a := amount{number: m.Text}
	if !is || m.Text == "" {
		if a, err = format(value, l.Unit, l.Decimals, now); err != nil {
			return shown{}, err
		}
	}
	out := shown{amount: a}
	if is && m.Color != "" {
		out.colour, err = css(m.Color)
	}
	return out, err
}

func noValue(l look) string {
	if l.NoValue != "" {
		return l.NoValue
	}
	return "No data"
}

// colourOf is the colour of a value: fixed, or by its threshold.
func (l look) colourOf(value, lowest, highest float64, nth int) (string, error) {
	switch l.Color.Mode {
	case "fixed":
		return css(l.Color.FixedColor)
	case "palette-classic", "palette-classic-by-name":
		return classicColour(nth), nil
	default:
		return l.step(value, lowest, highest)
	}
}
