package scenario

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// Load reads a scenario file. Its includes are looked for in its own directory and below.
func Load(file string) (*Scenario, error) {
	root, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("reading scenario %s: %w", file, err)
	}
	defer root.Close()
	name := filepath.Base(file)
	f, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading scenario %s: %w", file, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading scenario %s: %w", file, err)
	}
	return Parse(name, string(text), root.FS())
}

// Parse reads a scenario from text. Includes are files of the file system, which may be nil if there are
// none; name is used in errors, which all begin with "name:line: ".
func Parse(name, text string, includes fs.FS) (*Scenario, error) {
	p := &parser{
		s:        &Scenario{Name: name, Symbols: "newest"},
		includes: includes,
		boards:   map[string]*boardBlock{},
	}
	if err := p.file(name, text, 0); err != nil {
		return nil, err
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return p.s, nil
}

// position is the place of a statement.
type position struct {
	file string
	line int
}

func (p position) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", p.file, p.line, fmt.Errorf(format, args...))
}

// boardBlock is a board template.
type boardBlock struct {
	at       position
	answers  []answer
	profiles []profile
	ring     ring
	model    model
}

// GPUBlock are the statements of one GPU, until all are read.
type GPUBlock struct {
	at      position
	dev     GPU
	block   boardBlock // the lines that override the board
	scripts []scriptLine
	migs    []migLine
}

// scriptLine is an answer from a time on; back is "= default".
type scriptLine struct {
	position
	key    keyRow
	answer answer
	back   bool
}

// migLine changes the MIG state.
type migLine struct {
	position
	at      time.Duration
	kind    string // pending, apply
	pending bool
	layout  string
}

type parser struct {
	s        *Scenario
	includes fs.FS
	files    int
	lines    int
	answers  int
	boards   map[string]*boardBlock
	devs     []*GPUBlock
	// current is the block to which the indented lines belong: a board or a GPU.
	current *boardBlock
	pos     position
}

func (p *parser) file(name, text string, depth int) error {
	if p.files++; p.files > maxFiles {
		return position{name, 1}.errorf("expected at most %d files", maxFiles)
	}
	if len(text) > maxFileBytes {
		return position{name, 1}.errorf("expected at most %d bytes", maxFileBytes)
	}
	scanner := bufio.NewScanner(bytes.NewReader([]byte(text)))
	scanner.Buffer(make([]byte, 0, 4096), maxFileBytes+1)
	p.current = nil
	header := false
	line := 0
	for scanner.Scan() {
		line++
		p.pos = position{name, line}
		if p.lines++; p.lines > maxLines {
			return p.pos.errorf("expected at most %d lines in all", maxLines)
		}
		tokens, err := splitLine(scanner.Text())
		if err != nil {
			return p.pos.errorf("%w", err)
		}
		if len(tokens) == 0 {
			continue
		}
		if !header {
			if len(tokens) != 2 || tokens[0].text != "scenario" || tokens[1].text != "1" {
				return p.pos.errorf("expected the first line to be: scenario 1")
			}
			header = true
			continue
		}
		if tokens[0].text == "include" {
			if err := p.include(tokens, depth); err != nil {
				return err
			}
			continue
		}
		if err := p.statement(tokens); err != nil {
			return p.pos.errorf("%w", err)
		}
	}
	if err := scanner.Err(); err != nil {
		return position{name, line + 1}.errorf("expected shorter lines: %w", err)
	}
	if !header {
		return position{name, 1}.errorf("expected the first line to be: scenario 1")
	}
	return nil
}

func (p *parser) include(tokens []token, depth int) error {
	pos := p.pos
	if len(tokens) != 2 || !fs.ValidPath(tokens[1].text) || tokens[1].text == "." {
		return pos.errorf("expected include and a path below the scenario's directory, like boards/h100-sxm.scenario")
	}
	if depth >= maxIncludeDepth {
		return pos.errorf("expected includes at most %d deep", maxIncludeDepth)
	}
	if p.includes == nil {
		return pos.errorf("expected no include: there are no files to include")
	}
	name := path.Clean(tokens[1].text)
	f, err := p.includes.Open(name)
	if err != nil {
		return pos.errorf("expected a readable file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return pos.errorf("expected a readable file: %w", err)
	}
	err = p.file(name, string(text), depth+1)
	p.pos, p.current = pos, nil
	return err
}

// statements by their first word.
var statements = map[string]func(p *parser, tokens []token) error{
	"title":   (*parser).title,
	"symbols": (*parser).symbols,
	"system":  (*parser).systemAnswer,
	"board":   (*parser).board,
	"ring":    (*parser).ring,
	"model":   (*parser).model,
	"profile": (*parser).profile,
	"gpu":     (*parser).dev,
	"process": (*parser).process,
	"load":    (*parser).load,
	"mig":     (*parser).mig,
	"at":      (*parser).at,
}

func (p *parser) statement(tokens []token) error {
	if do, known := statements[tokens[0].text]; known && !tokens[0].quoted {
		return do(p, tokens[1:])
	}
	if len(tokens) < 3 || tokens[1].text != "=" {
		return fmt.Errorf("expected a statement, or an answer like PowerUsage = 70000; found %q", tokens[0].text)
	}
	if p.current == nil {
		return fmt.Errorf("expected a board or gpu statement before an answer")
	}
	answers, err := p.parseAnswers(tokens[0].text, tokens[2:], 0, false)
	if err != nil {
		return err
	}
	for _, a := range answers {
		p.current.answers = append(p.current.answers, followProcesses(a))
	}
	return nil
}

// parseAnswers reads KEY = VALUE; a range in the key makes many answers.
func (p *parser) parseAnswers(keyText string, tokens []token, at time.Duration, system bool) ([]answer, error) {
	k, names, err := parseKey(keyText)
	if err != nil {
		return nil, err
	}
	if k.system != system {
		if k.system {
			return nil, fmt.Errorf("expected %s after the word system: it concerns no gpu", k.name)
		}
		return nil, fmt.Errorf("expected an answer that concerns no gpu, like DriverVersion; found %s", k.name)
	}
	v, err := parseValue(k, memoryDefaults(k, tokens))
	if err != nil {
		return nil, err
	}
	if p.answers += len(names); p.answers > maxAnswers {
		return nil, fmt.Errorf("expected at most %d answers in all", maxAnswers)
	}
	var answers []answer
	for _, name := range names {
		a := answer{at: at, key: name, value: v}
		if v.valueType < 0 {
			a.value.valueType = fieldType(name)
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// memoryDefaults lets used and free be left out: they follow the processes anyway.
func memoryDefaults(k keyRow, tokens []token) []token {
	if k.name != "MemoryInfo" && k.name != "MemoryInfo_v2" && k.name != "BAR1MemoryInfo" {
		return tokens
	}
	for _, name := range []string{"used", "free"} {
		has := slices.ContainsFunc(tokens, func(t token) bool { return strings.HasPrefix(t.text, name+"=") })
		if !has && slices.ContainsFunc(tokens, func(t token) bool { return strings.HasPrefix(t.text, "total=") }) {
			tokens = append(slices.Clip(tokens), token{text: name + "=0"})
		}
	}
	return tokens
}

// followProcesses makes used and free of a board's or GPU's memory follow the memory of processes. Only a
// script line sets them directly.
func followProcesses(a answer) answer {
	if len(a.value.components) < 3 || (a.key != "MemoryInfo" && a.key != "MemoryInfo_v2" && a.key != "BAR1MemoryInfo") {
		return a
	}
	number := func(i int) (float64, bool) {
		if i >= len(a.value.components) {
			return 0, true
		}
		c := a.value.components[i]
		return float64(c.exact), c.isExact
	}
	total, ok1 := number(0)
	used, ok2 := number(1)
	reserved, ok3 := number(3)
	if !ok1 || !ok2 || !ok3 {
		return a
	}
	processes := 1.0
	if a.key == "BAR1MemoryInfo" {
		processes = 0 // it does not follow: recent drivers map all of it
	}
	c := slices.Clone(a.value.components)
	c[1] = component{terms: []term{{used, "1"}, {processes, "process_memory"}}}
	c[2] = component{terms: []term{{total - reserved - used, "1"}, {-processes, "process_memory"}}}
	a.value.components = c
	return a
}

func (p *parser) title(tokens []token) error {
	if len(tokens) != 1 || !tokens[0].quoted {
		return fmt.Errorf("expected title and a text in quotes")
	}
	if p.s.Title == "" { // an included scenario's title is not this one's
		p.s.Title = tokens[0].text
	}
	return nil
}

// WidelySpaced are the symbol sets that differ by much, for tests that are run under each.
var WidelySpaced = []string{"R470", "R535", "R580", "R595", "newest"}

// SymbolSets are the driver branches whose functions the stand-in driver can export.
var SymbolSets = []string{"R470", "R535", "R550", "R580", "R595", "R610", "R615", "R620", "newest"}

func (p *parser) symbols(tokens []token) error {
	if len(tokens) != 1 || !slices.Contains(SymbolSets, tokens[0].text) {
		return fmt.Errorf("expected symbols and one of %s", strings.Join(SymbolSets, ", "))
	}
	p.s.Symbols = tokens[0].text
	return nil
}

func (p *parser) systemAnswer(tokens []token) error {
	if len(tokens) < 3 || tokens[1].text != "=" {
		return fmt.Errorf(`expected system and an answer, like system DriverVersion = "580.105.08"`)
	}
	answers, err := p.parseAnswers(tokens[0].text, tokens[2:], 0, true)
	p.s.system = append(p.s.system, answers...)
	return err
}

func validName(text string) bool {
	return text != "" && len(text) <= maxNameBytes && !strings.ContainsAny(text, " \t\"=[]#")
}

func (p *parser) board(tokens []token) error {
	if len(tokens) != 1 || !validName(tokens[0].text) {
		return fmt.Errorf("expected board and a name")
	}
	if _, twice := p.boards[tokens[0].text]; twice {
		return fmt.Errorf("expected board %s once", tokens[0].text)
	}
	p.current = &boardBlock{at: p.pos}
	p.boards[tokens[0].text] = p.current
	return nil
}

func (p *parser) ring(tokens []token) error {
	if p.current == nil {
		return fmt.Errorf("expected a board or gpu statement before ring")
	}
	o, err := parseOptions(tokens, "period", "entries", "sizing", "clock", "unfilled", "order", "idle", "window", "process_mean")
	if err != nil {
		return err
	}
	r := ring{}
	if r.period, err = o.duration("period", 166667*time.Microsecond); err != nil {
		return err
	}
	if r.period < minPeriod || r.period%time.Microsecond != 0 {
		return fmt.Errorf("option period=: expected whole microseconds, at least %v", minPeriod)
	}
	if r.entries, err = o.integer("entries", 72, 1, maxRingEntries); err != nil {
		return err
	}
	if r.sizing, err = o.integer("sizing", r.entries, 1, maxRingEntries); err != nil {
		return err
	}
	if r.window, err = o.duration("window", time.Second); err != nil {
		return err
	}
	if r.window < minPeriod {
		return fmt.Errorf("option window=: expected at least %v", minPeriod)
	}
	for _, c := range []struct {
		name, off, on string
		to            *bool
	}{{"clock", "epoch", "boot", &r.boot}, {"unfilled", "drop", "zeros", &r.zeros},
		{"order", "time", "slot", &r.slots}, {"idle", "zeros", "stop", &r.stops},
		{"process_mean", "window", "own", &r.ownMean}} {
		text, set := o[c.name]
		if set && text != c.off && text != c.on {
			return fmt.Errorf("option %s=: expected %s or %s, found %q", c.name, c.off, c.on, text)
		}
		*c.to = text == c.on
	}
	p.current.ring = r
	return nil
}

func (p *parser) model(tokens []token) error {
	if p.current == nil {
		return fmt.Errorf("expected a board or gpu statement before model")
	}
	o, err := parseOptions(tokens, "idle_watts", "busy_watts", "idle_celsius", "busy_celsius")
	if err != nil {
		return err
	}
	m := model{given: true}
	for _, f := range []struct {
		name string
		to   *float64
	}{{"idle_watts", &m.idleWatts}, {"busy_watts", &m.busyWatts}, {"idle_celsius", &m.idleCelsius},
		{"busy_celsius", &m.busyCelsius}} {
		if *f.to, err = o.number(f.name, 0); err != nil {
			return err
		}
		if *f.to < 0 || *f.to > 1e6 {
			return fmt.Errorf("option %s=: expected a number from 0 to 1000000", f.name)
		}
	}
	p.current.model = m
	return nil
}

func (p *parser) profile(tokens []token) error {
	if p.current == nil {
		return fmt.Errorf("expected a board or gpu statement before profile")
	}
	if len(tokens) == 0 || !validName(tokens[0].text) || len(tokens[0].text) > 31 {
		return fmt.Errorf("expected profile and a name like 1g.10gb")
	}
	if len(p.current.profiles) >= maxProfilesPerGPU {
		return fmt.Errorf("expected at most %d profiles", maxProfilesPerGPU)
	}
	o, err := parseOptions(tokens[1:], "number", "id", "slices", "memory", "sms", "count", "copies", "decoders",
		"encoders",
		"jpg", "ofa")
	if err != nil {
		return err
	}
	pr := profile{name: tokens[0].text}
	memory, err := parseSize(o["memory"])
	if err != nil {
		return fmt.Errorf("option memory=: %w", err)
	}
	pr.memoryMiB = int(memory >> 20)
	for _, f := range []struct {
		name      string
		to        *int
		low, high int
	}{{"number", &pr.number, 0, 255}, {"id", &pr.id, 0, 255}, {"slices", &pr.slices, 1, 16}, {"sms", &pr.sms, 0, 1024},
		{"count", &pr.count, 0, 16}, {"copies", &pr.copies, 0, 64}, {"decoders", &pr.decoders, 0, 64},
		{"encoders", &pr.encoders, 0, 64}, {"jpg", &pr.jpg, 0, 64}, {"ofa", &pr.ofa, 0, 64}} {
		fallback := 0
		if f.name == "slices" {
			fallback = 1
		}
		if *f.to, err = o.integer(f.name, fallback, f.low, f.high); err != nil {
			return err
		}
	}
	p.current.profiles = append(p.current.profiles, pr)
	return nil
}

func (p *parser) dev(tokens []token) error {
	if len(tokens) == 0 {
		return fmt.Errorf("expected gpu and its number")
	}
	index, err := strconv.Atoi(tokens[0].text)
	if err != nil || index != len(p.devs) || index >= MaxGPUs {
		return fmt.Errorf("expected gpus numbered from 0 in order, %d at most; found %q", MaxGPUs, tokens[0].text)
	}
	o, err := parseOptions(tokens[1:], "board", "uuid", "pci", "minor", "serial")
	if err != nil {
		return err
	}
	c := &GPUBlock{at: p.pos, dev: GPU{Index: index, Board: o["board"]}, block: boardBlock{at: p.pos}}
	if _, known := p.boards[c.dev.Board]; !known && c.dev.Board != "" {
		return fmt.Errorf("option board=: expected a board described before, found %q", c.dev.Board)
	}
	c.dev.UUID = gpu.UUID(o["uuid"])
	if c.dev.UUID == "" {
		c.dev.UUID = gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", index, index))
	}
	if !validName(string(c.dev.UUID)) {
		return fmt.Errorf("option uuid=: expected a name without spaces, of at most %d bytes", maxNameBytes)
	}
	pci := o["pci"]
	if pci == "" {
		pci = fmt.Sprintf("0000:%02x:00.0", 0x18+index)
	}
	if c.dev.PCI, err = gpu.ParsePCIAddress(pci); err != nil {
		return fmt.Errorf("option pci=: expected a PCI address: %w", err)
	}
	if c.dev.Minor, err = o.integer("minor", index, 0, 255); err != nil {
		return err
	}
	if serial, set := o["serial"]; set {
		if len(serial) > 29 {
			return fmt.Errorf("option serial=: expected at most 29 bytes")
		}
		c.block.answers = append(c.block.answers,
			answer{key: "Serial", value: value{components: []component{{isText: true, text: serial}}}})
	}
	for _, other := range p.devs {
		if other.dev.UUID == c.dev.UUID || other.dev.PCI == c.dev.PCI {
			return fmt.Errorf("expected another uuid and PCI address than those of gpu %d", other.dev.Index)
		}
	}
	p.devs = append(p.devs, c)
	p.current = &c.block
	return nil
}

// gpuRange reads gpu=3 or gpu=0-7.
func (p *parser) GPURange(text string) ([]*GPUBlock, error) {
	if len(p.devs) == 0 {
		return nil, fmt.Errorf("expected a gpu statement before this")
	}
	first, last, err := parseRange(text, len(p.devs))
	if err != nil {
		return nil, fmt.Errorf("expected the number of a gpu described before: %w", err)
	}
	return p.devs[first : last+1], nil
}

func (p *parser) process(tokens []token) error {
	o, err := parseOptions(tokens, "gpu", "pid", "kind", "memory", "busy", "period", "phase", "from", "to", "gi", "ci", "dram")
	if err != nil {
		return err
	}
	return p.demand(o, true)
}

func (p *parser) load(tokens []token) error {
	o, err := parseOptions(tokens, "gpu", "pid", "memory", "busy", "period", "phase", "from", "to", "gi", "ci", "dram")
	if err != nil {
		return err
	}
	return p.demand(o, false)
}

func (p *parser) demand(o options, listed bool) error {
	p.current = nil
	devs, err := p.GPURange(o["gpu"])
	if err != nil {
		return fmt.Errorf("option gpu=: %w", err)
	}
	d := demand{listed: listed, gi: -1, ci: -1, to: forever, dram: 0.4}
	lowestPID := 0
	if listed {
		lowestPID = 1
	}
	if d.pid, err = o.integer("pid", 0, lowestPID, 1<<30); err != nil {
		return err
	}
	if listed && d.pid == 0 {
		return fmt.Errorf("expected option pid= of a process")
	}
	if kind, set := o["kind"]; set {
		if d.kind = slices.Index(processKinds, gpu.ProcessKind(kind)); d.kind < 0 {
			return fmt.Errorf("option kind=: expected compute, graphics or mps, found %q", kind)
		}
	}
	if err = d.quantities(o); err != nil {
		return err
	}
	for _, c := range devs {
		if len(c.dev.demands) >= maxDemandsPerGPU {
			return fmt.Errorf("expected at most %d processes and loads on a gpu", maxDemandsPerGPU)
		}
		c.dev.demands = append(c.dev.demands, d)
	}
	return nil
}

// quantities reads what a demand uses, where and when.
func (d *demand) quantities(o options) (err error) {
	switch memory, set := o["memory"]; {
	case !set:
	case memory == "na":
		d.memoryUnknown = true
	case strings.HasSuffix(memory, "%") && !d.listed: // of a load: how much of its time it uses memory
		if d.dram, err = parsePercent(memory); err != nil {
			return fmt.Errorf("option memory=: %w", err)
		}
	default:
		if d.memory, err = parseSize(memory); err != nil {
			return fmt.Errorf("option memory=: %w", err)
		}
	}
	if dram, set := o["dram"]; set {
		if d.dram, err = parsePercent(dram); err != nil {
			return fmt.Errorf("option dram=: %w", err)
		}
	}
	for _, f := range []struct {
		name string
		to   *time.Duration
	}{{"period", &d.period}, {"phase", &d.phase}, {"from", &d.from}, {"to", &d.to}} {
		fallback := *f.to
		if f.name == "period" {
			fallback = time.Second
		}
		if *f.to, err = o.duration(f.name, fallback); err != nil {
			return err
		}
	}
	if d.period < minPeriod {
		return fmt.Errorf("option period=: expected at least %v", minPeriod)
	}
	if d.to <= d.from {
		return fmt.Errorf("option to=: expected a time after from=")
	}
	if busy, set := o["busy"]; set {
		part, err := parsePercent(busy)
		if err != nil {
			return fmt.Errorf("option busy=: %w", err)
		}
		d.on = time.Duration(part*float64(d.period) + 0.5)
	}
	if _, set := o["gi"]; set {
		if d.gi, err = o.integer("gi", 0, 0, maxGI-1); err != nil {
			return err
		}
		d.ci = 0
	}
	if _, set := o["ci"]; set {
		if d.gi < 0 {
			return fmt.Errorf("expected option gi= beside ci=")
		}
		if d.ci, err = o.integer("ci", 0, 0, maxGI-1); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) mig(tokens []token) error {
	p.current = nil
	o, err := parseOptions(tokens, "gpu", "layout")
	if err != nil {
		return err
	}
	devs, err := p.GPURange(o["gpu"])
	if err != nil {
		return fmt.Errorf("option gpu=: %w", err)
	}
	for _, c := range devs {
		c.migs = append(c.migs, migLine{position: p.pos, kind: "pending", pending: true},
			migLine{position: p.pos, kind: "apply", layout: o["layout"]})
	}
	return nil
}
