package main

import (
	"math"
	"strings"
	"testing"
)

// FuzzParseLimit: an accepted limit is of an existing figure, and of the given one.
func FuzzParseLimit(f *testing.F) {
	for _, name := range limitNames() {
		f.Add(name + ">1.5")
	}
	f.Add(" >")
	f.Add("waste>nan")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := parseLimit(text)
		if err != nil {
			return
		}
		if limitFigures()[l.name] == nil || !strings.HasPrefix(strings.TrimSpace(text), l.name) {
			t.Errorf("%q is parsed as a limit of %q", text, l.name)
		}
		if math.IsNaN(l.value) || math.IsInf(l.value, 0) {
			t.Errorf("%q can never be exceeded", text)
		}
	})
}
