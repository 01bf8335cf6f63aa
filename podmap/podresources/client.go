package podresources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesalpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

var errNotSocket = errors.New("not a socket")

// Client queries the kubelet over its unix socket. It reuses one connection as long as the socket is the same file and
// responds. Calls must not overlap.
type Client struct {
	path  string
	limit int // bytes of one response

	conn  *grpc.ClientConn // nil: dial at the next call
	file  socketFile       // that conn was dialed to
	alpha bool             // this kubelet only offers v1alpha1

	mu          sync.Mutex // guards what follows
	dialErr     error      // of the last attempt; grpc keeps only its text
	connections int
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
	conn, err := c.connect()
	if err != nil {
		return err
	}
	if !c.alpha {
		err := invoke(ctx, conn, podresources.PodResourcesLister_List_FullMethodName, to)
		if status.Code(err) != codes.Unimplemented {
			return c.check(err)
		}
	}
	err = invoke(ctx, conn, podresourcesalpha.PodResourcesLister_List_FullMethodName, to)
	c.alpha = err == nil // after a failure, the server may be another that offers v1
	return c.check(err)
}

// Allocatable queries the allocatable devices. The error of a kubelet without that call is errors.ErrUnsupported: those
// before 1.21 lack it, and those before 1.23 report it as disabled.
func (c *Client) Allocatable(ctx context.Context, to *Devices) error {
	conn, err := c.connect()
	if err != nil {
		return err
	}
	if c.alpha {
		return fmt.Errorf("allocatable resources in v1alpha1: %w", errors.ErrUnsupported)
	}
	err = invoke(ctx, conn, podresources.PodResourcesLister_GetAllocatableResources_FullMethodName, to)
	code := status.Code(err)
	if code == codes.Unimplemented || code == codes.Unknown && strings.Contains(err.Error(), "disabled") {
		return fmt.Errorf("allocatable resources: %w: %w", errors.ErrUnsupported, err)
	}
	return c.check(err)
}

// invoke sends a request, which has no fields, and decodes the response.
func invoke(ctx context.Context, conn *grpc.ClientConn, method string, to decoder) error {
	return conn.Invoke(ctx, method, nil, to, grpc.ForceCodecV2(codec{}))
}

type decoder interface{ Decode(mem.BufferSlice) error }

// codec hands responses to their Decode.
type codec struct{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(any) (mem.BufferSlice, error) { return nil, nil }

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, to any) error { return to.(decoder).Decode(data) }

// Close closes the connection, if there is one. A later call opens another.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn, c.alpha = nil, false
	return err
}

// connect returns the connection to the socket that is there now.
func (c *Client) connect() (*grpc.ClientConn, error) {
	info, err := os.Stat(c.path)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		err = &fs.PathError{Op: "connect", Path: c.path, Err: errNotSocket}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	stat := info.Sys().(*syscall.Stat_t) // on Linux it is nothing else
	file := socketFile{stat.Dev, stat.Ino, stat.Ctim}
	if c.conn != nil && file == c.file {
		return c.conn, nil
	}
	c.Close()
	// The target is never resolved: the dialer has the path, and no proxy is used.
	conn, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(c.dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.limit)))
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %s: %w", c.path, err)
	}
	c.conn, c.file = conn, file
	return conn, nil
}

func (c *Client) dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.path)
	c.mu.Lock()
	c.dialErr = err
	if err == nil {
		c.connections++
	}
	c.mu.Unlock()
	return conn, err
}

// Connections counts the connections that were established: as long as it is the same, so is the kubelet's process.
func (c *Client) Connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connections
}

// check adds to an error what grpc drops from it, and closes a connection that does not work: grpc would back off
// longer and longer, and return the old error until then.
func (c *Client) check(err error) error {
	if status.Code(err) != codes.Unavailable {
		return err
	}
	c.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dialErr != nil {
		return fmt.Errorf("%w: %w", err, c.dialErr)
	}
	return err
}

// Explain describes an error of a call: what failed, and what to do. Timeout is the timeout of the call.
func (c *Client) Explain(err error, timeout time.Duration) string {
	text := err.Error()
	message := status.Convert(err).Message()
	explained := text
	switch code := status.Code(err); {
	case errors.Is(err, fs.ErrNotExist):
		return c.path + " does not exist: mount the directory of the kubelet's PodResources socket (not the socket), " +
			"or set its path"
	case errors.Is(err, errNotSocket):
		return c.path + " is not a socket: mount the kubelet's pod-resources directory, not the socket in it"
	case errors.Is(err, fs.ErrPermission):
		explained = "permission denied: run as user 0 (no capability is needed)"
	case errors.Is(err, syscall.ECONNREFUSED):
		explained = "connection refused: the kubelet is down or restarting"
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		explained = fmt.Sprintf("no response within %s: the kubelet hangs or is overloaded", timeout)
	case code == codes.ResourceExhausted && strings.Contains(text, "larger than max"):
		explained = fmt.Sprintf("the response is larger than %d MiB, which no setting changes: look for a pod or plugin with "+
			"millions of device IDs", c.limit>>20)
	case code == codes.ResourceExhausted:
		explained = "rate limited by the kubelet: another client of the socket queries it too often"
	case code == codes.Unimplemented:
		explained = "the server offers no PodResources service"
	case code == codes.Unavailable:
		explained = "the connection failed: " + message
	case code == codes.Internal:
		explained = "cannot decode the response: " + message
	}
	return c.path + ": " + explained
}
