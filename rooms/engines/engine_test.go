package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
	"github.com/gpu-exporter/gpu-exporter/rooms"
)

const (
	idA = "aaaabbbbccccddddeeeeffff00001111222233334444555566667777888899aa"
	idB = "bbbbbbbbccccddddeeeeffff00001111222233334444555566667777888899bb"
)

// container is an entry of a list, with what else an engine writes.
func engineContainer(id string, names ...string) string {
	text, err := json.Marshal(map[string]any{"Id": id, "Names": names, "Image": "cuda", "Command": "train --token=secret",
		"Labels": map[string]string{"a": "b"}, "Ports": []any{}, "HostConfig": map[string]string{"NetworkMode": "default"},
		"State": "running"})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func listOf(containers ...string) string { return "[" + strings.Join(containers, ",") + "]\n" }

func TestEngineNames(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       map[string]string
		err        string
	}{
		{"docker", listOf(engineContainer(idA, "/train"), engineContainer(idB, "/notebook.1")),
			map[string]string{idA: "train", idB: "notebook.1"}, ""},
		{"podman without a slash", listOf(engineContainer(idA, "train")), map[string]string{idA: "train"}, ""},
		{"a link of another container", listOf(engineContainer(idA, "/web/db", "/db")), map[string]string{idA: "db"}, ""},
		{"links alone", listOf(engineContainer(idA, "/web/db")), nil, ""},
		{"two names", listOf(engineContainer(idA, "/a", "/b")), nil, ""},
		{"no name", listOf(engineContainer(idA)), nil, ""},
		{"none running", "[]", nil, ""},
		{"null", "null", nil, ""},
		{"of the kubelet", listOf(engineContainer(idA, "/k8s_main_train-0_ml_0f4a7b3c-1d2e-4f5a-8b6c-7d8e9fa0b1c2_0"),
			engineContainer(idB, "/x")), map[string]string{idB: "x"}, ""},
		{"a name of two", listOf(engineContainer(idA, "/x"), engineContainer(idB, "/x")), nil, ""},
		{"an id of two names", listOf(engineContainer(idA, "/x"), engineContainer(idA, "/y")), nil, ""},
		{"an id twice", listOf(engineContainer(idA, "/x"), engineContainer(idA, "/x")), map[string]string{idA: "x"}, ""},
		{"a name that looks like an id", listOf(engineContainer(idA, "/"+idB[:12])), nil, ""},
		{"a name with a line end", listOf(engineContainer(idA, "/x\ny")), nil, ""},
		{"a name with a quote", listOf(engineContainer(idA, `/x"}`)), nil, ""},
		{"a name without end", listOf(engineContainer(idA, "/"+strings.Repeat("x", maxEngineName+1))), nil, ""},
		{"the longest name", listOf(engineContainer(idA, "/"+strings.Repeat("x", maxEngineName))),
			map[string]string{idA: strings.Repeat("x", maxEngineName)}, ""},
		{"a short id", listOf(engineContainer(idA[:12], "/x")), nil, ""},
		{"an id of capitals", listOf(engineContainer(strings.ToUpper(idA), "/x")), nil, ""},
		{"not a list", `{"message":"page not found"}`, nil, "no list"},
		{"another type", `[{"Id":7}]`, nil, "cannot unmarshal"},
		{"cut off", listOf(engineContainer(idA, "/x"))[:100], nil, "truncated"},
		{"cut off behind a container", "[" + engineContainer(idA, "/x"), nil, "truncated"},
		{"empty", "", nil, "truncated"},
		{"no JSON", "<html>", nil, "invalid character"},
		{"too many", "[" + strings.Repeat("{},", maxEngineContainers) + "{}]", nil, "more than 4096"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := decodeNames(strings.NewReader(c.text))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || got != nil {
					t.Fatalf("%v, error %v; want one with %q", got, err, c.err)
				}
				return
			}
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
}

// FuzzEngineNames checks any response: no panic, names that are in it and valid in a label, none of two containers,
// none of the kubelet's.
func FuzzEngineNames(f *testing.F) {
	f.Add(listOf(engineContainer(idA, "/train"), engineContainer(idB, "/web/db", "/db")))
	f.Add(listOf(engineContainer(idA, "/k8s_a_b_c_d_0")))
	f.Add(`[{"id":"` + idA + `","names":["/\u0061"]}]`)
	f.Add("null")
	f.Fuzz(func(t *testing.T, text string) {
		names, err := decodeNames(strings.NewReader(text))
		if err != nil && names != nil {
			t.Error("an error and names")
		}
		seen := map[string]bool{}
		var all any
		_ = json.NewDecoder(strings.NewReader(text)).Decode(&all)
		plain, _ := json.Marshal(all)
		for id, name := range names {
			if !fullID.MatchString(id) || !validName.MatchString(name) || len(name) > maxEngineName || strings.HasPrefix(name, "k8s_") ||
				seen[name] {
				t.Errorf("%q is called %q", id, name)
			}
			seen[name] = true
			if !strings.Contains(string(plain), name) || !strings.Contains(string(plain), id) {
				t.Errorf("%q, %q are not in the response", id, name)
			}
		}
	})
}

// server is an engine on a socket of its own; response is what it does with a request.
type server struct {
	socket   string
	mu       sync.Mutex
	response http.HandlerFunc
	requests []string
	srv      *http.Server
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{socket: filepath.Join(must.ShortDir(t), "docker.sock")}
	s.listen(t)
	return s
}

func (s *server) listen(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", s.socket)
	must.OK(t, err)
	srv := &http.Server{Handler: s}
	s.srv = srv
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-done })
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.String())
	response := s.response
	s.mu.Unlock()
	response(w, r)
}

func (s *server) respond(text string) {
	s.does(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

func (s *server) does(response http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.response = response
}

func wantName(t *testing.T, e *Engine, id, name string, settled bool) {
	t.Helper()
	if n, ok := e.Container(id); n != name || ok != settled {
		t.Errorf("%.12s is %q, settled %v; want %q, %v", id, n, ok, name, settled)
	}
}

func TestEngineOverTheSocket(t *testing.T) {
	s := newServer(t)
	s.respond(listOf(engineContainer(idA, "/train")))
	e := Open(Options{Kind: Docker, Socket: s.socket})
	wantName(t, e, idA, "", false) // not queried yet
	if src := e.Source(); src.Up || src.Message == "" {
		t.Errorf("before the first list: %+v", src)
	}
	must.OK(t, e.Poll(t.Context()))
	wantName(t, e, idA, "train", true)
	wantName(t, e, idB, "", false) // the next list may have it
	must.OK(t, e.Poll(t.Context()))
	wantName(t, e, idB, "", true) // it did not
	must.OK(t, e.Poll(t.Context()))
	wantName(t, e, idB, "", true) // and is not waited for again
	s.respond(listOf(engineContainer(idA, "/renamed"), engineContainer(idB, "/late")))
	must.OK(t, e.Poll(t.Context()))
	wantName(t, e, idA, "renamed", true)
	wantName(t, e, idB, "late", true)
	if src := e.Source(); !src.Up || src.Name != "docker" || src.Errors != 0 || !src.LastSuccess.Present() || !src.Duration.Present() {
		t.Errorf("health: %+v", src)
	}
	for _, q := range s.requests {
		if q != "GET /containers/json" {
			t.Errorf("it requests %q", q)
		}
	}
}

// Every failure is one counted error with a message that describes what to do; known names remain.
func TestEngineFaults(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   func(*testing.T, *server)
		message string
	}{
		{"missing", func(t *testing.T, s *server) { s.srv.Close() }, "does not exist"},
		{"connection refused", func(t *testing.T, s *server) {
			s.srv.Close()
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket, Net: "unix"})
			must.OK(t, err)
			l.SetUnlinkOnClose(false)
			l.Close()
		}, "connection refused"},
		{"slow", func(t *testing.T, s *server) {
			s.does(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		}, "no response within"},
		{"slow in the middle", func(t *testing.T, s *server) {
			s.does(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "[")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})
		}, "no response within"},
		{"without end", func(t *testing.T, s *server) {
			s.does(func(w http.ResponseWriter, r *http.Request) {
				space := []byte(strings.Repeat(" ", 1<<20))
				for r.Context().Err() == nil {
					if _, err := w.Write(space); err != nil {
						return
					}
				}
			})
		}, "larger than 16 MiB"},
		{"headers without end", func(t *testing.T, s *server) {
			s.does(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X", strings.Repeat("x", 2*maxHeader))
				fmt.Fprint(w, "[]")
			})
		}, "header"},
		{"elsewhere", func(t *testing.T, s *server) {
			s.does(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://127.0.0.1:1/x", http.StatusFound)
			})
		}, "status 302"},
		{"refused", func(t *testing.T, s *server) {
			s.does(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no\nno", http.StatusForbidden) })
		}, "status 403"},
		{"no JSON", func(t *testing.T, s *server) { s.respond("<html>") }, "invalid character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.respond(listOf(engineContainer(idA, "/train")))
			e := Open(Options{Kind: Docker, Socket: s.socket, Timeout: time.Hour})
			must.OK(t, e.Poll(t.Context()))
			c.fault(t, s)
			wantName(t, e, idB, "", false)
			if c.message == "no response within" {
				e.o.Timeout = 20 * time.Millisecond
			}
			if err := e.Poll(t.Context()); err == nil {
				t.Fatal("no error")
			}
			wantName(t, e, idA, "train", true)
			wantName(t, e, idB, "", true) // called by its id, rather than waited for
			src := e.Source()
			if src.Up || src.Errors != 1 || !strings.Contains(src.Message, c.message) ||
				!strings.Contains(src.Message, "using the response from") || strings.ContainsAny(src.Message, "\r\n") {
				t.Errorf("health: %+v", src)
			}
		})
	}
}

// An engine that comes back has the names that were looked up meanwhile: no name, then none, then a name again.
func TestEngineComesBack(t *testing.T) {
	s := newServer(t)
	s.respond("[]")
	var log strings.Builder
	e := Open(Options{Kind: Podman, Socket: s.socket, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err := e.Poll(t.Context()); err != nil || log.Len() > 0 {
		t.Errorf("%v, logged: %s", err, log.String())
	}
	s.srv.Close()
	wantName(t, e, idA, "", false)
	_ = e.Poll(t.Context())
	wantName(t, e, idA, "", true)
	s.respond(listOf(engineContainer(idA, "/train")))
	s.listen(t)
	must.OK(t, e.Poll(t.Context()))
	if n := strings.Count(log.String(), "containers listed again"); n != 1 {
		t.Errorf("%d lines for one return:\n%s", n, log.String())
	}
	wantName(t, e, idA, "train", true)
	if src := e.Source(); !src.Up || src.Message != "" || src.Errors != 1 {
		t.Errorf("health: %+v", src)
	}
}

func TestOwnEndIsNoEngineFailure(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.does(func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	e := Open(Options{Kind: Docker, Socket: s.socket})
	e.Run(ctx)
	if src := e.Source(); src.Errors != 0 {
		t.Errorf("health: %+v", src)
	}
}

// The list is requested at its interval; an unknown ID shortens it, but not below a second.
func TestEngineInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := Open(Options{Kind: Docker, Socket: "/nonexistent/docker.sock", Interval: 10 * time.Second})
		next := func() time.Duration {
			start := time.Now()
			if !e.pause(t.Context()) {
				t.Fatal("it ended")
			}
			return time.Since(start)
		}
		if d := next(); d != 10*time.Second {
			t.Errorf("the next list after %v", d)
		}
		e.Container(idA)
		if d := next(); d != time.Second {
			t.Errorf("a list in a hurry after %v", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if e.pause(ctx) {
			t.Error("it goes on after the end")
		}
	})
}

// A running engine lists again and again until it is told to end.
func TestEngineRuns(t *testing.T) {
	s := newServer(t)
	s.respond(listOf(engineContainer(idA, "/train")))
	e := Open(Options{Kind: Podman, Socket: s.socket, Interval: time.Millisecond})
	if e.Kind() != Podman || e.o.Timeout != 5*time.Second || e.o.Clock == nil {
		t.Errorf("%+v", e.o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); e.Run(ctx) }()
	lists := func() int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.lists
	}
	testkit.Until(func() bool { return lists() >= 3 })
	cancel()
	<-ended
}

// The texts of errors: what failed, and what to do.
func TestMessages(t *testing.T) {
	for _, kind := range []string{Docker, Podman} {
		e := Open(Options{Kind: kind, Socket: "/run/x.sock", Timeout: 3 * time.Second})
		for _, c := range []struct {
			err  error
			want string
		}{
			{fs.ErrNotExist, "/run/x.sock does not exist: mount it, or unset --containers.socket"},
			{fs.ErrPermission, "/run/x.sock: permission denied: run as user 0, or as a member of the socket's group"},
			{fmt.Errorf("dial: %w", syscall.ECONNREFUSED),
				"/run/x.sock: connection refused; a mounted socket goes stale when the engine restarts: mount its directory"},
			{context.DeadlineExceeded, "/run/x.sock: no response within 3s"},
			{fmt.Errorf("a\nb"), `/run/x.sock: "a\nb"`},
			{fmt.Errorf("%s", strings.Repeat("x", 300)), `/run/x.sock: "` + strings.Repeat("x", 200) + `"`},
		} {
			if got := e.explain(c.err); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		}
		err := e.Poll(t.Context())
		if want := "list the containers of " + kind + ": "; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s…", err, want)
		}
	}
}

// An ID that was looked up and has no container is remembered for sixty lists.
func TestUnknownIDsAreForgotten(t *testing.T) {
	s := newServer(t)
	s.respond("[]")
	now := time.Unix(1000, 0)
	e := Open(Options{Kind: Docker, Socket: s.socket, Clock: func() time.Time { return now }})
	wantName(t, e, idA, "", false)
	poll := func() {
		t.Helper()
		must.OK(t, e.Poll(t.Context()))
	}
	poll()
	for range forgetLists {
		poll()
	}
	if len(e.absent) != 1 {
		t.Error("forgotten too early")
	}
	wantName(t, e, idA, "", true) // looked up again
	for range forgetLists {
		poll()
	}
	if len(e.absent) != 1 {
		t.Error("forgotten too early after it was looked up")
	}
	if poll(); len(e.absent) != 0 {
		t.Error("not forgotten")
	}
	if src := e.Source(); src.LastSuccess != gpu.Some(now) || src.Duration.Or(-1) != 0 {
		t.Errorf("%+v", src)
	}
	for _, q := range s.requests[:1] {
		if q != "GET /containers/json" {
			t.Errorf("%q", q)
		}
	}
	// At the limit, what is not remembered is called by its ID at once.
	for i := range maxWanted {
		e.Container(fmt.Sprintf("%064x", i))
	}
	wantName(t, e, idB, "", true)
	if len(e.wanted) != maxWanted {
		t.Errorf("%d are remembered", len(e.wanted))
	}
}

// A list that fails again and again is logged once.
func TestFailuresAreLoggedOnce(t *testing.T) {
	var text strings.Builder
	e := Open(Options{Kind: Docker, Socket: filepath.Join(t.TempDir(), "no.sock"), Logger: slog.New(slog.NewTextHandler(&text, nil))})
	for range 3 {
		_ = e.Poll(t.Context())
	}
	if n := strings.Count(text.String(), "cannot list containers"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, text.String())
	}
}

// The engine of a socket is that of its path, but for the flags that name one; one of each is read.
func TestSocketFlags(t *testing.T) {
	const both = "--containers.socket: /d.sock and /e.sock are both of docker: one is read"
	for args, want := range map[string]string{
		"":                            "[]",
		"--containers.socket=/d.sock": "[docker=/d.sock]",
		"--containers.socket=/d.sock --containers.socket=/run/podman/podman.sock": "[docker=/d.sock podman=/run/podman/podman.sock]",
		"--podman.socket=/p.sock --docker.socket=/d.sock":                         "[docker=/d.sock podman=/p.sock]",
		"--containers.socket=/d.sock --containers.socket=/e.sock":                 both,
		"--docker.socket=/d.sock --containers.socket=/e.sock":                     both,
	} {
		app := kingpin.New("x", "")
		part := New(app)
		_, err := app.Parse(strings.Fields(args))
		must.OK(t, err)
		var got []string
		p := &rooms.Plan{Common: &rooms.Common{Logger: slog.New(slog.DiscardHandler)}}
		if err = part.Check(p.Common); err == nil {
			_, err = part.Open(p)
			for _, e := range p.Finder.Engines {
				got = append(got, e.Kind()+"="+e.(*Engine).o.Socket)
			}
		}
		if text := fmt.Sprint(got); text != want && (err == nil || err.Error() != want) {
			t.Errorf("%s: %s, %v, want %s", args, text, err, want)
		}
	}
}
