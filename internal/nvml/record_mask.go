package nvml

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// mask replaces what names one GPU, one board or one process by something of the same shape. The same
// original is always replaced by the same, under one salt; without the salt, which nobody keeps, no replacement
// can be led back to its original.
type mask struct {
	salt []byte
	pids map[uint32]int
}

// firstPID is the number of the first process in a recording.
const firstPID = 1001

func newMask(salt []byte) *mask {
	if salt == nil {
		salt = make([]byte, 32)
		_, _ = rand.Read(salt) // it never fails: the program would have ended
	}
	return &mask{salt: salt, pids: map[uint32]int{}}
}

// digest is as many bytes as asked, at most 32, that only the salt's holder can make of a text.
func (m *mask) digest(kind, text string) []byte {
	h := hmac.New(sha256.New, m.salt)
	h.Write([]byte(kind + "\n" + text))
	return h.Sum(nil)
}

var uuidShape = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)

// uuid masks every UUID within a text: in GPU-…, MIG-… and MIG-GPU-…/1/0 alike, so that the older names of
// MIG devices go on naming their GPU. A text without a UUID is replaced as a whole.
func (m *mask) uuid(text string) string {
	if text == "" {
		return ""
	}
	if !uuidShape.MatchString(text) {
		return "GPU-" + m.shaped(text)
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`"=[]#`, r) {
			return '?'
		}
		return r
	}, uuidShape.ReplaceAllStringFunc(text, m.shaped))
}

func (m *mask) shaped(of string) string {
	h := hex.EncodeToString(m.digest("uuid", strings.ToLower(of)))
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32]
}

// serial replaces every digit by a digit and every letter by a letter.
func (m *mask) serial(text string) string {
	sum := m.digest("serial", text)
	out := []byte(text)
	for i, c := range out {
		d := sum[i%len(sum)]
		switch {
		case c >= '0' && c <= '9':
			out[i] = '0' + d%10
		case c >= 'a' && c <= 'z':
			out[i] = 'a' + d%26
		case c >= 'A' && c <= 'Z':
			out[i] = 'A' + d%26
		}
	}
	return string(out)
}

// pid numbers processes anew, in the order in which they are met.
func (m *mask) pid(of uint32) int {
	n, known := m.pids[of]
	if !known {
		n = firstPID + len(m.pids)
		m.pids[of] = n
	}
	return n
}
