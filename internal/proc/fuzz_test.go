package proc

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzParseStat: a command may contain anything, and does not shift the field that distinguishes processes of one PID.
func FuzzParseStat(f *testing.F) {
	f.Add("python", "1 (x) S 1", uint64(777))
	f.Add("a) S 1 1 (b", "", uint64(0))
	f.Add("", "(((", uint64(1<<63))
	f.Fuzz(func(t *testing.T, command, garbage string, start uint64) {
		line := fmt.Sprintf("4711 (%s) S 1 4711 4711 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 %d 0 0 18446744073709551615\n", command, start)
		if gotStart, gotCommand, ok := parseStat(line); !ok || gotStart != fmt.Sprint(start) || gotCommand != command {
			t.Errorf("%q is read as %q, %q, %v", line, gotStart, gotCommand, ok)
		}
		if gotStart, gotCommand, ok := parseStat(garbage); ok &&
			(gotStart == "" || !strings.Contains(garbage, gotCommand) || !strings.Contains(garbage, gotStart)) {
			t.Errorf("%q is read as %q, %q", garbage, gotStart, gotCommand)
		}
	})
}

// FuzzLogNames: what is read from the name of a log is the whole of it, so that no two pods share one.
func FuzzLogNames(f *testing.F) {
	const id = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for _, name := range []string{"ml_train-0_5a0e1100-8c1d-4e6b-9d10-000000000000", "ml_train-0_", "__" + id,
		"train-0_ml_main-" + id + ".log", "p_n_c--" + id + ".log", "p_n_-" + id + ".log", "p_n_c-" + id} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if uid, p, ok := parsePodDirectory(name); ok {
			if p.namespace+"_"+p.pod+"_"+uid != name || p.namespace == "" || p.pod == "" || strings.Contains(p.namespace+p.pod+uid, "_") {
				t.Errorf("%q is read as %+v, %q", name, p, uid)
			}
		}
		if l, ok := parseContainerLink(name); ok {
			if l.Pod+"_"+l.Namespace+"_"+l.Name+"-"+l.id+".log" != name || l.Pod == "" || l.Namespace == "" || l.Name == "" ||
				len(l.id) < minID {
				t.Errorf("%q is read as %+v", name, l)
			}
		}
	})
}
