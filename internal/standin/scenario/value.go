package scenario

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-exporter/gpu-exporter/internal/nvml/calls"
)

// untouched is the code of a field value that the driver leaves as the caller made it.
const untouched = -2

// returnCode is the number of a return code, by its name in scenarios.
func returnCode(name string) (int, bool) {
	if name == "UNTOUCHED" {
		return untouched, true
	}
	code, known := calls.ReturnCodes[name]
	return code, known
}

// codeName is the name of a return code, for error messages and answers.
func codeName(code int) string {
	if code == untouched {
		return "UNTOUCHED"
	}
	for name, c := range calls.ReturnCodes {
		if c == code {
			return name
		}
	}
	return strconv.Itoa(code)
}

// variables of a sum; "1" stands for the constant.
var variables = []string{"1", "t", "busy", "membusy", "util", "memutil", "active", "power", "power_instant", "energy",
	"process_memory", "temperature"}

type term struct {
	factor   float64
	variable string
}

// component is one number or text of an answer: exactly one of text, exact and terms is used.
type component struct {
	isText  bool
	text    string
	isExact bool
	exact   uint64
	terms   []term
	modulus float64 // the sum wraps here; 0: never
}

// value is an answer: a return code, or components in the order of the key's.
type value struct {
	code       int
	components []component
	valueType  int // of a field value: nvmlValueType_t
}

// NVML's types of field values.
const (
	typeDouble    = 0
	typeUint      = 1
	typeULongLong = 3
	typeLongLong  = 4
	typeInt       = 5
	typeUshort    = 6
)

var valueTypes = map[string]int{"double": typeDouble, "uint": typeUint, "ulonglong": typeULongLong,
	"longlong": typeLongLong, "int": typeInt, "ushort": typeUshort}

// parseValue reads what follows the = of an answer.
func parseValue(k keyRow, tokens []token) (value, error) {
	if len(tokens) == 0 {
		return value{}, fmt.Errorf("expected a value after =")
	}
	if name, isCode := strings.CutPrefix(tokens[0].text, "!"); isCode && !tokens[0].quoted {
		code, known := returnCode(name)
		if !known || len(tokens) > 1 {
			return value{}, fmt.Errorf("expected one return code like !NOT_SUPPORTED, found %q", join(tokens))
		}
		return value{code: code}, nil
	}
	switch {
	case len(k.components) == 0:
		return value{}, fmt.Errorf("expected a return code: %s has no value of its own", k.name)
	case k.text:
		if len(tokens) != 1 || !tokens[0].quoted || len(tokens[0].text) > maxNameBytes {
			return value{}, fmt.Errorf("expected one text in quotes, of at most %d bytes", maxNameBytes)
		}
		return value{components: []component{{isText: true, text: tokens[0].text}}}, nil
	}
	v := value{valueType: typeULongLong}
	if k.name == "Field" {
		if last := tokens[len(tokens)-1].text; strings.HasPrefix(last, "type=") {
			t, known := valueTypes[strings.TrimPrefix(last, "type=")]
			if !known || len(tokens) == 1 {
				return value{}, fmt.Errorf("expected a value and a type of double, uint, ulonglong, longlong, int, " +
					"ushort")
			}
			v.valueType = t
			tokens = tokens[:len(tokens)-1]
		} else {
			v.valueType = -1 // by the field
		}
	}
	if len(k.components) == 1 && !strings.Contains(join(tokens), "=") {
		c, err := parseSum(join(tokens))
		v.components = []component{c}
		return v, err
	}
	opts, err := parseOptions(tokens, k.components...)
	if err != nil {
		return value{}, err
	}
	for i, name := range k.components {
		text, given := opts[name]
		if !given && i >= len(k.components)-k.optional {
			text = "0"
		} else if !given {
			return value{}, fmt.Errorf("expected %s= for each of %s", name, strings.Join(k.components, ", "))
		}
		c, err := parseSum(text)
		if err != nil {
			return value{}, fmt.Errorf("%s=: %w", name, err)
		}
		v.components = append(v.components, c)
	}
	return v, nil
}

func join(tokens []token) string {
	words := make([]string, len(tokens))
	for i, t := range tokens {
		words[i] = t.text
	}
	return strings.Join(words, " ")
}

// parseSum reads "345 + 1635*active", or "1e6*busy mod 4294967296". A lone whole number is kept exact.
func parseSum(text string) (component, error) {
	if v, ok := parseInteger(text); ok {
		return component{isExact: true, exact: v}, nil
	}
	sum, wrap, wraps := strings.Cut(text, " mod ")
	c := component{}
	if wraps {
		m, err := parseNumber(strings.TrimSpace(wrap))
		if err != nil || m <= 0 {
			return component{}, fmt.Errorf("expected a number above 0 after mod, found %q", wrap)
		}
		c.modulus = m
	}
	for _, part := range splitTerms(strings.ReplaceAll(sum, " ", "")) {
		if len(c.terms) == maxTerms {
			return component{}, fmt.Errorf("expected at most %d terms", maxTerms)
		}
		t, err := parseTerm(part)
		if err != nil {
			return component{}, err
		}
		c.terms = append(c.terms, t)
	}
	if len(c.terms) == 0 {
		return component{}, fmt.Errorf("expected a number or a sum, found %q", text)
	}
	return c, nil
}

// splitTerms cuts before each + and -, except those of an exponent.
func splitTerms(sum string) []string {
	var parts []string
	start := 0
	for i := 1; i < len(sum); i++ {
		if (sum[i] == '+' || sum[i] == '-') && !(sum[i-1] == 'e' && i >= 2 && sum[i-2] >= '0' && sum[i-2] <= '9') &&
			sum[i-1] != '*' {
			parts = append(parts, sum[start:i])
			start = i
		}
	}
	if start < len(sum) {
		parts = append(parts, sum[start:])
	}
	return parts
}

func parseTerm(part string) (term, error) {
	sign := 1.0
	body := strings.TrimPrefix(part, "+")
	if rest, negative := strings.CutPrefix(body, "-"); negative {
		sign, body = -1, rest
	}
	t := term{factor: sign, variable: "1"}
	for _, factor := range strings.Split(body, "*") {
		if factor != "1" && slices.Contains(variables, factor) {
			if t.variable != "1" {
				return term{}, fmt.Errorf("expected one variable in %q", part)
			}
			t.variable = factor
			continue
		}
		f, err := parseNumber(factor)
		if err != nil {
			return term{}, fmt.Errorf("expected numbers and variables (%s), found %q", strings.Join(variables[1:], ", "), factor)
		}
		t.factor *= f
	}
	if math.IsInf(t.factor, 0) || math.IsNaN(t.factor) {
		return term{}, fmt.Errorf("expected a finite number, found %q", part)
	}
	return t, nil
}
