package podmap

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A request with administrator access allocates nothing, and takes nothing from another request of the same claim.
func TestAdministratorAccess(t *testing.T) {
	result := func(request, device string, admin bool) string {
		return fmt.Sprintf(`{"request":%q,"driver":"gpu.nvidia.com","pool":"n","device":%q,"adminAccess":%v}`, request, device, admin)
	}
	for _, c := range []struct {
		name, first, second string
		want                []string
	}{
		{"both", result("all", "gpu-0", true), result("more", "gpu-0", true), nil},
		{"first", result("all", "gpu-0", true), result("one", "gpu-0", false), []string{"a/p/c gpu.nvidia.com B 1"}},
		{"last", result("one", "gpu-0", false), result("all", "gpu-0", true), []string{"a/p/c gpu.nvidia.com B 1"}},
		{"neither", result("one", "gpu-0", false), result("two", "gpu-0", false), []string{"a/p/c gpu.nvidia.com B 1"}},
	} {
		path := filepath.Join(t.TempDir(), "gpu.nvidia.com", "checkpoint.json")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, `{"v2":{"preparedClaims":{"u":{"namespace":"a","name":"x","status":{"allocation":{
			"devices":{"results":[%s,%s]}}}}}}}`, c.first, c.second), 0o600); err != nil {
			t.Fatal(err)
		}
		m := newMap(Options{Clock: newClock().time, DRACheckpoint: path}, &fakeKubelet{pods: pods("a/p/c gpu.nvidia.com:x=gpu-0")})
		h := poll(t, m)
		wantLines(t, h, c.want...)
		if h.Uncertain || !h.Sources[1].Up {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
}
