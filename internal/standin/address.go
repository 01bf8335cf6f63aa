package standin

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddress returns an address of the loopback, host:port, that is not in use and that nothing else will take before
// the caller listens there: on 127.0.0.1 a connection's own end, or a test beside this one, may be given the same port.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
