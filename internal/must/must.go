// Package must ends a test at an error that leaves nothing to test.
package must

import "testing"

// OK ends the test where there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
