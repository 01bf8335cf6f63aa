package podmap

import "testing"

func TestWithout(t *testing.T) {
	for _, c := range []struct{ text, secret, want string }{
		{"not with Bearer abcdefghij, abcdefghij", "abcdefghij", "not with Bearer [token], [token]"},
		{"cut off at abcdefgh", "abcdefghij", "cut off at [token]"},
		{"nothing of it", "abcdefghij", "nothing of it"},
		{"no token", "", "no token"},
	} {
		if got := without(c.text, c.secret); got != c.want {
			t.Errorf("%q without %q is %q, want %q", c.text, c.secret, got, c.want)
		}
	}
}
