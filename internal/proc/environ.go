package proc

import (
	"bytes"
	"errors"
	"io"
	"os"
)

const (
	// maxEnviron bounds what is read of an environment. The kernel allows more, in which variables are not found.
	maxEnviron = 1 << 20
	// maxVariable bounds the value of a variable; a longer one is ignored.
	maxVariable = 4096
)

// variable returns the first value of one variable in the environment with which a process was started
// (/proc/<pid>/environ). An environment contains secrets: nothing else of it is kept, and the buffer is cleared. ok is
// false where there is no such variable.
func variable(path, name string) (value string, ok bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	return findVariable(io.LimitReader(f, maxEnviron), name)
}

// findVariable reads entries NAME=VALUE that end in a zero byte.
func findVariable(r io.Reader, name string) (value string, ok bool, err error) {
	var chunk [4096]byte
	defer clear(chunk[:])
	want := append([]byte(name), '=')
	// at counts the bytes of want that the entry starts with; -1 is an entry of another name.
	at := 0
	var found []byte
	for {
		n, err := r.Read(chunk[:])
		for rest := chunk[:n]; len(rest) > 0; {
			end := bytes.IndexByte(rest, 0)
			part := rest
			if end >= 0 {
				part = rest[:end]
			}
			for len(part) > 0 && at >= 0 && at < len(want) {
				if part[0] != want[at] {
					at = -1
					break
				}
				at++
				part = part[1:]
			}
			if at == len(want) {
				if len(found)+len(part) > maxVariable {
					return "", false, nil
				}
				found = append(found, part...)
			}
			if end < 0 {
				break
			}
			if at == len(want) {
				return string(found), true, nil
			}
			at, rest = 0, rest[end+1:]
		}
		switch {
		case errors.Is(err, io.EOF):
			// The last entry may lack its zero byte.
			return string(found), at == len(want), nil
		case err != nil:
			return "", false, err
		}
	}
}
