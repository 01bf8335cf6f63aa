package source

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// claims renders what was read: one line per claim and device.
func claims(p *PreparedClaims) []string {
	var out []string
	for claim, devices := range *p {
		if len(devices) == 0 {
			out = append(out, claim[0]+"/"+claim[1])
		}
		for key, d := range devices {
			line := fmt.Sprintf("%s/%s %s %s: %q", claim[0], claim[1], key.driver, key.device, d.UUID)
			if d.Admin {
				line += " admin"
			}
			for _, r := range d.Results {
				line += " " + r.Request
				for _, name := range slices.Sorted(maps.Keys(r.Consumed)) {
					line += " " + name + "=" + r.Consumed[name]
				}
			}
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// What a DRA driver prepared, joined with what the scheduler allocated. The keys are those of the fixtures that upstream's
// code writes (testdata/sharing/dra.txt, hami-dra.txt, vgpu-manager.txt).
func TestPreparedClaims(t *testing.T) {
	result := func(request, driver, device, more string) string {
		return fmt.Sprintf(`{"request":%q,"driver":%q,"pool":"n","device":%q%s}`, request, driver, device, more)
	}
	claim := func(results, prepared string) string {
		return `{"v2":{"preparedClaims":{"uid":{"namespace":"a","name":"x","status":{"allocation":{"devices":{"results":[` + results +
			`]}}},"preparedDevices":[` + prepared + `]}}}}`
	}
	group := func(devices ...string) string { return `{"devices":[` + strings.Join(devices, ",") + `]}` }
	gpu0 := `{"gpu":{"info":{"uuid":"GPU-1"},"device":{"deviceName":"gpu-0"}}}`
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"a GPU", claim(result("r", "d", "gpu-0", ""), group(gpu0)), []string{`a/x d gpu-0: "GPU-1" r`}},
		{"a device's name with an underscore", claim(result("r", "d", "gpu-0", ""),
			group(`{"gpu":{"info":{"uuid":"GPU-1"},"device":{"device_name":"gpu-0"}}}`)), []string{`a/x d gpu-0: "GPU-1" r`}},
		{"a MIG device, whose GPU has a UUID too", claim(result("r", "d", "gpu-0-mig-1", ""),
			group(`{"mig":{"info":{"uuid":"GPU-1"},"concrete":{"migUUID":"MIG-1"},"device":{"deviceName":"gpu-0-mig-1"}}}`)),
			[]string{`a/x d gpu-0-mig-1: "MIG-1" r`}},
		{"allocated, and not prepared", claim(result("r", "d", "gpu-0", ""), ""), []string{`a/x d gpu-0: "" r`}},
		{"prepared, without a result", claim("", group(gpu0)), []string{`a/x d gpu-0: "GPU-1"`}},
		{"no status", `{"v2":{"preparedClaims":{"uid":{"namespace":"a","name":"x"}}}}`, []string{`a/x`}},
		{"two groups, two kinds in one device", claim("", group(gpu0)+","+group(
			`{"gpu":{"info":{"uuid":"GPU-2"},"device":{"deviceName":"gpu-1"}},`+
				`"vgpu":{"info":{"uuid":"GPU-3"},"device":{"deviceName":"gpu-2"}}}`)),
			[]string{`a/x d gpu-0: "GPU-1"`, `a/x d gpu-1: "GPU-2"`, `a/x d gpu-2: "GPU-3"`}},
		{"other data beside a device", claim("", group(`{"type":"gpu","n":7,"gpu":{"info":{"uuid":"GPU-1"}},"later":{"device":[]}}`, gpu0)),
			[]string{`a/x d gpu-0: "GPU-1"`}},
		{"of another driver, which alone has the name", claim(result("r", "other", "gpu-0", ""), group(gpu0)),
			[]string{`a/x other gpu-0: "GPU-1" r`}},
		{"of two other drivers: neither's", claim(result("r", "e", "gpu-0", "")+","+result("r", "f", "gpu-0", ""), group(gpu0)),
			[]string{`a/x d gpu-0: "GPU-1"`, `a/x e gpu-0: "" r`, `a/x f gpu-0: "" r`}},
		{"of this driver and another", claim(result("r", "e", "gpu-0", "")+","+result("s", "d", "gpu-0", ""), group(gpu0)),
			[]string{`a/x d gpu-0: "GPU-1" s`, `a/x e gpu-0: "" r`}},
		{"requests of one device, and what each consumes", claim(result("r", "d", "gpu-0",
			`,"consumedCapacity":{"memory":"1Gi","d.example.com/cores":"30"}`)+","+result("s", "d", "gpu-0", `,"consumedCapacity":{}`),
			group(gpu0)),
			[]string{`a/x d gpu-0: "GPU-1" r cores=30 memory=1Gi s`}},
		{"administrator access", claim(result("r", "d", "gpu-0", `,"adminAccess":true`)+","+result("r", "d", "gpu-1",
			`,"adminAccess":false`)+
			","+result("r", "d", "gpu-2", `,"adminAccess":null`), ""),
			[]string{`a/x d gpu-0: "" admin r`, `a/x d gpu-1: "" r`, `a/x d gpu-2: "" r`}},
		{"administrator access beside an allocation", claim(result("r", "d", "gpu-0", "")+","+
			result("s", "d", "gpu-0", `,"adminAccess":true`)+","+result("s", "d", "gpu-1", `,"adminAccess":true`)+","+
			result("r", "d", "gpu-1", ""), ""), []string{`a/x d gpu-0: "" r s`, `a/x d gpu-1: "" s r`}},
		{"administrator access by two requests", claim(result("r", "d", "gpu-0", `,"adminAccess":true`)+","+
			result("s", "d", "gpu-0", `,"adminAccess":true`), ""), []string{`a/x d gpu-0: "" admin r s`}},
		{"claims without a name or a namespace",
			`{"v2":{"preparedClaims":{"u":{"namespace":"a"},"v":{"name":"x"},"w":{"namespace":"b","name":"y"}}}}`,
			[]string{`b/y`}},
		{"no claims", `{"checksum":1,"v1":{"preparedClaims":{}},"v2":{}}`, nil},
	} {
		got, err := ReadPreparedClaims(strings.NewReader(c.text), "d")
		if err != nil || !slices.Equal(claims(got), c.want) {
			t.Errorf("%s: %q, %v\nwant %q", c.name, claims(got), err, c.want)
		}
	}
	full := PreparedClaims{{"a", "x"}: {draKey{"d", "gpu-0"}: {UUID: "GPU-1"}}}
	if full.Device([2]string{"a", "x"}, "d", "gpu-0") == nil || full.Device([2]string{"a", "x"}, "e", "gpu-0") != nil ||
		full.Device([2]string{"a", "x"}, "d", "gpu-1") != nil || full.Device([2]string{"a", "y"}, "d", "gpu-0") != nil {
		t.Error("a device of another claim, driver or name")
	}
}

// Files that are no checkpoint are refused as a whole.
func TestPreparedClaimsThatCannotBeRead(t *testing.T) {
	const head = `{"v2":{},"x":"`
	sized := func(n int) string { return head + strings.Repeat(" ", n-len(head)-2) + `"}` }
	for _, c := range []struct {
		name string
		r    io.Reader
		want string // empty: it is read
	}{
		{"empty", strings.NewReader(""), "unexpected end of JSON input"},
		{"cut off", strings.NewReader(`{"v2":{"preparedClaims":`), "unexpected end of JSON input"},
		{"older", strings.NewReader(`{"checksum":1,"v1":{}}`),
			"no claims of version 2: NVIDIA's driver is older than v25.12, or it is no DRA driver's checkpoint"},
		{"another file", strings.NewReader(`{}`),
			"no claims of version 2: NVIDIA's driver is older than v25.12, or it is no DRA driver's checkpoint"},
		{"a disk that fails", iotest.ErrReader(errors.New("input/output error")), "input/output error"},
		{"as large as it may be", strings.NewReader(sized(maxDRACheckpoint)), ""},
		{"larger", strings.NewReader(sized(maxDRACheckpoint + 1)), "larger than 16 MiB"},
	} {
		got, err := ReadPreparedClaims(c.r, "d")
		if c.want == "" && (err != nil || got == nil) || c.want != "" && (err == nil || err.Error() != c.want || got != nil) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// The driver's name is that of the directory.
func TestDRACheckpointFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpu.nvidia.com", "checkpoint.json")
	must.OK(t, os.Mkdir(filepath.Dir(path), 0o700))
	f := NewDRA(path, Options{Clock: time.Now, Logger: slog.New(slog.DiscardHandler), MaxAge: time.Minute})
	if s := f.Source(); s.Name != gpu.SourceDRA || s.Up || s.Message != "DRA driver checkpoint not read yet" {
		t.Errorf("%+v", s)
	}
	must.OK(t, os.WriteFile(path, []byte(`{"v2":{"preparedClaims":{"u":{"namespace":"a","name":"x","preparedDevices":[{"devices":[
		{"gpu":{"info":{"uuid":"GPU-1"},"device":{"deviceName":"gpu-0"}}}]}]}}}}`), 0o600))
	f.Poll(t.Context())
	if got := claims(f.Value()); !slices.Equal(got, []string{`a/x gpu.nvidia.com gpu-0: "GPU-1"`}) || !f.Source().Up {
		t.Errorf("%q, %+v", got, f.Source())
	}
}
