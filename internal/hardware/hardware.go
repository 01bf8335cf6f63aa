// Package hardware is the table of what was checked on real GPUs: the numbered claims of the hardware check, and those
// that reports in docs/evidence/hardware confirmed or contradicted.
package hardware

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed claims.txt
var claimsText string

//go:embed reports.txt
var reportsText string

// names are the claims: the number of each is that of its line. Lines are only added.
var names = strings.Split(strings.TrimSpace(claimsText), "\n")

// Number returns the number of a claim, 0 if it has none.
func Number(claim string) int { return slices.Index(names, claim) + 1 }

// Names returns all claims; the first has number 1.
func Names() []string { return slices.Clone(names) }

// Verdict of a report on a claim.
type Verdict struct {
	Model, Driver string
	Claim         int
	Outcome       string // Confirmed or Contradicted
}

// The outcomes of a claim in a report.
const (
	Confirmed    = "confirmed"
	Contradicted = "contradicted"
)

// Verdicts are those of all reports.
func Verdicts() (out []Verdict) {
	for line := range strings.Lines(reportsText) {
		if f := strings.Split(strings.TrimSpace(line), "|"); len(f) == 4 {
			v := Verdict{Model: f[0], Driver: f[1], Outcome: f[3]}
			_, _ = fmt.Sscan(f[2], &v.Claim)
			out = append(out, v)
		}
	}
	return out
}
