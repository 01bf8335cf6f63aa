package collector

import (
	"errors"
	"fmt"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-exporter/gpu-exporter/internal/catalog"
	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// sizes keeps how much is written at once, and fails at the second time.
type sizes []int

var errFull = errors.New("full")

func (s *sizes) Write(text []byte) (int, error) {
	if *s = append(*s, len(text)); len(*s) == 2 {
		return 0, errFull
	}
	return len(text), nil
}

func TestInvalidRows(t *testing.T) {
	rows := []catalog.Family{{Name: "gpu a"}}
	c, none := NewCompat(nil, nil)
	_, compat := NewCompat(nil, rows)
	if _, err := New(nil, rows); err == nil || compat == nil || c == nil || none != nil {
		t.Errorf("without a valid name: %v, of another exporter %v; without rows %v", err, compat, none)
	}
}

// Pages are written in pieces of the same size, labels that no series has any more are forgotten, and each error is returned.
func TestBoundsOfPages(t *testing.T) {
	from := 0
	c, err := New(func() *gpu.View { return &gpu.View{} }, []catalog.Family{{Name: "gpu_a", Type: catalog.Gauge, Help: "X.",
		Scope: catalog.ScopeNode, Stability: catalog.Stable, Labels: []string{"a"}, Read: func(_ *gpu.View, emit catalog.Emit) {
			for i := range 5000 {
				emit(1, "n", fmt.Sprint("pod ", from+i))
			}
		}}})
	must.OK(t, err)
	for step := range 10 {
		from = 2500 * step
		var written sizes
		empty := &dto.MetricFamily{Name: new("gpu_0"), Help: new("X."), Type: dto.MetricType_GAUGE.Enum()}
		err := c.WriteText(&written, false, []*dto.MetricFamily{empty})
		if !errors.Is(err, errFull) || err.Error() == errFull.Error() {
			t.Errorf("error %v: want that of the family and that of the writer", err)
		}
		for i, n := range written {
			if n > pieceSize+200 || n <= pieceSize && i < len(written)-1 {
				t.Errorf("piece %d of %d has %d bytes", i, len(written), n)
			}
		}
		for _, cache := range c.caches {
			if n := len(cache.byValues); n < 5000 || n > 2*5000+spareLabels {
				t.Errorf("step %d: %d labels are cached of 5000 series", step, n)
			}
		}
		if len(written) < 4 || len(c.caches) != 1 {
			t.Errorf("%d pieces, %d caches", len(written), len(c.caches))
		}
	}
}
