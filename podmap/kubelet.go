package podmap

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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesalpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// errNotSocket is what a path gives that is there and no socket.
var errNotSocket = errors.New("not a socket")

// socketLister asks over the kubelet's unix socket. It keeps one connection as long as the socket stays
// the same file and answers. Its calls never overlap (Map sees to that), but grpc dials when it pleases.
type socketLister struct {
	path  string
	limit int // bytes of one answer

	conn  *grpc.ClientConn // nil: dial at the next call
	file  socketFile       // that conn was dialled to
	alpha bool             // this kubelet knows v1alpha1 alone

	mu      sync.Mutex // guards dialErr
	dialErr error      // of the last attempt; grpc keeps only its text
}

// socketFile tells one socket from the next at the same path. The number of an inode is given out again,
// so the time of its change belongs to it.
type socketFile struct {
	device, inode uint64
	changed       syscall.Timespec
}

func newSocketLister(path string, limit int) *socketLister {
	return &socketLister{path: path, limit: limit}
}

// The methods of the service. The requests have no fields.
const (
	methodList        = podresources.PodResourcesLister_List_FullMethodName
	methodAllocatable = podresources.PodResourcesLister_GetAllocatableResources_FullMethodName
	methodListAlpha   = podresourcesalpha.PodResourcesLister_List_FullMethodName
)

// list implements lister. A kubelet that has no v1 is asked in v1alpha1, until the connection changes.
func (l *socketLister) list(ctx context.Context, to *listing) error {
	conn, err := l.connect()
	if err != nil {
		return err
	}
	if !l.alpha {
		err := conn.Invoke(ctx, methodList, nil, to, grpc.ForceCodecV2(codec{}))
		if status.Code(err) != codes.Unimplemented {
			return l.judge(err)
		}
	}
	err = conn.Invoke(ctx, methodListAlpha, nil, to, grpc.ForceCodecV2(codec{}))
	// After a failure, whoever listens then may know v1.
	l.alpha = err == nil
	return l.judge(err)
}

// allocatable implements lister. Kubelets before 1.21 do not offer it, those before 1.23 say so in words.
func (l *socketLister) allocatable(ctx context.Context, to *allocatable) error {
	conn, err := l.connect()
	if err != nil {
		return err
	}
	if l.alpha {
		return fmt.Errorf("allocatable resources in v1alpha1: %w", errors.ErrUnsupported)
	}
	err = conn.Invoke(ctx, methodAllocatable, nil, to, grpc.ForceCodecV2(codec{}))
	if status.Code(err) == codes.Unimplemented || status.Code(err) == codes.Unknown && strings.Contains(err.Error(), "disabled") {
		return fmt.Errorf("allocatable resources: %w: %w", errors.ErrUnsupported, err)
	}
	return l.judge(err)
}

// codec sends empty requests and has answers decode themselves.
type codec struct{}

// Name implements encoding.CodecV2: on the wire it is plain protobuf.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(any) (mem.BufferSlice, error) { return nil, nil }

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	d, ok := v.(interface{ decode(mem.BufferSlice) error })
	if !ok {
		return fmt.Errorf("cannot decode an answer into %T", v)
	}
	return d.decode(data)
}

// Close implements io.Closer.
func (l *socketLister) Close() error {
	if l.conn == nil {
		return nil
	}
	err := l.conn.Close()
	l.conn, l.alpha = nil, false
	return err
}

// connect returns the connection to the socket that is there now.
func (l *socketLister) connect() (*grpc.ClientConn, error) {
	info, err := os.Stat(l.path)
	if err != nil {
		l.Close()
		return nil, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		l.Close()
		return nil, &fs.PathError{Op: "connect", Path: l.path, Err: errNotSocket}
	}
	file := socketFile{}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		file = socketFile{device: stat.Dev, inode: stat.Ino, changed: stat.Ctim}
	}
	if l.conn != nil && file == l.file {
		return l.conn, nil
	}
	l.Close()
	// The target is never resolved: the dialer knows where to go, and no proxy lies on the way.
	conn, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(l.dial),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(l.limit)))
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %s: %w", l.path, err)
	}
	l.conn, l.file = conn, file
	return conn, nil
}

func (l *socketLister) dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", l.path)
	l.mu.Lock()
	l.dialErr = err
	l.mu.Unlock()
	return conn, err
}

// judge adds to an error what grpc has lost of it, and lets go of a connection that is of no use: grpc
// would wait longer and longer before it tried again, and answer from memory until then.
func (l *socketLister) judge(err error) error {
	if status.Code(err) != codes.Unavailable {
		return err
	}
	l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dialErr != nil {
		return fmt.Errorf("%w: %w", err, l.dialErr)
	}
	return err
}

// explain says in one line what is wrong and what to do.
func explain(err error, o Options) string {
	path := o.Socket
	text := err.Error()
	switch code := status.Code(err); {
	case errors.Is(err, fs.ErrNotExist):
		return path + " does not exist: mount the directory of the kubelet's PodResources socket (not the socket), or give its path"
	case errors.Is(err, errNotSocket):
		return path + " is not a socket: mount the kubelet's pod-resources directory, not the socket in it"
	case errors.Is(err, fs.ErrPermission):
		return path + ": permission denied: run as user 0 (no capability is needed)"
	case errors.Is(err, syscall.ECONNREFUSED):
		return path + ": nobody listens: the kubelet is down or restarting"
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		return fmt.Sprintf("%s: no answer within %s: the kubelet hangs or is overloaded", path, o.Timeout)
	case code == codes.ResourceExhausted && strings.Contains(text, "larger than max"):
		return fmt.Sprintf("%s: the answer is larger than %d MiB: raise the limit of one answer", path, o.MaxMessage>>20)
	case code == codes.ResourceExhausted:
		return path + ": the kubelet's rate limit is used up: another client of the socket asks too often"
	case code == codes.Unimplemented:
		return path + ": whoever listens there knows no PodResources service"
	case code == codes.Unavailable:
		return path + ": the connection failed: " + oneLine(status.Convert(err).Message())
	case code == codes.Internal:
		return path + ": the answer cannot be read: " + oneLine(status.Convert(err).Message())
	}
	return path + ": " + oneLine(text)
}

// oneLine keeps a foreign text short and on its line.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}
