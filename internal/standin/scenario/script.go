package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// at reads a line of the script: at TIME GPU N ..., at TIME system ..., at TIME driver ...
func (p *parser) at(tokens []token) error {
	p.current = nil
	if len(tokens) < 3 {
		return fmt.Errorf("expected at, a time, and gpu N, system or driver with what happens")
	}
	at, err := parseDuration(tokens[0].text)
	if err != nil {
		return err
	}
	switch tokens[1].text {
	case "driver":
		kinds := []string{"load", "unload", "mismatch", "replace"}
		if len(tokens) != 3 || !slices.Contains(kinds, tokens[2].text) {
			return fmt.Errorf("expected at TIME driver and one of %s", strings.Join(kinds, ", "))
		}
		p.s.driver = append(p.s.driver, driverStep{at: at, kind: tokens[2].text})
		return nil
	case "system":
		return p.atSystem(at, tokens[2:])
	case "gpu":
		if len(tokens) < 4 {
			return fmt.Errorf("expected at TIME gpu N and what happens")
		}
		devs, err := p.GPURange(tokens[2].text)
		if err != nil {
			return err
		}
		for _, c := range devs {
			if err := p.atGPU(at, c, tokens[3:]); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("expected gpu, system or driver after the time, found %q", tokens[1].text)
}

func (p *parser) atSystem(at time.Duration, tokens []token) error {
	if st, ok, err := parseStall(at, tokens); ok || err != nil {
		p.s.stalls = append(p.s.stalls, st)
		return err
	}
	if len(tokens) < 3 || tokens[1].text != "=" {
		return fmt.Errorf("expected an answer, hang FUNCTION or delay FUNCTION TIME")
	}
	answers, err := p.parseAnswers(tokens[0].text, tokens[2:], at, true)
	p.s.system = append(p.s.system, answers...)
	return err
}

// parseStall reads "hang FUNCTION" and "delay FUNCTION TIME". The function is written as an answer's key
// or as NVML's; * is every function.
func parseStall(at time.Duration, tokens []token) (stall, bool, error) {
	st := stall{at: at, delay: -1}
	switch tokens[0].text {
	case "hang":
		if len(tokens) != 2 {
			return st, false, fmt.Errorf("expected hang and one function, or *")
		}
	case "delay":
		if len(tokens) != 3 {
			return st, false, fmt.Errorf("expected delay, one function or *, and a duration")
		}
		d, err := parseDuration(tokens[2].text)
		if err != nil {
			return st, false, err
		}
		st.delay = d
	default:
		return st, false, nil
	}
	st.function = tokens[1].text
	_, known := findKey(st.function)
	if st.function != "*" && !known && !(strings.HasPrefix(st.function, "nvml") && validName(st.function)) {
		return st, false, fmt.Errorf("expected a function like UtilizationRates or nvmlDeviceGetUtilizationRates, "+
			"found %q", st.function)
	}
	return st, true, nil
}

func (p *parser) atGPU(at time.Duration, c *GPUBlock, tokens []token) error {
	if st, ok, err := parseStall(at, tokens); ok || err != nil {
		c.dev.stalls = append(c.dev.stalls, st)
		return err
	}
	switch word := tokens[0].text; word {
	case "lose", "reset_required", "restore", "remove", "unbind", "bind":
		if len(tokens) != 1 {
			return fmt.Errorf("expected nothing after %s", word)
		}
		c.dev.faults = append(c.dev.faults, fault{at: at, kind: word})
		return nil
	case "xid", "event":
		return p.atEvent(at, c, tokens)
	case "mig":
		return p.atMIG(at, c, tokens[1:])
	}
	if len(tokens) < 3 || tokens[1].text != "=" {
		return fmt.Errorf("expected an answer, or one of lose, reset_required, restore, remove, unbind, bind, hang, " +
			"delay, xid, event, mig")
	}
	if len(tokens) == 3 && tokens[2].text == "default" && !tokens[2].quoted {
		k, names, err := parseKey(tokens[0].text)
		if err != nil {
			return err
		}
		if k.system {
			return fmt.Errorf("expected an answer of a gpu, found %s, which concerns none", k.name)
		}
		for _, name := range names {
			c.scripts = append(c.scripts, scriptLine{position: p.pos, key: k, answer: answer{at: at, key: name}, back: true})
		}
		return nil
	}
	answers, err := p.parseAnswers(tokens[0].text, tokens[2:], at, false)
	if err != nil {
		return err
	}
	for _, a := range answers {
		c.scripts = append(c.scripts, scriptLine{position: p.pos, answer: a})
	}
	return nil
}

func (p *parser) atEvent(at time.Duration, c *GPUBlock, tokens []token) error {
	if len(tokens) < 2 {
		return fmt.Errorf("expected a number after %s", tokens[0].text)
	}
	n, ok := parseInteger(tokens[1].text)
	if !ok || n == 0 || n > 1<<62 {
		return fmt.Errorf("expected a number after %s, found %q", tokens[0].text, tokens[1].text)
	}
	o, err := parseOptions(tokens[2:], "gi", "ci", "data")
	if err != nil {
		return err
	}
	const whole = 1<<32 - 1
	gi, err := o.integer("gi", whole, 0, whole)
	if err != nil {
		return err
	}
	ci, err := o.integer("ci", whole, 0, whole)
	if err != nil {
		return err
	}
	e := event{at: at, dev: c.dev.Index, kind: eventXID, data: n, gi: uint32(gi), ci: uint32(ci)}
	if tokens[0].text == "event" {
		data, ok := parseInteger(o["data"])
		if o["data"] != "" && (!ok || data > 1<<62) {
			return fmt.Errorf("option data=: expected a number, found %q", o["data"])
		}
		e.kind, e.data = n, data
	} else if _, set := o["data"]; set {
		return fmt.Errorf("expected no data= after xid: the code is the data")
	}
	p.s.events = append(p.s.events, e)
	return nil
}

func (p *parser) atMIG(at time.Duration, c *GPUBlock, tokens []token) error {
	const usage = `expected mig pending on, mig pending off, or mig apply layout="gi=1 profile=1g.10gb start=0 size=1"`
	switch {
	case len(tokens) == 2 && tokens[0].text == "pending" && (tokens[1].text == "on" || tokens[1].text == "off"):
		c.migs = append(c.migs, migLine{position: p.pos, at: at, kind: "pending", pending: tokens[1].text == "on"})
		return nil
	case len(tokens) >= 1 && tokens[0].text == "apply":
		o, err := parseOptions(tokens[1:], "layout")
		if err != nil {
			return err
		}
		c.migs = append(c.migs, migLine{position: p.pos, at: at, kind: "apply", layout: o["layout"]})
		return nil
	}
	return errors.New(usage)
}

// GPUSlices is the number of compute slices of the GPU: those of its largest profile.
func GPUSlices(profiles []profile) int {
	most := 0
	for _, p := range profiles {
		most = max(most, p.slices)
	}
	if most == 0 {
		return 7
	}
	return most
}
