package change

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gpu-exporter/gpu-exporter/report/document"
)

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

// FuzzChange: a name is one word of the recommended command, whatever it is: no option, and no line of
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
			r := &document.Workload{Namespace: namespace, Name: name, Kind: kind, Pods: 3}
			where, text := Release(r, whole, []string{pod, "other"})
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
