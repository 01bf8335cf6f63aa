package nvml

import (
	"fmt"
	"strings"
	"testing"
)

// TestFieldsHaveTheirNumbers: the number of a field in the call table is that of go-nvml's constant.
func TestFieldsHaveTheirNumbers(t *testing.T) {
	checked := 0
	checkFields(t, fastValues, &checked)
	checkFields(t, mediumValues, &checked)
	if checked < 30 {
		t.Errorf("only %d fields", checked)
	}
}

func checkFields[T any](t *testing.T, rows []row[T], checked *int) {
	t.Helper()
	for _, r := range rows {
		if r.field == 0 {
			continue
		}
		*checked++
		if want := fmt.Sprintf("Field %d: ", r.field); !strings.HasPrefix(r.doc, want) {
			t.Errorf("%s is field %d of go-nvml; the table has %q", r.reading, r.field, r.doc)
		}
	}
}
