package deviceid

import (
	"math"
	"testing"
)

// FuzzParseQuantity: an amount is a number that is not negative and fits; a suffix multiplies it and does nothing else.
func FuzzParseQuantity(f *testing.F) {
	for _, s := range []string{"8Gi", "50", "1e9", "100m", "1.5G", "-1", "-0", "1e400", "0x10", "Ki", ".", "1e-400", "9223372036854775807",
		" 5 Mi "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := ParseQuantity(text)
		if !ok {
			return
		}
		if math.IsNaN(v) || v < 0 || v >= 1<<62 {
			t.Fatalf("%q is %v", text, v)
		}
		if b, known := Bytes(v).Get(); known && (float64(b) > v || float64(b) < v-1) {
			t.Errorf("%q is %v, and %v bytes", text, v, b)
		}
		plain, isPlain := amount(text)
		for _, s := range quantitySuffixes {
			with, ok := ParseQuantity(text + s.text)
			if isPlain && ok && with != plain*s.by {
				t.Errorf("%q is %v, and with %s %v", text, plain, s.text, with)
			}
			if isPlain && !ok && plain*s.by < 1<<62 && text == trimmed(text) {
				t.Errorf("%q is %v, and with %s none", text, plain, s.text)
			}
		}
	})
}

// trimmed is a text that is a quantity as a whole, and not only for a parser of numbers: no 0x10, no Inf, no 1_0.
func trimmed(text string) string {
	for _, c := range text {
		if !(c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-') {
			return ""
		}
	}
	return text
}

func TestParseQuantity(t *testing.T) {
	for text, want := range map[string]float64{"8Gi": 8 << 30, "50": 50, "23040Mi": 23040 << 20, "12508288Ki": 12508288 << 10, "1e3": 1000,
		"1500m": 1.5, "2G": 2e9, "0": 0} {
		if got, ok := ParseQuantity(text); !ok || got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "Gi", "-1", "x", "1e", "+-", "..", "NaN", "Inf", "1e999", "0x10", "1_0", "1 Gi x", "9999999999Pi"} {
		if got, ok := ParseQuantity(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}
