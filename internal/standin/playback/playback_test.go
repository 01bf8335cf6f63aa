package playback

import (
	"strings"
	"testing"
)

func TestParseErrors(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "not JSON": "scenario 1\n", "another version": `{"gpu_exporter_journal":9}`,
		"a broken line": "{\"gpu_exporter_journal\":1}\n{\"t\":\n"} {
		if _, _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "read the journal") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
