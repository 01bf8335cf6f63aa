package render

import (
	"strings"
	"testing"
	"unicode"
)

// FuzzNames: a name changes no format's structure, whatever it is: as many tags, rows and cells as with a harmless one.
func FuzzNames(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	plain := map[string]shape{}
	for _, format := range []string{"html", "md", "csv"} {
		plain[format] = shapeOf(f, format, "x")
	}
	f.Fuzz(func(t *testing.T, name string) {
		for format, want := range plain {
			if got := shapeOf(t, format, name); got != want {
				t.Errorf("%s: %q makes %+v of %+v", format, name, got, want)
			}
		}
	})
}

// shape is what of a text is structure.
type shape struct{ tags, rows, cells, controls int }

func shapeOf(t testing.TB, format, name string) shape {
	t.Helper()
	d := sample([]string{name})
	for i := range d.Advice {
		d.Advice[i].Change = "" // a block of code, in which anything may stand
	}
	text := written(t, d, format)
	s := shape{}
	for _, c := range text {
		if unicode.IsControl(c) && c != '\n' && c != '\t' && c != '\r' {
			s.controls++
		}
	}
	switch format {
	case "html":
		s.tags, s.controls = strings.Count(text, "<"), 0
	case "md":
		for line := range strings.Lines(text) {
			s.rows++
			s.cells += strings.Count(line, "|")
			s.tags += strings.Count(line, "<")
		}
	case "csv":
		for _, rows := range sheets(t, d) {
			s.rows += len(rows)
			for _, r := range rows {
				s.cells += len(r)
				for _, cell := range r {
					if cell != "" && strings.ContainsRune("=@\t\r", rune(cell[0])) {
						s.tags++
					}
				}
			}
		}
	}
	return s
}
