package scenario

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Draft is a scenario to be written, such as the answers of a real driver. Not safe for concurrent use.
type Draft struct {
	// Comment is the head of the file, a paragraph each.
	Comment []string
	Title   string
	// Symbols is one of SymbolSets; empty: not written.
	Symbols string
	// System are the answers that concern no GPU.
	System Answers
	// GPUs are numbered in their order.
	GPUs []DraftGPU
}

// DraftGPU is one GPU of a Draft.
type DraftGPU struct {
	// Board is what the GPU is called; GPUs of the same board share their common lines.
	Board string
	// Options follow the GPU's number: "pci=0000:53:00.0".
	Options []string
	// Lines are a ring and profiles, as statements.
	Lines   []string
	Answers Answers
	// Statements come after all GPUs: processes, loads, MIG layouts, the script.
	Statements []string
}

// Answers are what calls answered, in the order in which they were set. The zero value is empty.
type Answers struct {
	list []entry
}

// entry is one answer.
type entry struct {
	call  string
	index []int64
	value Value
}

// Value is the answer of a call, ready to be written. The zero value is not written.
type Value struct {
	code    string
	text    string
	isText  bool
	numbers []string
	kind    string
	note    string
}

// Code is a return code, by NVML's name without NVML_ERROR_. One that the language does not know becomes
// UNKNOWN, with a note of what it was.
func Code(name string) Value {
	if _, known := returnCode(name); !known {
		return Value{code: "UNKNOWN", note: "the driver returned " + name}
	}
	return Value{code: name}
}

// Untouched is the answer to a field value that the driver left as the caller made it.
func Untouched() Value { return Value{code: codeName(untouched)} }

// Text is a text. What cannot be printed becomes a question mark, and what is too long is cut.
func Text(text string) Value {
	return Value{isText: true, text: printable(text, maxNameBytes)}
}

// Numbers is one number for each component of the call, in the order of the language: whole numbers, or sums
// in the language's spelling.
func Numbers(numbers ...string) Value { return Value{numbers: numbers} }

// Typed sets the NVML type of a field value: double, uint, ulonglong, longlong, int or ushort. It is
// written where the language would take another for granted.
func (v Value) Typed(name string) Value {
	v.kind = name
	return v
}

// Noted adds a comment to the line.
func (v Value) Noted(note string) Value {
	v.note = note
	return v
}

// Integer writes a whole number.
func Integer[N ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64](n N) string {
	if n < 0 {
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatUint(uint64(n), 10)
}

// Real writes a number with a fraction. It is false for a number that is not finite.
func Real(v float64) (string, bool) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "", false
	}
	text := strings.Replace(strconv.FormatFloat(v, 'g', -1, 64), "e+", "e", 1)
	if v < 0 && !strings.ContainsAny(text, ".e") { // a whole number below 0 would be one of 64 bits
		text += ".0"
	}
	return text, true
}

// Set adds an answer. call and index are those of the language: Temperature and 0 for Temperature[gpu].
// Setting one again replaces it.
func (a *Answers) Set(call string, v Value, index ...int64) {
	s := entry{call: call, index: index, value: v}
	if i := slices.IndexFunc(a.list, func(o entry) bool {
		return o.call == call && slices.Equal(o.index, index)
	}); i >= 0 {
		a.list[i] = s
		return
	}
	a.list = append(a.list, s)
}

// Text returns the text of an answer; empty for none.
func (a *Answers) Text(call string) string {
	for _, s := range a.list {
		if s.call == call {
			return s.value.text
		}
	}
	return ""
}

// Bytes writes the draft. The text was parsed: it is valid, and within the limits of the language.
func (d *Draft) Bytes() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("scenario 1\n")
	for i, paragraph := range d.Comment {
		if i > 0 {
			b.WriteString("#\n")
		}
		for _, line := range wrap(printable(paragraph, maxFileBytes), 108) {
			b.WriteString("# " + line + "\n")
		}
	}
	if d.Title != "" {
		fmt.Fprintf(&b, "\ntitle %s\n", quote(printable(d.Title, 200)))
	}
	if d.Symbols != "" {
		fmt.Fprintf(&b, "symbols %s\n", d.Symbols)
	}
	for _, line := range d.System.lines() {
		b.WriteString("system " + line + "\n")
	}
	d.writeGPUs(&b)
	text := b.Bytes()
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("write a scenario: it would be %d bytes long, and %d are the most", len(text),
			maxFileBytes)
	}
	if _, err := Parse("recording", b.String(), nil); err != nil {
		return nil, fmt.Errorf("write a scenario: what was written does not read: %w", err)
	}
	return text, nil
}

// writeGPUs writes the boards, the GPUs and what happens on them.
func (d *Draft) writeGPUs(b *bytes.Buffer) {
	names := d.boards(b)
	for i := range d.GPUs {
		c := &d.GPUs[i]
		fmt.Fprintf(b, "\ngpu %d", i)
		name, shared := names[c.Board]
		if shared {
			b.WriteString(" board=" + name)
		}
		for _, o := range c.Options {
			b.WriteString(" " + o)
		}
		b.WriteByte('\n')
		common := d.common(c.Board, shared)
		for _, line := range c.Lines {
			if common == nil || !common.lines[line] {
				b.WriteString("  " + line + "\n")
			}
		}
		own := Answers{}
		for _, s := range c.Answers.list {
			if common == nil || !common.has[s.key()] {
				own.list = append(own.list, s)
			}
		}
		for _, line := range own.lines() {
			b.WriteString("  " + line + "\n")
		}
	}
	b.WriteByte('\n')
	for _, c := range d.GPUs {
		for _, s := range c.Statements {
			b.WriteString(s + "\n")
		}
	}
}

// boards writes what GPUs of a board have in common, and returns the boards' names in the file.
func (d *Draft) boards(b *bytes.Buffer) map[string]string {
	names := map[string]string{}
	count := map[string]int{}
	for _, c := range d.GPUs {
		count[c.Board]++
	}
	for _, c := range d.GPUs {
		if _, done := names[c.Board]; done || count[c.Board] < 2 {
			continue
		}
		name := fmt.Sprintf("board%d", len(names))
		names[c.Board] = name
		common := d.common(c.Board, true)
		fmt.Fprintf(b, "\nboard %s\n", name)
		for _, line := range c.Lines {
			if common.lines[line] {
				b.WriteString("  " + line + "\n")
			}
		}
		shared := Answers{}
		for _, s := range c.Answers.list {
			if common.has[s.key()] {
				shared.list = append(shared.list, s)
			}
		}
		for _, line := range shared.lines() {
			b.WriteString("  " + line + "\n")
		}
	}
	return names
}

// sharing is what all GPUs of a board have in common: answers by their key, and lines.
type sharing struct {
	has, lines map[string]bool
}

func (d *Draft) common(board string, shared bool) *sharing {
	if !shared {
		return nil
	}
	var all map[string]string
	s := &sharing{has: map[string]bool{}, lines: map[string]bool{}}
	for i := range d.GPUs {
		c := &d.GPUs[i]
		if c.Board != board {
			continue
		}
		own := map[string]string{}
		for _, a := range c.Answers.list {
			own[a.key()] = a.value.spell(a)
		}
		if all == nil {
			all = own
			for _, line := range c.Lines {
				s.lines[line] = true
			}
			continue
		}
		maps.DeleteFunc(all, func(key, value string) bool { return own[key] != value })
		maps.DeleteFunc(s.lines, func(line string, _ bool) bool { return !slices.Contains(c.Lines, line) })
	}
	for key := range all {
		s.has[key] = true
	}
	return s
}

// key is the answer's key in the language's canonical form.
func (s *entry) key() string {
	if len(s.index) == 0 {
		return s.call
	}
	words := make([]string, len(s.index))
	for i, n := range s.index {
		words[i] = strconv.FormatInt(n, 10)
	}
	return s.call + "[" + strings.Join(words, ",") + "]"
}

// lines writes the answers, neighbors with the same value as one range.
func (a *Answers) lines() []string {
	var out []string
	for i := 0; i < len(a.list); {
		first := a.list[i]
		value := first.value.spell(first)
		end := i + 1
		for end < len(a.list) && end-i < maxAnswersPerLine && follows(a.list[end-1], a.list[end]) &&
			a.list[end].value.spell(a.list[end]) == value {
			end++
		}
		if value != "" {
			out = append(out, keyOf(first, a.list[end-1])+" = "+value)
		}
		i = end
	}
	return out
}

// follows reports whether b is a's neighbor in a range: a number that is one higher at the last place.
func follows(a, b entry) bool {
	last := len(a.index) - 1
	if a.call != b.call || len(b.index) != len(a.index) || last < 0 || !slices.Equal(a.index[:last], b.index[:last]) {
		return false
	}
	k, known := findKey(a.call)
	return known && last < len(k.index) && k.index[last].Limit > 0 && b.index[last] == a.index[last]+1 &&
		b.index[last] < int64(k.index[last].Limit)
}

// keyOf writes the key of a range of answers, with the names of the arguments where there are some.
func keyOf(first, last entry) string {
	if len(first.index) == 0 {
		return first.call
	}
	k, _ := findKey(first.call)
	words := make([]string, len(first.index))
	for i, n := range first.index {
		words[i] = strconv.FormatInt(n, 10)
		if i >= len(k.index) {
			continue
		}
		switch r := k.index[i]; {
		case last.index[i] != n:
			words[i] += "-" + strconv.FormatInt(last.index[i], 10)
		case r.All == words[i] && r.All != "":
			words[i] = "all"
		case n >= 0 && n < int64(len(r.Names)):
			words[i] = r.Names[n]
		}
	}
	return first.call + "[" + strings.Join(words, ",") + "]"
}

// text is the right side of an answer; empty for none.
func (v Value) spell(of entry) string {
	note := ""
	if v.note != "" {
		note = "   # " + printable(v.note, 200)
	}
	switch {
	case v.code != "":
		return "!" + v.code + note
	case v.isText:
		return quote(v.text) + note
	case len(v.numbers) == 0:
		return ""
	case len(v.numbers) == 1:
		kind := ""
		if v.kind != "" && valueTypes[v.kind] != fieldType(of.key()) {
			kind = " type=" + v.kind
		}
		return v.numbers[0] + kind + note
	}
	k, _ := findKey(of.call)
	words := make([]string, len(v.numbers))
	for i, n := range v.numbers {
		if i < len(k.components) {
			n = k.components[i] + "=" + n
		}
		words[i] = n
	}
	return strings.Join(words, " ") + note
}

func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// printable returns the printable part of a text, for a line of limited length.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	for len(text) > most {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// wrap breaks a paragraph into lines.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
