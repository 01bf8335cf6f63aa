package process

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// holds is the memory in MiB that the test's own program allocates when it runs as a child.
const holds = "TEST_PROCESS_HOLDS"

// pages touches so many MiB.
func pages(mib int) []byte { return bytes.Repeat([]byte{1}, mib<<20) }

func TestMain(m *testing.M) {
	if mib, err := strconv.Atoi(os.Getenv(holds)); err == nil {
		memory := pages(mib)
		time.Sleep(500 * time.Millisecond) // it is read every 5 ms, by a machine that may be busy
		os.Exit(int(memory[len(memory)-1]) - 1)
	}
	os.Exit(m.Run())
}

// The memory of a child does not include its parent's.
func TestRun(t *testing.T) {
	of := func(mib int) float64 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), holds+"="+strconv.Itoa(mib))
		peak, err := Run(cmd)
		must.OK(t, err)
		return peak
	}
	large := of(150)
	mine := pages(300)
	small := of(1)
	if large < 150 || small < 1 || small > 150 {
		t.Errorf("a child with 150 MiB has %.0f, one with 1 and a parent with %d has %.0f", large, len(mine)>>20, small)
	}
	if _, err := Run(exec.Command("/nowhere")); err == nil {
		t.Error("a missing program ran")
	}
	if _, err := Run(exec.Command("false")); err == nil {
		t.Error("a program that failed did not")
	}
}

// A running process can be read.
func TestOf(t *testing.T) {
	before, err := Of(os.Getpid())
	if err != nil || before.Resident <= 0 || before.Peak < before.Resident/2 {
		t.Fatalf("%+v, %v", before, err)
	}
	precise := func() time.Duration {
		d, err := Precise(os.Getpid())
		must.OK(t, err)
		return d
	}
	for begin := precise(); precise() < begin+40*time.Millisecond; { // four ticks of the clock that counts
	}
	after, err := Of(os.Getpid())
	if err != nil || after.CPU <= before.CPU || PerMinute(before, after) <= 0 || PerMinute(after, before) != 0 {
		t.Errorf("from %+v to %+v, %v", before, after, err)
	}
	if _, err := Precise(1 << 30); err == nil {
		t.Error("a missing process has used time")
	}
	if _, err := Of(1 << 30); err == nil {
		t.Error("a missing process is read")
	}
	if total, left, err := Memory(); err != nil || total <= 0 || left <= 0 {
		t.Error(total, left, err)
	}
}
