package deviceid

import (
	"regexp"
	"strings"
	"testing"
)

// isUUID accepts what uuidPattern does.
func TestIsUUID(t *testing.T) {
	pattern := regexp.MustCompile(`^` + uuidPattern + `$`)
	const id = "9aBcDeF0-1234-5678-9abc-def012345679"
	texts := []string{"", id, id + "0", id[1:], id[:35], strings.ToUpper(id), "GPU-" + id, id + "\n"}
	for i := range len(id) {
		for _, c := range "-09afAFgG/:@`G \x00é" {
			texts = append(texts, id[:i]+string(c)+id[i+1:])
		}
	}
	for _, text := range texts {
		if got, want := isUUID(text), pattern.MatchString(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
