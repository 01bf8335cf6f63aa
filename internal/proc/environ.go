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
	return findVariable(f, name)
}

// findVariable reads entries NAME=VALUE that end in a zero byte, which the last one may lack.
func findVariable(r io.Reader, name string) (value string, ok bool, err error) {
	buf := make([]byte, maxEnviron)
	n, err := io.ReadFull(r, buf)
	defer clear(buf[:n])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", false, err
	}
	for entry := range bytes.SplitSeq(buf[:n], []byte{0}) {
		if v, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			if len(v) > maxVariable {
				break
			}
			return string(v), true, nil
		}
	}
	return "", false, nil
}
