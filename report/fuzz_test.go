package report

import (
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzParsePrices: a price list that is taken has prices, and no other.
func FuzzParsePrices(f *testing.F) {
	f.Add("currency: EUR\ngpus:\n- model: \"*H100*\"\n  per_hour: 2.5\nenergy_per_kwh: 0.2\npower_usage_effectiveness: 1.3\n", "NVIDIA H100 80GB HBM3")
	f.Add("gpus: [{model: '[', per_hour: 1}]", "[")
	f.Add("energy_per_kwh: .nan", "")
	f.Add("gpus: [{model: a/b, per_hour: .inf}]", "a/b")
	f.Fuzz(func(t *testing.T, text, model string) {
		p, err := ParsePrices([]byte(text))
		if err != nil {
			if p != nil || strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("%v beside %q", p, err)
			}
			return
		}
		price := func(what string, v float64) {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Errorf("%s costs %v", what, v)
			}
		}
		if v, ok := p.perHour(model); ok {
			price(model, v)
		}
		if c := p.cost(model, 24); c != nil {
			price("a day", *c)
		}
		if e := p.energy(100); e != nil {
			price("100 kWh", *e)
		}
		if p.Currency == "" {
			t.Error("a price without a currency")
		}
	})
}

// FuzzOwner: whose a pod is guessed to be is a part of its name, and no two pods of one controller get two owners.
func FuzzOwner(f *testing.F) {
	for _, s := range []string{"web-7d9c5b8f6d-x2x4z", "train-0", "job-bcdfg", "docker/n", "a", "", "-0", "x-12345"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pod string) {
		o := guessOwner(pod)
		if !strings.Contains(pod, o.name) || o.kind == "" && !strings.HasPrefix(pod, "/") {
			t.Errorf("%q is of %+v", pod, o)
		}
		if o.from == ownerPod && (o.name != pod || o.kind != "Pod") {
			t.Errorf("%q stands for itself as %+v", pod, o)
		}
		if o.from == ownerGuessed && o.kind == "StatefulSet" {
			if other := guessOwner(o.name + "-7"); other != o {
				t.Errorf("%q is of %+v, and its sibling of %+v", pod, o, other)
			}
		}
	})
}

// words reads a line as a POSIX shell does that finds nothing but plain words and single quotes; ok is false where
// there is anything else that a shell would act upon.
func words(line string) (out []string, ok bool) {
	word, open := "", false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, false
			}
			word, open = word+line[i+1:i+1+end], true
			i += end + 1
		case c == '\\' && i+1 < len(line) && line[i+1] == '\'':
			word, open = word+"'", true
			i++
		case c == ' ':
			if open {
				out = append(out, word)
			}
			word, open = "", false
		case strings.IndexByte("|&;<>()$`\\\"*?[]#~=%{}!\n\r\t", c) >= 0 && !(c == '=' && strings.HasPrefix(word, "--")):
			return nil, false
		default:
			word, open = word+string(c), true
		}
	}
	if open {
		out = append(out, word)
	}
	return out, true
}

// FuzzChange: a name is one word of the command that somebody is told to run, whatever it is: no option, and no line of
// its own.
func FuzzChange(f *testing.F) {
	f.Add("ml", "train-0", "Deployment", "train-0-abc")
	f.Add("a'b", "$(rm -rf ~)", "Job", "x\nrm -rf ~")
	f.Add("ml", "web", "Deployment", "x\nreboot")
	f.Add("-n", "--all", "pod", "; reboot #")
	f.Add("ml", "--all", "job", "--all")
	f.Add("", "x\ny", "StatefulSet", "#\r\nid")
	f.Fuzz(func(t *testing.T, namespace, name, kind, pod string) {
		for _, s := range []string{namespace, name, kind, pod} {
			if !utf8.ValidString(s) {
				t.Skip("labels are valid text")
			}
		}
		for _, whole := range []bool{true, false} {
			r := &Workload{Namespace: namespace, Name: name, Kind: kind, Pods: 3}
			where, text := releaseChange(r, whole, []string{pod, "other"})
			if where != "shell" {
				continue
			}
			comment, command, two := strings.Cut(text, "\n")
			if strings.HasPrefix(text, "#") {
				if !two || strings.ContainsFunc(comment, unicode.IsControl) {
					t.Fatalf("a comment that does not stay one: %q", text)
				}
			} else {
				command = text
			}
			line, ok := words(command)
			if !ok || len(line) < 4 || line[0] != "kubectl" || line[1] != "-n" || line[2] != namespace {
				t.Fatalf("%q is no command on namespace %q: %q", command, namespace, line)
			}
			object := name
			if !whole && line[3] == "delete" {
				object = pod
			}
			found := false
			for _, w := range line[4:] {
				if w == "--" {
					break // what follows is no option
				}
				if strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--replicas=") {
					t.Errorf("%q sets %q", command, w)
				}
			}
			for _, w := range line[4:] {
				found = found || w == object || strings.HasSuffix(w, "/"+object)
			}
			if !found {
				t.Errorf("%q does not name %q", command, object)
			}
		}
	})
}
