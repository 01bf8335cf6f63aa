package proc

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// readStat parses /proc/<pid>/stat: the start in clock ticks since boot, and the command. A process whose file cannot be read, such as
// for want of file descriptors, has not ended: its PID may be another's by now.
func readStat(dir string) (start, command string, err error) {
	stat, err := readBounded(filepath.Join(dir, "stat"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) && !errors.Is(err, io.EOF) {
		return "", "", err
	}
	if start, command, ok := parseStat(stat); ok {
		return start, command, nil
	}
	return "", "", errEnded
}

// parseStat returns field 22, the process's start, and its command, which is in parentheses and may contain anything,
// parentheses and spaces too.
func parseStat(stat string) (start, command string, ok bool) {
	begin, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if begin < 0 || end < begin {
		return "", "", false
	}
	field := 2 // the last that was seen: the command
	for value := range strings.FieldsSeq(stat[end+1:]) {
		if field++; field == 22 {
			return value, stat[begin+1 : end], true
		}
	}
	return "", "", false
}

// usualSize is more than nearly every file has that readBounded reads.
const usualSize = 2 << 10

// readBounded reads a small file of /proc, up to maxCgroup. More than a thousand are read per minute: os.Open would
// make six system calls more for each, and a large buffer grow the stack.
func readBounded(path string) (string, error) {
	fd, err := uninterrupted(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	var buf [usualSize]byte
	n, err := uninterrupted(func() (int, error) { return unix.Read(fd, buf[:]) })
	if n == len(buf) {
		f := os.NewFile(uintptr(fd), path)
		defer f.Close()
		text, err := io.ReadAll(io.NewSectionReader(f, 0, maxCgroup))
		return string(text), err
	}
	_ = unix.Close(fd)
	if n > 0 {
		return string(buf[:n]), nil
	}
	return "", cmp.Or(err, io.EOF)
}

func uninterrupted(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
