package main

import (
	"io"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// The environment has more variables of this prefix than those of the flags: what images and manifests set, and what the
// kubelet sets in every pod of a namespace with a Service gpu-exporter.
func TestVariablesThatAreNotFlags(t *testing.T) {
	for name, value := range map[string]string{
		"VERSION": "0.1.0", "HELP": "true", "HELP_LONG": "true", "HELP_MAN": "true", "COMPLETION_BASH": "true",
		"COMPLETION_SCRIPT_BASH": "true", "COMPLETION_SCRIPT_ZSH": "true",
		"IMAGE": "registry.example.com/gpu-exporter:0.1.0", "NO_SUCH_FLAG": "1", "RESTARTED": "2026-05-01T12:00:00Z",
		"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "10835", "SERVICE_PORT_METRICS": "10835", "PORT": "tcp://10.0.0.1:10835",
		"PORT_10835_TCP": "tcp://10.0.0.1:10835", "PORT_10835_TCP_PROTO": "tcp", "PORT_10835_TCP_PORT": "10835",
		"PORT_10835_TCP_ADDR": "10.0.0.1",
	} {
		t.Setenv("GPU_EXPORTER_"+name, value)
	}
	t.Setenv("GPU_EXPORTER_POLL_MEDIUM", "20s")
	c, err := parse(nil, io.Discard, io.Discard)
	must.OK(t, err)
	if c.Medium != 20*time.Second || c.Slow != time.Minute {
		t.Errorf("poll intervals %v and %v", c.Medium, c.Slow)
	}
}
