package main

import (
	"io"
	"testing"
)

// A journal without an end is refused at the bound.
func TestJournalsAreBounded(t *testing.T) {
	if err := writeScenario([]string{"/dev/zero"}, io.Discard); err == nil || err.Error() != "the journal is larger than 128 MiB" {
		t.Errorf("%v", err)
	}
}
