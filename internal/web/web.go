// Package web serves the exporter's pages: /metrics, a landing page that shows this node to a person, and
// the two health answers. It reads the latest View and nothing else: no request reaches the driver, the
// kubelet or a disk.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	toolkit "github.com/prometheus/exporter-toolkit/web"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// DefaultAddress is where the exporter listens unless told otherwise: a port that no exporter of the
// neighborhood uses (node_exporter 9100, dcgm-exporter 9400, nvidia_gpu_exporter 9835).
const DefaultAddress = ":10835"

// Options are what the server needs. All are required but Compat.
type Options struct {
	// Latest returns the view to show; cheap and safe for concurrent use.
	Latest func() *gpu.View
	// Metrics is the source of /metrics.
	Metrics prometheus.TransactionalGatherer
	// Own registers the handler's own metrics.
	Own prometheus.Registerer
	// Alive returns an error once the polling loop has been silent for longer than it may be.
	Alive func() error
	// Logger receives what goes wrong in a request.
	Logger *slog.Logger
	// Compat, where set, is served beside /metrics under the names of another exporter.
	Compat *Compat
	// MaxRequests bounds the answers that are under way at once, half of them to one client address; more wait a
	// little, then get status 503. An answer is under way until its reader has taken it.
	MaxRequests int
}

// Compat is an exposition under another exporter's names.
type Compat struct {
	Path string // such as /metrics/dcgm
	// Name says whose names they are, for the link on the page.
	Name    string
	Metrics prometheus.TransactionalGatherer
}

// The bounds within which a client may take the server's time and memory.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// NewServer returns a server of the pages; it does not listen.
func NewServer(o Options) *http.Server {
	mux := http.NewServeMux()
	scrapes := newGate(o.MaxRequests) // the page has one of its own, so that a crowd there keeps no scrape waiting
	mux.Handle("GET /metrics", promhttp.InstrumentMetricHandler(o.Own, scrapes.around(promhttp.HandlerForTransactional(o.Metrics, promhttp.HandlerOpts{
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelError),
		ErrorHandling:     promhttp.ContinueOnError,
		Registry:          o.Own,
		EnableOpenMetrics: true,
		// The gate packs what it sends.
		DisableCompression: true,
	}))))
	link := nodeLink{}
	if c := o.Compat; c != nil {
		link = nodeLink{Path: strings.TrimPrefix(c.Path, "/"), Name: c.Name}
		// No OpenMetrics: it would add _total to the names of counters that do not end so.
		mux.Handle("GET "+c.Path, scrapes.around(promhttp.HandlerForTransactional(c.Metrics, promhttp.HandlerOpts{
			ErrorLog:      slog.NewLogLogger(o.Logger.Handler(), slog.LevelError),
			ErrorHandling: promhttp.ContinueOnError,

			DisableCompression: true,
		})))
	}
	mux.HandleFunc("GET /-/healthy", healthy(o.Alive))
	mux.HandleFunc("GET /-/ready", ready(o.Latest))
	mux.Handle("GET /{$}", newGate(o.MaxRequests).around(page(o.Latest, link, o.Logger)))
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
}

// healthy answers whether the process works. A driver that is absent or hangs is no reason to restart the
// exporter: a new process would only wait for it too.
func healthy(alive func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := alive(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "healthy")
	}
}

// ready answers whether there is something to scrape: a driver that answers.
func ready(latest func() *gpu.View) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		v := latest()
		if v == nil || !v.System.Present() {
			reason := "not ready: the driver was not asked yet"
			if v != nil && len(v.Notes) > 0 {
				reason = "not ready: " + v.Notes[0]
			}
			http.Error(w, reason, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	}
}

// Listen opens the addresses of the flags, so that a port that is taken is known before anything starts.
// It returns nil listeners for those that only the toolkit can open (systemd, vsock).
func Listen(flags *toolkit.FlagConfig) ([]net.Listener, error) {
	if err := toolkit.Validate(*flags.WebConfigFile); err != nil {
		// The parser of YAML writes a line for each of its complaints.
		return nil, fmt.Errorf("--web.config.file %s: %s", *flags.WebConfigFile, strings.Join(strings.Fields(err.Error()), " "))
	}
	if flags.WebSystemdSocket != nil && *flags.WebSystemdSocket {
		return nil, nil
	}
	var open []net.Listener
	for _, address := range *flags.WebListenAddresses {
		if len(address) > 8 && address[:8] == "vsock://" {
			closeAll(open)
			return nil, nil
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			closeAll(open)
			return nil, fmt.Errorf("--web.listen-address %s: %w", address, err)
		}
		open = append(open, l)
	}
	return open, nil
}

func closeAll(open []net.Listener) {
	for _, l := range open {
		l.Close()
	}
}

// Serve serves until the server is shut down, then returns nil.
func Serve(server *http.Server, open []net.Listener, flags *toolkit.FlagConfig, logger *slog.Logger) error {
	server.Handler = keepPasswords(*flags.WebConfigFile, server.Handler, logger)
	var err error
	if open != nil {
		err = toolkit.ServeMultiple(bound(server, open, maxConnections), server, flags, logger)
	} else {
		err = toolkit.ListenAndServe(server, flags, logger)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown ends the server: requests under way get half a second.
func Shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}
