package podresources

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// The service of both versions of the API.
const (
	serviceV1    = "/v1.PodResourcesLister/"
	serviceAlpha = "/v1alpha1.PodResourcesLister/"
)

// The status codes of gRPC that a kubelet returns.
const (
	codeUnknown           = 2
	codeDeadlineExceeded  = 4
	codeResourceExhausted = 8
	codeUnimplemented     = 12
	codeUnavailable       = 14
)

var (
	errNotSocket = errors.New("not a socket")
	errTooLarge  = errors.New("the response is too large")
)

// statusError is the status of a call that failed.
type statusError struct {
	code    int
	message string
	cause   error // nil where the server sent the status
}

func (e *statusError) Error() string { return fmt.Sprintf("gRPC status %d: %s", e.code, e.message) }
func (e *statusError) Unwrap() error { return e.cause }

// unavailable is the status of a call whose connection failed.
func unavailable(err error) error { return &statusError{codeUnavailable, err.Error(), err} }

// codeOf returns the status code of an error; 0 if it has none.
func codeOf(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.code
	}
	return 0
}

// decodeError is the error of a response that arrived and cannot be used.
type decodeError struct{ error }

func (e decodeError) Unwrap() error { return e.error }

// Client queries the kubelet over its unix socket. It reuses one connection as long as the socket is the same file and
// responds. Calls must not overlap.
//
// A call of gRPC without streams and compression is a POST over HTTP/2, with five bytes before each message and a
// status after it, so net/http does for it; google.golang.org/grpc would add 2 MB to the program.
type Client struct {
	path  string
	limit int // bytes of one response

	conn  *http.Transport // nil: dial at the next call
	file  socketFile      // that conn was dialed to
	alpha bool            // this kubelet only offers v1alpha1

	connections atomic.Int64
}

// socketFile distinguishes sockets at the same path. Inode numbers are reused, so the time of the last change
// belongs to it.
type socketFile struct {
	device, inode uint64
	changed       syscall.Timespec
}

// New returns a client of the socket at path that accepts responses of up to limit bytes. It does not connect.
func New(path string, limit int) *Client { return &Client{path: path, limit: limit} }

// List queries the allocated devices. A kubelet without v1 is queried in v1alpha1 until the connection changes.
func (c *Client) List(ctx context.Context, to *List) error {
	if err := c.connect(); err != nil {
		return err
	}
	if !c.alpha {
		if err := c.call(ctx, serviceV1+"List", to); codeOf(err) != codeUnimplemented {
			return err
		}
	}
	err := c.call(ctx, serviceAlpha+"List", to)
	c.alpha = err == nil // after a failure, the server may be another that offers v1
	return err
}

// Allocatable queries the allocatable devices. The error of a kubelet without that call is errors.ErrUnsupported: those
// before 1.21 lack it, and those before 1.23 report it as disabled.
func (c *Client) Allocatable(ctx context.Context, to *Devices) error {
	if err := c.connect(); err != nil {
		return err
	}
	if c.alpha {
		return fmt.Errorf("allocatable resources in v1alpha1: %w", errors.ErrUnsupported)
	}
	err := c.call(ctx, serviceV1+"GetAllocatableResources", to)
	code := codeOf(err)
	if code == codeUnimplemented || code == codeUnknown && strings.Contains(err.Error(), "disabled") {
		return fmt.Errorf("allocatable resources: %w: %w", errors.ErrUnsupported, err)
	}
	return err
}

type decoder interface{ Decode([]byte) error }

// call calls a method, and closes a connection that failed.
func (c *Client) call(ctx context.Context, method string, to decoder) error {
	message, err := c.exchange(ctx, method)
	if err != nil {
		if codeOf(err) == codeUnavailable {
			c.Close()
		}
		return err
	}
	if err := to.Decode(message); err != nil {
		return decodeError{err}
	}
	return nil
}

// prefixLength is the length of what precedes a message: a byte that is not 0 if it is compressed, and its length.
const prefixLength = 5

// exchange sends a request, which has no fields, and returns the response.
func (c *Client) exchange(ctx context.Context, method string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://kubelet"+method,
		bytes.NewReader(make([]byte, prefixLength)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("TE", "trailers")
	response, err := c.conn.RoundTrip(request)
	if err != nil {
		return nil, unavailable(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, unavailable(fmt.Errorf("HTTP status %s", response.Status))
	}
	var prefix [prefixLength]byte
	if _, err := io.ReadFull(response.Body, prefix[:]); err != nil {
		// A refused call has a status and no message.
		if refused := status(response); errors.Is(err, io.EOF) && refused != nil {
			return nil, refused
		}
		return nil, unavailable(err)
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	switch {
	case prefix[0] != 0:
		return nil, decodeError{errors.New("it is compressed")}
	case int64(size) > int64(c.limit):
		return nil, errTooLarge
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(response.Body, message); err != nil {
		return nil, unavailable(err)
	}
	// The status follows the message.
	switch n, err := io.Copy(io.Discard, io.LimitReader(response.Body, 1)); {
	case err != nil:
		return nil, unavailable(err)
	case n > 0:
		return nil, decodeError{errors.New("it has more than one message")}
	}
	return message, status(response)
}

// status returns the error of a call whose body has been read. A refused call may have its status in the header.
func status(response *http.Response) error {
	fields := response.Trailer
	if fields.Get("Grpc-Status") == "" {
		fields = response.Header
	}
	code, err := strconv.Atoi(fields.Get("Grpc-Status"))
	if err != nil {
		return &statusError{code: codeUnknown, message: "no gRPC status in the response"}
	}
	if code == 0 {
		return nil
	}
	message, err := url.PathUnescape(fields.Get("Grpc-Message"))
	if err != nil {
		message = fields.Get("Grpc-Message")
	}
	return &statusError{code: code, message: message}
}

// Close closes the connection, if there is one. A later call opens another.
func (c *Client) Close() error {
	if c.conn != nil {
		c.conn.CloseIdleConnections()
	}
	c.conn, c.alpha = nil, false
	return nil
}

// connect prepares the connection to the socket that is there now.
func (c *Client) connect() error {
	info, err := os.Stat(c.path)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		err = &fs.PathError{Op: "connect", Path: c.path, Err: errNotSocket}
	}
	if err != nil {
		c.Close()
		return err
	}
	file := socketFile{}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		file = socketFile{device: stat.Dev, inode: stat.Ino, changed: stat.Ctim}
	}
	if c.conn != nil && file == c.file {
		return nil
	}
	c.Close()
	c.conn, c.file = c.transport(), file
	return nil
}

// Connections counts the connections that were established: as long as it is the same, so is the kubelet's process.
func (c *Client) Connections() int { return int(c.connections.Load()) }

// transport returns a transport to the socket: HTTP/2 without TLS, whatever the host of a request is.
func (c *Client) transport() *http.Transport {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		Protocols: &protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "unix", c.path)
			if err == nil {
				c.connections.Add(1)
			}
			return conn, err
		},
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		IdleConnTimeout:        5 * time.Minute, // of a connection that still had a call when it was closed
	}
}

// Explain describes an error of a call: what failed, and what to do. Timeout is the timeout of the call.
func (c *Client) Explain(err error, timeout time.Duration) string {
	explained := err.Error()
	if refused, ok := errors.AsType[*statusError](err); ok {
		explained = refused.message
	}
	_, malformed := errors.AsType[decodeError](err)
	switch code := codeOf(err); {
	case errors.Is(err, fs.ErrNotExist):
		return c.path + " does not exist: mount the directory of the kubelet's PodResources socket (not the socket), " +
			"or set its path"
	case errors.Is(err, errNotSocket):
		return c.path + " is not a socket: mount the kubelet's pod-resources directory, not the socket in it"
	case errors.Is(err, fs.ErrPermission):
		explained = "permission denied: run as user 0 (no capability is needed)"
	case errors.Is(err, syscall.ECONNREFUSED):
		explained = "connection refused: the kubelet is down or restarting"
	case errors.Is(err, context.DeadlineExceeded), code == codeDeadlineExceeded:
		explained = fmt.Sprintf("no response within %s: the kubelet hangs or is overloaded", timeout)
	case errors.Is(err, errTooLarge):
		explained = fmt.Sprintf("the response is larger than %d MiB: raise the response limit", c.limit>>20)
	case malformed:
		explained = "cannot decode the response: " + explained
	case code == codeResourceExhausted:
		explained = "rate limited by the kubelet: another client of the socket queries it too often"
	case code == codeUnimplemented:
		explained = "the server offers no PodResources service"
	case code == codeUnavailable:
		explained = "the connection failed: " + explained
	}
	return c.path + ": " + explained
}
