package scenario

import "time"

// The limits of a scenario. The stand-in driver's tables are as large; a malicious scenario gets an
// error that names its line.
const (
	MaxGPUs = 16

	maxFileBytes      = 1 << 20
	maxFiles          = 32
	maxIncludeDepth   = 8
	maxLines          = 100_000
	maxAnswers        = 50_000
	maxAnswersPerLine = 256
	maxDemandsPerGPU  = 256
	maxProfilesPerGPU = 32
	maxMIGDevices     = 8
	maxLayoutsPerGPU  = 64
	maxGI             = 16
	maxComponents     = 12
	maxTerms          = 16
	maxRingEntries    = 1024
	maxNameBytes      = 79
	maxDuration       = 10 * 365 * 24 * time.Hour
	minPeriod         = time.Millisecond
)
