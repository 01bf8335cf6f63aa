package scenario

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

func TestControlStepped(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "control")
	c, err := NewControl(path, start)
	must.OK(t, err)
	if c.Now() != 0 || !c.Time().Equal(start) {
		t.Errorf("a new clock shows %v, %v", c.Now(), c.Time())
	}
	c.Advance(3 * time.Second)
	c.Advance(time.Second)
	if c.Now() != 4*time.Second || !c.Time().Equal(start.Add(4*time.Second)) {
		t.Errorf("the clock shows %v, %v", c.Now(), c.Time())
	}
	c.Set(time.Hour)
	if c.Now() != time.Hour {
		t.Errorf("the clock shows %v", c.Now())
	}
	if c.Calls("nvmlInit_v2") != 0 || len(c.AllCalls()) != 0 || c.Sessions() != 0 || c.Hanging() != 0 || c.Overlaps() != 0 {
		t.Error("a new control has counted something")
	}
	if _, err := NewControl(path, start); err == nil {
		t.Error("a control file was made where there is one")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestControlReal(t *testing.T) {
	c, err := NewRealControl(filepath.Join(t.TempDir(), "control"))
	must.OK(t, err)
	defer c.Close()
	first := c.Now()
	for c.Now() == first { // it moves by itself
	}
	if first < 0 || c.Now() > time.Minute {
		t.Errorf("the clock went from %v to %v", first, c.Now())
	}
}
