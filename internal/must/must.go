// Package must ends a test at an error that leaves nothing to test.
package must

import (
	"os"
	"testing"
)

// OK ends the test where there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Read returns the text of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	OK(t, err)
	return string(text)
}

// ShortDir returns a directory for sockets, until the test ends: the address of one has at most 107 bytes, which the
// directory of a test with a long name exceeds.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "socket-")
	OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
