package machine

import (
	"bytes"
	"sync"
)

// Output is what a program writes, readable while it runs.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the output.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
