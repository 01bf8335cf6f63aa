package journal

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Mask replaces what identifies one GPU, one board or one process by something of the same form: the same
// original by the same replacement, under one salt. Without the salt no replacement leads back to its original.
type Mask struct {
	salt  []byte
	pids  map[uint32]uint32
	uuids map[string]bool // the replacements that were handed out
}

// firstPID is the number of the first process in a journal.
const firstPID = 1001

// NewMask returns the mask of a salt; nil for a random one that is kept nowhere.
func NewMask(salt []byte) *Mask {
	if salt == nil {
		salt = make([]byte, 32)
		_, _ = rand.Read(salt) // never fails: crypto/rand ends the program instead
	}
	return &Mask{salt: salt, pids: map[uint32]uint32{}, uuids: map[string]bool{}}
}

func (m *Mask) digest(kind, text string) []byte {
	h := hmac.New(sha256.New, m.salt)
	h.Write([]byte(kind + "\n" + text))
	return h.Sum(nil)
}

var uuidForm = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)

// UUID masks every UUID within a text: in GPU-…, MIG-… and MIG-GPU-…/1/0 alike, so that the older names of MIG
// devices still name their GPU. A text without a UUID is replaced as a whole.
func (m *Mask) UUID(text string) string {
	if text == "" {
		return ""
	}
	if !uuidForm.MatchString(text) {
		return "GPU-" + m.replace(text)
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`"=[]#`, r) {
			return '?'
		}
		return r
	}, uuidForm.ReplaceAllStringFunc(text, m.replace))
}

func (m *Mask) replace(of string) string {
	h := hex.EncodeToString(m.digest("uuid", strings.ToLower(of)))
	uuid := h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:32]
	m.uuids[uuid] = true
	return uuid
}

// rest masks the UUIDs of a finished line that are not replacements: those in values that no row of the call table
// declares to identify anything.
func (m *Mask) rest(line []byte) []byte {
	return uuidForm.ReplaceAllFunc(line, func(uuid []byte) []byte {
		if m.uuids[string(uuid)] {
			return uuid
		}
		return []byte(m.replace(string(uuid)))
	})
}

// Serial replaces every digit by a digit and every letter by a letter.
func (m *Mask) Serial(text string) string {
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

// Byte is a number above 0 in place of a text.
func (m *Mask) Byte(of string) uint8 { return max(1, m.digest("byte", of)[0]) }

// PID numbers processes in the order in which they are met. What is no process ID stays as it is.
func (m *Mask) PID(of uint32) uint32 {
	if of == 0 || of > 1<<30 {
		return of
	}
	n, known := m.pids[of]
	if !known {
		n = firstPID + uint32(len(m.pids))
		m.pids[of] = n
	}
	return n
}
