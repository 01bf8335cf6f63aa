package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The compose file's Alertmanager inhibits what the example says, to the letter: there is no include.
func TestComposeInhibits(t *testing.T) {
	rules := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root(t)}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		_, after, ok := strings.Cut(string(text), "inhibit_rules:")
		if !ok {
			t.Fatalf("%s has no inhibit_rules", filepath.Join(path...))
		}
		return after
	}
	if rules("deploy", "compose", "alertmanager.yml") != rules("alerts", "alertmanager-inhibition.example.yaml") {
		t.Error("deploy/compose/alertmanager.yml and alerts/alertmanager-inhibition.example.yaml have different inhibit_rules: copy the " +
			"second's into the first")
	}
}
