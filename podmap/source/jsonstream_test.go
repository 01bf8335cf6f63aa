package source

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// walk reads a text as {"keep":[strings]}, and renders what it was called with.
func walk(text string) (calls []string, err error) {
	s := newJSONStream(strings.NewReader(text), 1<<20)
	err = s.object(fields{"keep": func() error {
		calls = append(calls, "list")
		return s.array(func() error {
			v, err := s.text()
			calls = append(calls, fmt.Sprintf("%q", v))
			return err
		})
	}})
	return calls, err
}

// Of a document only the values are read that are wanted; values of another kind in their place are dropped, whatever
// they contain, and a document that ends early is an error.
func TestValuesOfADocument(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
		err  string
	}{
		{`{"keep":["a","b"]}`, []string{"list", `"a"`, `"b"`}, ""},
		{`{"a":{"keep":["x"]},"b":[[{"c":[]}],"y"],"keep":["a",null],"d":1,"e":null}`, []string{"list", `"a"`, `""`}, ""},
		{`{"keep":[],"keep":["a"]}`, []string{"list", "list", `"a"`}, ""},
		{`{"keep":{"a":["x"],"b":{"c":1}}}`, []string{"list"}, ""},
		{`{"keep":7}`, []string{"list"}, ""},
		{`["keep",{"keep":["a"]}]`, nil, ""},
		{`"keep"`, nil, ""},
		{`null`, nil, ""},
		{`{}`, nil, ""},
		{`{"keep":["a",7]}`, []string{"list", `"a"`, `""`}, "7 instead of a string"},
		{`{"keep":[true]}`, []string{"list", `""`}, "true instead of a string"},
		{`{"keep":[["a"]]}`, []string{"list", `""`}, "[ instead of a string"},
		{``, nil, "EOF"},
		{`{`, nil, "EOF"},
		{`{"keep"`, []string{"list"}, "EOF"},
		{`{"keep":`, []string{"list"}, "EOF"},
		{`{"keep":["a"`, []string{"list", `"a"`}, "EOF"},
		{`{"keep":["a`, []string{"list", `""`}, "EOF"},
		{`{"keep":["a"]`, []string{"list", `"a"`}, "EOF"},
		{`{"skipped":{"a":[1,{`, nil, "EOF"},
		{`{"skipped":`, nil, "EOF"},
		{`{keep:["a"]}`, nil, "invalid character"},
		{`{7:["a"]}`, nil, "invalid character"},
		{`{"a":1 "keep":["a"]}`, nil, "invalid character"},
		{`{"keep":["a"}`, []string{"list", `"a"`}, "invalid character"},
		{`{"keep":["a"]]`, []string{"list", `"a"`}, "invalid character"},
		{`{"skipped":[1}`, nil, "invalid character"},
		{`x`, nil, "invalid character"},
	} {
		got, err := walk(c.text)
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, %q", c.text, got, err, c.want, c.err)
		}
	}
}

// A failure of what reads a value ends the reading of all that contain it.
func TestFailuresEndADocument(t *testing.T) {
	own := errors.New("refused")
	s := newJSONStream(strings.NewReader(`{"a":1,"b":[1,2,3],"c":4}`), 1<<20)
	var calls []string
	err := s.object(fields{
		"b": func() error {
			return s.array(func() error {
				v, err := s.Token()
				if calls = append(calls, fmt.Sprint(v)); v == 2.0 {
					return own
				}
				return err
			})
		},
		"c": func() error { calls = append(calls, "c"); return nil },
	})
	if !errors.Is(err, own) || !slices.Equal(calls, []string{"1", "2"}) {
		t.Errorf("%v after %q", err, calls)
	}
}

// A value is at most as long as the bound, a stream of such values as long as it wants to be, however the bytes arrive.
func TestBoundOfAValue(t *testing.T) {
	const limit = 1 << 20
	value := func(n int) string { return `{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}` }
	for _, c := range []struct {
		name string
		text string
		want int // values before the end or the error
		err  string
	}{
		{"one as long as it may be", value(limit), 1, ""},
		{"one byte more", value(limit + 1), 0, "a value of more than 1 MiB"},
		{"many", strings.Repeat(value(limit), 3), 3, ""},
		{"many, and one that is longer", strings.Repeat(value(limit), 2) + value(limit+1), 2, "a value of more than 1 MiB"},
		{"many small ones", strings.Repeat(value(1000), 3000), 3000, ""},
	} {
		for name, r := range map[string]io.Reader{"": strings.NewReader(c.text),
			" in halves": iotest.HalfReader(strings.NewReader(c.text))} {
			s := newJSONStream(r, limit)
			n := 0
			var err error
			for {
				var v struct{ A string }
				if err = s.Decode(&v); err != nil {
					break
				}
				n++
			}
			if n != c.want || c.err == "" && !errors.Is(err, io.EOF) || c.err != "" && (err == nil || err.Error() != c.err) {
				t.Errorf("%s%s: %d values, %v", c.name, name, n, err)
			}
		}
	}
}

// A name has at most 512 bytes; null is none.
func TestBoundOfAName(t *testing.T) {
	long := strings.Repeat("x", 512)
	for text, want := range map[string]string{`"` + long + `"`: long, `"` + long + `x"`: "a name of 513 bytes", `null`: "", `"a"`: "a",
		`7`: "7 instead of a string"} {
		got := ""
		err := newJSONStream(strings.NewReader(text), 1<<20).name(&got)()
		if err != nil {
			got += err.Error()
		}
		if got != want {
			t.Errorf("%.20s: %q, want %q", text, got, want)
		}
	}
}
