package proc

import (
	"os"
	"path/filepath"
	"strings"
)

// startTime returns a process's start in clock ticks since boot.
func startTime(dir string) (string, bool) {
	start, _, ok := readStat(dir)
	return start, ok
}

// readStat parses /proc/<pid>/stat.
func readStat(dir string) (start, command string, ok bool) {
	stat, err := readBounded(filepath.Join(dir, "stat"))
	if err != nil {
		return "", "", false
	}
	return parseStat(stat)
}

// parseStat returns field 22, the process's start, and its command, which is in parentheses and may contain anything,
// parentheses and spaces too.
func parseStat(stat string) (start, command string, ok bool) {
	begin, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if begin < 0 || end < begin {
		return "", "", false
	}
	fields := strings.Fields(stat[end+1:])
	const startField = 22 - 3 // the fields after the command start with the third
	if len(fields) <= startField {
		return "", "", false
	}
	return fields[startField], stat[begin+1 : end], true
}

// readBounded reads a small file of /proc.
func readBounded(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, maxCgroup)
	n, err := f.Read(buf)
	if n > 0 {
		return string(buf[:n]), nil
	}
	return "", err
}
