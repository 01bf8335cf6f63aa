package nvml

import (
	"strings"
	"testing"
)

// FuzzMask: what names a GPU does not come through, the same is always masked as the same, and what comes out can
// stand in a line of a scenario.
func FuzzMask(f *testing.F) {
	f.Add("GPU-5a0e1100-8c1d-4e6b-9d10-000000000000", "1650000000001", "salt")
	f.Add("MIG-GPU-5a0e1100-8c1d-4e6b-9d10-000000000000/1/0", "", "")
	f.Add("é\n\"5a0e1100-8c1d-4e6b-9d10-000000000000", "Zz9-\xff", "s")
	f.Fuzz(func(t *testing.T, uuid, serial, salt string) {
		m := newMask([]byte(salt))
		masked := m.uuid(uuid)
		if again := newMask([]byte(salt)).uuid(uuid); again != masked {
			t.Errorf("%q is masked as %q and as %q", uuid, masked, again)
		}
		for _, secret := range uuidShape.FindAllString(uuid, -1) {
			if strings.Contains(strings.ToLower(masked), strings.ToLower(secret)) {
				t.Errorf("%q comes through: %q", secret, masked)
			}
		}
		if strings.ContainsAny(masked, " \t\r\n\"=[]#") || uuid != "" && masked == "" {
			t.Errorf("%q is masked as %q", uuid, masked)
		}
		if out := m.serial(serial); len(out) != len(serial) {
			t.Errorf("%q is masked as %q", serial, out)
		}
		for of := range uint32(3) {
			if a, b := m.pid(of), m.pid(of); a != b || a < firstPID {
				t.Errorf("process %d is %d and %d", of, a, b)
			}
		}
	})
}
