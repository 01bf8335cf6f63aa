// Package await waits in tests for what gives no signal: the state of another process, or of a thread that is not Go's.
package await

import "time"

// Until returns when done reports true. It has no deadline of its own: on a busy machine none is long enough, and what never
// comes ends with the limit of `go test`, which prints where it is waited for.
func Until(done func() bool) {
	for !done() {
		time.Sleep(time.Millisecond)
	}
}
