package podresources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesalpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

const (
	listV1      = podresources.PodResourcesLister_List_FullMethodName
	listAlpha   = podresourcesalpha.PodResourcesLister_List_FullMethodName
	allocatable = podresources.PodResourcesLister_GetAllocatableResources_FullMethodName
)

// server responds to calls with what a test has put in it; other methods are not implemented.
type server struct {
	*grpc.Server
	mu      sync.Mutex
	answers map[string]func(context.Context) (any, error)
	calls   []string
}

// serve serves at a path, until the test ends or the server is stopped.
func serve(t *testing.T, path string) *server {
	t.Helper()
	s := &server{answers: map[string]func(context.Context) (any, error){}}
	s.Server = grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, _ any, info *grpc.UnaryServerInfo,
		_ grpc.UnaryHandler) (any, error) {
		s.mu.Lock()
		s.calls = append(s.calls, info.FullMethod)
		answer := s.answers[info.FullMethod]
		s.mu.Unlock()
		if answer == nil {
			return nil, status.Error(codes.Unimplemented, "unknown method")
		}
		return answer(ctx)
	}))
	podresources.RegisterPodResourcesListerServer(s, podresources.UnimplementedPodResourcesListerServer{})
	podresourcesalpha.RegisterPodResourcesListerServer(s, podresourcesalpha.UnimplementedPodResourcesListerServer{})
	l, err := net.Listen("unix", path)
	must.OK(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *server) answer(method string, m any, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[method] = func(context.Context) (any, error) { return m, err }
}

// called returns the methods that were called since it was called last, by their short names.
func (s *server) called() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]string{listV1: "v1", listAlpha: "v1alpha1", allocatable: "allocatable"}
	var out []string
	for _, m := range s.calls {
		out = append(out, names[m])
	}
	s.calls = nil
	return strings.Join(out, " ")
}

// client returns a client of a socket in a directory of its own.
func client(t *testing.T, limit int) (*Client, string) {
	t.Helper()
	path := filepath.Join(must.ShortDir(t), "kubelet.sock")
	c := New(path, limit)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, path
}

// list queries the devices of the one container that the tests have.
func list(t *testing.T, c *Client) (string, error) {
	t.Helper()
	l := NewList(keepSome())
	err := c.List(t.Context(), l)
	return strings.Join(render(l), " "), err
}

func onePod(id string) *podresources.ListPodResourcesResponse {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{Namespace: "n", Name: "p",
		Containers: []*podresources.ContainerResources{{Name: "c", Devices: []*podresources.ContainerDevices{{ResourceName: "r/a",
			DeviceIds: []string{id}}}}}}}}
}

const gotOne = `{"n" "p" "c"} "r/a" "1"`

// A connection lasts as long as the socket is the same file; a new file is a new kubelet.
func TestConnections(t *testing.T) {
	c, path := client(t, 1<<20)
	if c.Connections() != 0 {
		t.Error("connected before a call")
	}
	s := serve(t, path)
	s.answer(listV1, onePod("1"), nil)
	for range 3 {
		if got, err := list(t, c); err != nil || got != gotOne || c.Connections() != 1 {
			t.Fatalf("%s, %v, %d connections", got, err, c.Connections())
		}
	}
	if err := c.Close(); err != nil || c.conn != nil {
		t.Fatal(err)
	}
	if got, err := list(t, c); err != nil || got != gotOne || c.Connections() != 2 {
		t.Errorf("after it was closed: %s, %v, %d connections", got, err, c.Connections())
	}
	// Another socket takes its place, and the old server goes on.
	must.OK(t, os.Rename(path, path+".old"))
	next := serve(t, path)
	next.answer(listV1, onePod("2"), nil)
	s.called()
	if got, err := list(t, c); err != nil || !strings.HasSuffix(got, `"2"`) || c.Connections() != 3 || s.called() != "" {
		t.Errorf("another socket: %s, %v, %d connections", got, err, c.Connections())
	}
	// A restart, after which the file often has the same inode number: no call fails.
	for range 3 {
		next.Stop()
		next = serve(t, path)
		next.answer(listV1, onePod("1"), nil)
		if got, err := list(t, c); err != nil || got != gotOne {
			t.Errorf("after a restart: %s, %v", got, err)
		}
	}
	connections := c.Connections()
	// The file is removed: the connection to it is of no use any more.
	must.OK(t, os.Remove(path))
	if _, err := list(t, c); !errors.Is(err, fs.ErrNotExist) || c.conn != nil {
		t.Errorf("no socket: %v", err)
	}
	must.OK(t, os.WriteFile(path, nil, 0o600))
	for range 2 {
		if _, err := list(t, c); !errors.Is(err, errNotSocket) || c.Connections() != connections {
			t.Errorf("a file: %v", err)
		}
		if err := c.Allocatable(t.Context(), NewDevices(keepSome())); !errors.Is(err, errNotSocket) {
			t.Errorf("a file: %v", err)
		}
	}
}

// A connection that broke is closed, and its error has the reason; any other error leaves it.
func TestBrokenConnections(t *testing.T) {
	c, path := client(t, 1<<20)
	s := serve(t, path)
	for _, code := range []codes.Code{codes.Internal, codes.ResourceExhausted, codes.Unknown, codes.PermissionDenied} {
		s.answer(listV1, nil, status.Error(code, "no"))
		if _, err := list(t, c); status.Code(err) != code || c.conn == nil || c.Connections() != 1 {
			t.Errorf("%v: %v, %d connections", code, err, c.Connections())
		}
	}
	s.answer(listV1, nil, status.Error(codes.Unavailable, "shutting down"))
	if _, err := list(t, c); status.Code(err) != codes.Unavailable || c.conn != nil || err.Error() !=
		"rpc error: code = Unavailable desc = shutting down" {
		t.Errorf("%v", err)
	}
	// The server ends, and its socket remains: refused connections are told apart from others, and tried again at once.
	l := &net.ListenConfig{}
	must.OK(t, os.Rename(path, path+".old"))
	dead, err := l.Listen(t.Context(), "unix", path)
	must.OK(t, err)
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	for range 3 {
		if _, err := list(t, c); !errors.Is(err, syscall.ECONNREFUSED) || status.Code(err) != codes.Unavailable || c.conn != nil {
			t.Errorf("%v", err)
		}
	}
	must.OK(t, os.Rename(path+".old", path))
	s.answer(listV1, onePod("1"), nil)
	if got, err := list(t, c); err != nil || got != gotOne {
		t.Errorf("%s, %v", got, err)
	}
	s.answer(listV1, nil, status.Error(codes.Unavailable, "again"))
	if _, err := list(t, c); errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the reason of an older failure: %v", err)
	}
}

// A kubelet without v1 is queried in v1alpha1, as long as it responds to that and the connection is the same.
func TestOldKubelets(t *testing.T) {
	c, path := client(t, 1<<20)
	s := serve(t, path)
	alpha := &podresourcesalpha.ListPodResourcesResponse{PodResources: []*podresourcesalpha.PodResources{{Namespace: "n", Name: "p",
		Containers: []*podresourcesalpha.ContainerResources{{Name: "c", Devices: []*podresourcesalpha.ContainerDevices{{ResourceName: "r/a",
			DeviceIds: []string{"1"}}}}}}}}
	s.answer(listAlpha, alpha, nil)
	good := func(calls string) {
		t.Helper()
		if got, err := list(t, c); err != nil || got != gotOne || s.called() != calls {
			t.Errorf("%s, %v, want the calls %s", got, err, calls)
		}
	}
	good("v1 v1alpha1")
	good("v1alpha1")
	if err := c.Allocatable(t.Context(), NewDevices(keepSome())); !errors.Is(err, errors.ErrUnsupported) || s.called() != "" {
		t.Errorf("allocatable resources in v1alpha1: %v", err)
	}
	s.answer(listAlpha, nil, status.Error(codes.Unknown, "no"))
	if _, err := list(t, c); status.Code(err) != codes.Unknown || s.called() != "v1alpha1" {
		t.Errorf("%v", err)
	}
	s.answer(listV1, onePod("1"), nil) // it was upgraded
	good("v1")
	good("v1")
	s.answer(listV1, nil, status.Error(codes.Unimplemented, "no"))
	s.answer(listAlpha, alpha, nil)
	good("v1 v1alpha1")
	c.Close()
	good("v1 v1alpha1")
	s.answer(listAlpha, nil, status.Error(codes.Unimplemented, "no"))
	if _, err := list(t, c); status.Code(err) != codes.Unimplemented {
		t.Errorf("neither: %v", err)
	}
}

// A kubelet that does not offer the call is told apart from one that fails at it.
func TestAllocatable(t *testing.T) {
	c, path := client(t, 1<<20)
	s := serve(t, path)
	s.answer(allocatable, &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: "r/a", DeviceIds: []string{"1", "2"}}, {ResourceName: "r/b", DeviceIds: []string{"3"}},
		{ResourceName: "r/a", DeviceIds: []string{"4"}}}}, nil)
	d := NewDevices(keepSome())
	if err := c.Allocatable(t.Context(), d); err != nil || len(d.ByResource) != 2 || !slices.Equal(d.ByResource[0].Whole, []string{"1", "2",
		"4"}) ||
		!slices.Equal(d.ByResource[1].Whole, []string{"3"}) {
		t.Errorf("%+v, %v", d.ByResource, err)
	}
	for _, tt := range []struct {
		err       error
		supported bool
	}{
		{status.Error(codes.Unimplemented, "unknown method"), false},
		{status.Error(codes.Unknown, "Pod Resources API GetAllocatableResources disabled"), false}, // kubelets 1.21 and 1.22
		{status.Error(codes.Unknown, "broken"), true},
		{status.Error(codes.Internal, "disabled"), true},
		{status.Error(codes.Unavailable, "disabled"), true},
	} {
		s.answer(allocatable, nil, tt.err)
		err := c.Allocatable(t.Context(), NewDevices(keepSome()))
		if err == nil || errors.Is(err, errors.ErrUnsupported) == tt.supported || !strings.Contains(err.Error(),
			status.Convert(tt.err).Message()) {
			t.Errorf("%v: %v", tt.err, err)
		}
		if closed := c.conn == nil; closed != (status.Code(tt.err) == codes.Unavailable) {
			t.Errorf("%v: closed %v", tt.err, closed)
		}
	}
}

// Each way in which a call fails, and what to do about it, on one line.
func TestExplanations(t *testing.T) {
	c, path := client(t, 4<<20)
	s := serve(t, path)
	large := onePod("1")
	large.PodResources[0].Containers[0].Devices[0].DeviceIds = []string{strings.Repeat("x", 4<<20)}
	from := func(m any, err error) error {
		s.answer(listV1, m, err)
		_, err = list(t, c)
		return err
	}
	hung := func() error {
		s.mu.Lock()
		s.answers[listV1] = func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return c.List(ctx, NewList(keepSome()))
	}
	many := &podresources.ListPodResourcesResponse{}
	for range maxPods + 1 {
		many.PodResources = append(many.PodResources, &podresources.PodResources{})
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist},
			" does not exist: mount the directory of the kubelet's PodResources socket (not the socket), or set its path"},
		{&fs.PathError{Op: "connect", Path: path, Err: errNotSocket},
			" is not a socket: mount the kubelet's pod-resources directory, not the socket in it"},
		{fmt.Errorf("%w: %w", status.Error(codes.Unavailable, "x"), syscall.EACCES),
			": permission denied: run as user 0 (no capability is needed)"},
		{fmt.Errorf("%w: %w", status.Error(codes.Unavailable, "x"), syscall.ECONNREFUSED),
			": connection refused: the kubelet is down or restarting"},
		{context.DeadlineExceeded, ": no response within 5s: the kubelet hangs or is overloaded"},
		{hung(), ": no response within 5s: the kubelet hangs or is overloaded"},
		{from(large, nil), ": the response is larger than 4 MiB, which no setting changes: look for a pod or plugin with " +
			"millions of device IDs"},
		{from(nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")),
			": rate limited by the kubelet: another client of the socket queries it too often"},
		{from(nil, status.Error(codes.Unavailable, "shutting down")), ": the connection failed: shutting down"},
		{status.Error(codes.Unimplemented, "no"), ": the server offers no PodResources service"},
		{from(many, nil), ": cannot decode the response: grpc: failed to unmarshal the received message: more than 4096 pods"},
		{from(nil, status.Error(codes.Unknown, "out of order")), ": rpc error: code = Unknown desc = out of order"},
		{errors.New("anything else"), ": anything else"},
	} {
		if got := c.Explain(tt.err, 5*time.Second); got != path+tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, path+tt.want)
		}
	}
}
