package main

import (
	"io"
	"testing"
)

// Variables of this prefix that are none of a flag, as images set them, change nothing.
func TestVariablesThatAreNotFlags(t *testing.T) {
	for name, value := range map[string]string{"VERSION": "0.1.0", "HELP": "true", "HELP_LONG": "true", "NO_SUCH_FLAG": "1"} {
		t.Setenv("GPU_REPORT_"+name, value)
	}
	t.Setenv("GPU_REPORT_PROMETHEUS_URL", "http://prometheus:9090")
	if _, err := parse(nil, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
}
