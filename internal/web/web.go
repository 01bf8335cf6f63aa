// Package web serves the exporter's pages: /metrics, a page that shows this node, and the health endpoints. It
// reads the latest View and nothing else: no request reaches the driver, the kubelet or a disk.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	toolkit "github.com/prometheus/exporter-toolkit/web"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
)

// DefaultAddress is the default listen address, on a port that no exporter beside it uses (node_exporter 9100,
// dcgm-exporter 9400, nvidia_gpu_exporter 9835).
const DefaultAddress = ":10835"

// Options are what the server needs. All but Compat are required.
type Options struct {
	// Latest returns the view to show; cheap and safe for concurrent use.
	Latest func() *gpu.View
	// Metrics is the source of /metrics.
	Metrics Metrics
	// Own registers the handler's own metrics.
	Own prometheus.Registerer
	// Alive returns an error if the polling loop has stopped.
	Alive  func() error
	Logger *slog.Logger
	// Compat, if set, is served beside /metrics.
	Compat *Compat
}

// Compat is an exposition with the metric names of another exporter.
type Compat struct {
	Path string // such as /metrics/dcgm
	// Name is the other exporter, for the link on the page.
	Name    string
	Metrics Metrics
	// Port, if set, is a listen port at which /metrics is this exposition too; with Main it is at every port.
	Port string
	Main bool
	// Note is what the exposition lacks, for the page.
	Note string
}

// ownPath is the exporter's own exposition at any port, whatever /metrics is there.
const ownPath = "/metrics/gpu"

// Limits of the time and memory that a client may use.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// NewServer returns a server of the pages; it does not listen.
func NewServer(o Options) *http.Server {
	mux := http.NewServeMux()
	link, port := nodeLink{}, ""
	var other http.Handler
	if c := o.Compat; c != nil {
		link, port = nodeLink{strings.TrimPrefix(c.Path, "/"), c.Name, c.Note}, c.Port
		// No OpenMetrics, which would append _total to the other exporter's counters.
		other = newExposition(o.Latest, c.Metrics, prometheus.NewRegistry(), o.Logger,
			expfmt.FmtProtoDelim,
			expfmt.FmtText)
		mux.Handle("GET "+c.Path, other)
	}
	own := promhttp.InstrumentMetricHandler(o.Own,
		newExposition(o.Latest, o.Metrics, o.Own, o.Logger,
			expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtOpenMetrics_0_0_1, expfmt.FmtProtoDelim, expfmt.FmtText))
	mux.Handle("GET "+ownPath, own)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if other != nil && (o.Compat.Main || ok && strconv.Itoa(at.Port) == port) {
			other.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /-/healthy", healthy(o.Alive))
	mux.HandleFunc("GET /health", healthy(o.Alive)) // of dcgm-exporter, in the probes of its DaemonSets
	mux.HandleFunc("GET /-/ready", ready(o.Latest))
	mux.Handle("GET /{$}", page(o.Latest, link, o.Logger))
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

// healthy reports whether the process works. A driver that is missing or hung is no reason to restart the exporter.
func healthy(alive func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := alive(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "healthy")
	}
}

// ready reports whether there is something to scrape: whether the driver responds.
func ready(latest func() *gpu.View) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		v := latest()
		if v == nil || !v.System.Present() {
			reason := "not ready: " + notPolled
			if v != nil && len(v.Notes) > 0 {
				reason = "not ready: " + v.Notes[0]
			}
			http.Error(w, reason, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	}
}

// Listen opens the listen addresses, so that a port in use is reported before anything starts. It returns no listeners
// for addresses that only the toolkit can open (systemd, vsock).
func Listen(flags *toolkit.FlagConfig) ([]net.Listener, error) {
	if err := toolkit.Validate(*flags.WebConfigFile); err != nil {
		// The YAML parser writes one line per error.
		return nil, fmt.Errorf("--web.config.file %s: %s", *flags.WebConfigFile, strings.Join(strings.Fields(err.Error()), " "))
	}
	vsock := func(address string) bool { return strings.HasPrefix(address, "vsock://") }
	if flags.WebSystemdSocket != nil && *flags.WebSystemdSocket ||
		slices.ContainsFunc(*flags.WebListenAddresses, vsock) {
		return nil, nil
	}
	var open []net.Listener
	for _, address := range *flags.WebListenAddresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			for _, l := range open {
				l.Close()
			}
			return nil, fmt.Errorf("--web.listen-address %s: %w", address, err)
		}
		open = append(open, l)
	}
	return open, nil
}

// Serve serves until the server is shut down, then returns nil.
func Serve(server *http.Server, open []net.Listener, flags *toolkit.FlagConfig, logger *slog.Logger) error {
	server.Handler = requireUsers(*flags.WebConfigFile, server.Handler, logger)
	limitConnections(server, maxConnections)
	var err error
	if open != nil {
		err = toolkit.ServeMultiple(open, server, flags, logger)
	} else {
		err = toolkit.ListenAndServe(server, flags, logger)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops the server: requests being served get half a second.
func Shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}
