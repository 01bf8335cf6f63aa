package journal

import (
	"strings"
	"testing"
)

func TestMaskForms(t *testing.T) {
	m := NewMask([]byte("salt"))
	whole := m.UUID("GPU-5a0e4100-8c1d-4e6b-9d10-0000000000aa")
	if old := m.UUID("MIG-GPU-5A0E4100-8c1d-4e6b-9d10-0000000000aa/7/0"); old != "MIG-"+whole+"/7/0" {
		t.Errorf("the old name of a MIG device is %s, its GPU %s", old, whole)
	}
	for _, odd := range []string{"a name\nwith \"spaces\"", "0000:53:00.0", strings.Repeat("x", 500)} {
		if got := m.UUID(odd); strings.Contains(got, odd) || !uuidForm.MatchString(got) {
			t.Errorf("%q became %q", odd, got)
		}
	}
	if m.UUID("GPU-5a0e4100-8c1d-4e6b-9d10-0000000000ab") == whole || m.Serial("1650000000140") == m.Serial("1650000000141") ||
		m.Byte("a") == m.Byte("b") {
		t.Error("two are masked as one")
	}
	if m.UUID("") != "" || m.Serial("") != "" {
		t.Error("nothing was masked")
	}
	if one, other := NewMask(nil), NewMask(nil); one.Serial("1650000000140") == other.Serial("1650000000140") {
		t.Error("the salt is not random")
	}
}

// Each letter and digit of a serial number is replaced, the least and the greatest of a kind too, by one of its kind.
func TestMaskOfASerial(t *testing.T) {
	for _, secret := range []string{"0000000000000000", "9999999999999999", "aaaaaaaaaaaaaaaa", "zzzzzzzzzzzzzzzz", "AAAAAAAAAAAAAAAA",
		"ZZZZZZZZZZZZZZZZ"} {
		stays := 0
		for salt := range 4 {
			for i, c := range []byte(NewMask([]byte{byte(salt)}).Serial(secret)) {
				first, last := byte('0'), byte('9')
				if secret[i] >= 'a' {
					first, last = 'a', 'z'
				} else if secret[i] >= 'A' {
					first, last = 'A', 'Z'
				}
				if c < first || c > last {
					t.Errorf("%q of %s is replaced by %q", secret[i], secret, c)
				}
				if c == secret[i] {
					stays++
				}
			}
		}
		if stays > 24 { // of 64: chance leaves a tenth of the digits
			t.Errorf("%d of 64 characters of %s stay", stays, secret)
		}
	}
	if m := NewMask(nil); m.Serial("-/:@[`{ _") != "-/:@[`{ _" {
		t.Error("what is no letter or digit is replaced")
	}
}

// FuzzMask: what names a GPU does not come through, the same is always masked as the same, and what comes out can
// stand in a line of a scenario.
func FuzzMask(f *testing.F) {
	f.Add("GPU-5a0e1100-8c1d-4e6b-9d10-000000000000", "1650000000001", "salt")
	f.Add("MIG-GPU-5a0e1100-8c1d-4e6b-9d10-000000000000/1/0", "", "")
	f.Add("é\n\"5a0e1100-8c1d-4e6b-9d10-000000000000", "Zz9-\xff", "s")
	f.Fuzz(func(t *testing.T, uuid, serial, salt string) {
		m := NewMask([]byte(salt))
		masked := m.UUID(uuid)
		if again := NewMask([]byte(salt)).UUID(uuid); again != masked {
			t.Errorf("%q is masked as %q and as %q", uuid, masked, again)
		}
		for _, secret := range uuidForm.FindAllString(uuid, -1) {
			if strings.Contains(strings.ToLower(masked), strings.ToLower(secret)) {
				t.Errorf("%q comes through: %q", secret, masked)
			}
		}
		if strings.ContainsAny(masked, " \t\r\n\"=[]#") || uuid != "" && masked == "" {
			t.Errorf("%q is masked as %q", uuid, masked)
		}
		if out := m.Serial(serial); len(out) != len(serial) {
			t.Errorf("%q is masked as %q", serial, out)
		}
		for _, of := range []uint32{0, 1, 2, 1 << 30, 1<<30 + 1} {
			if a, b := m.PID(of), m.PID(of); a != b || (a == of) != (of == 0 || of > 1<<30) || a != of && a < firstPID {
				t.Errorf("process %d is %d and %d", of, a, b)
			}
		}
	})
}
