package scenario

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// sample is a draft with something of everything that a recording has.
func sample() *Draft {
	d := &Draft{Comment: []string{"What it is.", strings.Repeat("A long sentence goes on ", 20) + "and ends."},
		Title: `A "title" # of \ sorts`, Symbols: "R535"}
	d.System.Set("DriverVersion", Text("535.183.01"))
	d.System.Set("CudaDriverVersion", Numbers("12020"))
	d.System.Set("GpmSampleAlloc", Code("NO_PERMISSION"))
	for i := range 2 {
		c := DraftGPU{Board: "NVIDIA Test", Options: []string{fmt.Sprintf("pci=0000:1%d:00.0", i), fmt.Sprintf("uuid=GPU-%d", i)},
			Lines:      []string{"ring period=100ms entries=100", "profile 1g.10gb number=0 id=19 slices=1 memory=9984MiB"},
			Statements: []string{fmt.Sprintf("process gpu=%d pid=%d memory=1GiB busy=12.5%%", i, 1001+i)}}
		c.Answers.Set("Name", Text("NVIDIA Test"))
		c.Answers.Set("Serial", Text(fmt.Sprint("serial", i)))
		c.Answers.Set("PowerUsage", Numbers(Integer(70000+i)))
		c.Answers.Set("EccMode", Numbers("1", "0"))
		c.Answers.Set("Temperature", Numbers("-3"), 0)
		for link := range int64(18) {
			c.Answers.Set("NvLinkState", Numbers("1"), link)
		}
		for link := range int64(18) {
			c.Answers.Set("Field", Code("NOT_SUPPORTED"), 202, link)
		}
		c.Answers.Set("Field", Numbers("5").Typed("double"), 83)
		c.Answers.Set("Field", Numbers("5").Typed("uint"), 82)
		c.Answers.Set("Field", Numbers("1 + 2.5*t"), 138, 4294967295)
		c.Answers.Set("Field", Untouched(), 94)
		c.Answers.Set("TemperatureThreshold", Numbers("90").Noted("a note\nwith a break"), 3)
		c.Answers.Set("FanSpeed", Code("CODE_4242"))
		d.GPUs = append(d.GPUs, c)
	}
	return d
}

func TestWrite(t *testing.T) {
	text, err := sample().Bytes()
	must.OK(t, err)
	s, err := Parse("draft", string(text), nil)
	must.OK(t, err)
	if s.Title != `A "title" # of \ sorts` || s.Symbols != "R535" || len(s.GPUs) != 2 || s.GPUs[1].UUID != "GPU-1" ||
		s.GPUs[1].PCI != "0000:11:00.0" {
		t.Errorf("%q, %s, %+v", s.Title, s.Symbols, s.GPUs)
	}
	for key, want := range map[string]string{"Name": "{ map[] NVIDIA Test}", "PowerUsage": "{ map[value:70001] }",
		"EccMode":         "{ map[current:1 pending:0] }",
		"NvLinkState[17]": "{ map[value:1] }", "Field[202,5]": "{NOT_SUPPORTED map[] }", "Field[94]": "{UNTOUCHED map[] }",
		"TemperatureThreshold[gpu_max]": "{ map[value:90] }", "FanSpeed": "{UNKNOWN map[] }", "Serial": "{ map[] serial1}"} {
		if a, ok := s.Answer(1, key, 0); !ok || fmt.Sprint(a) != want {
			t.Errorf("%s answers %v, want %s", key, a, want)
		}
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range []string{"# What it is.", "symbols R535", "system GpmSampleAlloc = !NO_PERMISSION", "board board0",
		"  NvLinkState[0-17] = 1",
		"  Field[202,0-17] = !NOT_SUPPORTED", "  Field[83] = 5 type=double", "  Field[82] = 5", "  Field[138,all] = 1 + 2.5*t",
		"  Temperature[gpu] = -3",
		"  TemperatureThreshold[gpu_max] = 90   # a note?with a break", "  FanSpeed = !UNKNOWN   # the driver returned CODE_4242",
		"gpu 1 board=board0 pci=0000:11:00.0 uuid=GPU-1", "  PowerUsage = 70001"} {
		if n := strings.Count(strings.Join(lines, "\n")+"\n", want+"\n"); n != 1 {
			t.Errorf("%q stands there %d times:\n%s", want, n, text)
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "#") && len(line) > 110 {
			t.Errorf("a comment is %d bytes wide", len(line))
		}
	}
}

// TestWriteRefuses: what would not read is not written.
func TestWriteRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Draft){
		"an unknown call":         func(d *Draft) { d.GPUs[0].Answers.Set("Mood", Numbers("1")) },
		"a statement":             func(d *Draft) { d.GPUs[0].Statements = []string{"process gpu=7 pid=1"} },
		"a symbol set":            func(d *Draft) { d.Symbols = "R1" },
		"more than a file holds":  func(d *Draft) { d.Comment = []string{strings.Repeat("word ", 1<<18)} },
		"more gpus than a node":   func(d *Draft) { d.GPUs = make([]DraftGPU, MaxGPUs+1) },
		"an answer without parts": func(d *Draft) { d.GPUs[0].Answers.Set("EccMode", Numbers("1")) },
	} {
		d := sample()
		spoil(d)
		if text, err := d.Bytes(); err == nil {
			t.Errorf("%s was written:\n%s", name, text)
		} else if !strings.HasPrefix(err.Error(), "write a scenario: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWriteTexts(t *testing.T) {
	for _, text := range []string{"", "plain", `quo"te`, `back\slash`, `\"`, "# no comment", "tab\tand\nline", "\xff\xfe", "ünïcode",
		strings.Repeat("é", 60), "\x00"} {
		d := &Draft{GPUs: []DraftGPU{{}}}
		d.GPUs[0].Answers.Set("Name", Text(text))
		b, err := d.Bytes()
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		s, err := Parse("x", string(b), nil)
		must.OK(t, err)
		a, _ := s.Answer(0, "Name", 0)
		if want := printable(text, maxNameBytes); a.Text != want {
			t.Errorf("%q came back as %q", text, a.Text)
		}
	}
	if v, ok := Real(1e308); !ok || v != "1e308" {
		t.Errorf("1e308 is %q", v)
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, ok := Real(v); ok {
			t.Errorf("%v is a number", v)
		}
	}
	if Integer(uint64(math.MaxUint64)) != "18446744073709551615" || Integer(int64(math.MinInt64)) != "-9223372036854775808" {
		t.Error("whole numbers lose digits")
	}
}

var atLine = regexp.MustCompile(`^[\w.-]+:\d+: .*expected `)

// TestWrittenAndSpoiled loads a written scenario after something happened to it. Whatever that was, it is an
// error with file, line and what was expected, or it reads; it is never a crash.
func TestWrittenAndSpoiled(t *testing.T) {
	text, err := sample().Bytes()
	must.OK(t, err)
	whole, dir := string(text), t.TempDir()
	load := func(text string) error {
		file := filepath.Join(dir, "node.scenario")
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := Load(file)
		return err
	}
	must.OK(t, load(whole))
	must.OK(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link.scenario")))
	for text, want := range map[string]string{
		"\x7fELF\x02\x01\x01\x00": "node.scenario:1: expected printable text",
		whole + "board b\n" + strings.Repeat("  Field[0-255,0-1] = 0\n", 2):   "expected ranges that make at most",
		strings.Replace(whole, "symbols R535", strings.Repeat("x", 1<<20), 1): "node.scenario:",
		whole + strings.Repeat("# \n", 1<<19):                                 "node.scenario:1: expected at most",
		"scenario 1\ninclude link.scenario\n":                                 "node.scenario:2: ", // out of the directory
	} {
		if err := load(text); err == nil || !strings.Contains(err.Error(), want) || !atLine.MatchString(err.Error()) {
			t.Errorf("%.200q: %v, want %q", text, err, want)
		}
	}
	for _, file := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := Load(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
	var spoiled []string
	for at := range whole { // cut at every byte, and with a byte changed at every place
		spoiled = append(spoiled, whole[:at], whole[:at]+"\x00"+whole[at+1:], whole[:at]+"9"+whole[at+1:],
			whole[:at]+"]"+whole[at+1:])
	}
	lines := strings.SplitAfter(whole, "\n")
	for i := range lines { // a line is lost or moved
		lost := strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "")
		spoiled = append(spoiled, lost, lost+lines[i])
	}
	for i, text := range spoiled {
		if s, err := Parse("node.scenario", text, nil); err == nil {
			_ = s.Flat()
		} else if !atLine.MatchString(err.Error()) {
			t.Fatalf("spoiled in way %d: %v", i, err)
		}
	}
}

// FuzzWrite: whatever a driver says, what is written of it reads, and says the same.
func FuzzWrite(f *testing.F) {
	f.Add("NVIDIA H100", "NO_PERMISSION", uint64(5), int64(-3), 2.5, "a note")
	f.Add("\"\\#\n\x00\xff", "CODE_7", uint64(math.MaxUint64), int64(math.MinInt64), math.Inf(1), "\n")
	f.Fuzz(func(t *testing.T, text, code string, unsigned uint64, signed int64, real float64, note string) {
		d := &Draft{Comment: []string{text, note}, Title: text, GPUs: []DraftGPU{{Board: text}, {Board: text}}}
		for i := range d.GPUs {
			a := &d.GPUs[i].Answers
			a.Set("Name", Text(text).Noted(note))
			a.Set("PowerUsage", Code(code))
			a.Set("TotalEnergyConsumption", Numbers(Integer(unsigned)).Noted(note))
			a.Set("MarginTemperature", Numbers(Integer(signed)))
			if n, ok := Real(real); ok {
				a.Set("Field", Numbers(n).Typed("double"), 83)
			}
		}
		if len(text)+len(note) > 1000 {
			return
		}
		b, err := d.Bytes()
		must.OK(t, err)
		s, err := Parse("fuzzed", string(b), nil)
		must.OK(t, err)
		if got, _ := s.Answer(1, "Name", 0); got.Text != printable(text, maxNameBytes) {
			t.Errorf("%q came back as %q", text, got.Text)
		}
		if got, _ := s.Answer(1, "TotalEnergyConsumption", 0); got.Numbers["value"] != float64(unsigned) &&
			got.Numbers["value"] != float64(int64(unsigned)) {
			t.Errorf("%d came back as %v", unsigned, got)
		}
		if n, ok := Real(real); ok {
			if got, _ := s.Answer(0, "Field[83]", 0); got.Numbers["value"] != real {
				t.Errorf("%v, written as %s, came back as %v", real, n, got)
			}
		}
	})
}
