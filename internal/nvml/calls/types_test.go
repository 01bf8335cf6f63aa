package calls

import (
	"strings"
	"testing"
)

// Each field has a type with its source, each reading a description, and the ranges are in order.
func TestFieldTypes(t *testing.T) {
	for _, f := range Fields {
		if of, ok := TypeOf(f.ID); !ok || of.Source == "" {
			t.Errorf("field %d (%s) has no type, or its type no source", f.ID, f.Name)
		}
	}
	for _, r := range All() {
		if r.Doc == "" || !strings.HasSuffix(r.Doc, ".") {
			t.Errorf("%s: %q does not describe it", r.Name, r.Doc)
		}
	}
	for i, of := range FieldTypes {
		if of.Last < of.First || i > 0 && of.First <= FieldTypes[i-1].Last {
			t.Errorf("range %d to %d is out of order", of.First, of.Last)
		}
	}
}
