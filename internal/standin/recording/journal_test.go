package recording

import (
	"strings"
	"testing"
)

// A journal is what a stranger sends: an index that no driver has is ignored, wherever it is.
func TestIndicesOfNoGPU(t *testing.T) {
	const head = `{"gpu_exporter_journal":1,"note":"x","symbols":[],"pci_bus":[]}` + "\n"
	for _, index := range []string{"-5", "64", "9000000000"} {
		call := `{"t":0,"call":"nvmlDeviceGetHandleByIndex","args":[` + index + `],"code":"SUCCESS","ms":1}` + "\n"
		of := `{"t":0,"call":"nvmlDeviceGetName","gpu":` + index + `,"code":"SUCCESS","value":"x","ms":1}` + "\n"
		if _, err := Scenario([]byte(head + call + of)); err == nil || !strings.Contains(err.Error(), "no GPU") {
			t.Errorf("%s: %v", index, err)
		}
	}
}
