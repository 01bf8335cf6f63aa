package gpu

import (
	"strings"
	"unicode"
)

// Printable returns s as it is exposed: names come from API objects, cgroups and processes, and a control character in
// one could change the terminal that shows it. Each of ASCII is replaced by its picture (U+2400 and following), so that
// different names stay different; those of Latin-1, and bytes that are not UTF-8, by U+FFFD.
func Printable(s string) string {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= '\x7f' { // as in few of the thousands of labels of a new process
			return strings.Map(printable, strings.ToValidUTF8(s, "\uFFFD"))
		}
	}
	return s
}

// PrintableText is Printable for text of several lines: line breaks and tabs remain.
func PrintableText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printable(r)
	}, s)
}

func printable(r rune) rune {
	switch {
	case r < ' ':
		return '\u2400' + r
	case r == '\x7f':
		return '\u2421'
	case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
		return unicode.ReplacementChar
	}
	return r
}
