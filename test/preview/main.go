// Command preview draws the dashboards without Grafana: every panel in its place, with live answers of a
// Prometheus-compatible API. It writes one HTML file for each board, or serves them, drawn anew at every visit.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-exporter/gpu-exporter/test/board"
	"github.com/gpu-exporter/gpu-exporter/test/preview/page"
)

type config struct {
	url, dir, from, to, out, only, serve, pictures string
	scrape                                         time.Duration
	values                                         board.Values
}

func main() {
	c := config{values: board.Values{}}
	flag.StringVar(&c.url, "url", "http://127.0.0.1:8428", "the Prometheus-compatible API that is asked")
	flag.StringVar(&c.dir, "boards", "../dashboards", "the folder of the boards")
	flag.StringVar(&c.from, "from", "", "where the window begins: -6h, now-6h or a time as 2026-11-21T03:00:00Z; empty: what each board says")
	flag.StringVar(&c.to, "to", "now", "where the window ends")
	flag.DurationVar(&c.scrape, "scrape", 15*time.Second, "the interval of the scrapes, from which the shortest window of a rate comes")
	flag.StringVar(&c.out, "out", "", "the folder into which the pages are written")
	flag.StringVar(&c.only, "board", "", "the uid of the only board that is wanted")
	flag.StringVar(&c.serve, "serve", "", "the address at which the pages are served, as 127.0.0.1:8080; links between them carry their variables")
	flag.StringVar(&c.pictures, "pictures", "", "the folder into which a picture of every page is written as well, by Chromium; needs --out")
	flag.Func("var", "the value of a variable: node=gpu-node-1, or of one board's variable: gpu-card/node=gpu-node-1; again for several values", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("name=value is wanted")
		}
		c.values[name] = append(c.values[name], value)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "preview: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, c config, stdout, stderr io.Writer) error {
	if c.pictures != "" && c.out == "" {
		return errors.New("--pictures are taken of the pages that --out writes: give both")
	}
	if c.out == "" && c.serve == "" {
		return errors.New("nothing to do: --out names a folder for the pages, --serve an address")
	}
	boards, err := board.LoadAll(c.dir)
	if err != nil {
		return err
	}
	// One question first: a database that does not answer is one error, not one for each panel.
	if _, err := c.client().Instant(ctx, "vector(1)", time.Now()); err != nil {
		return fmt.Errorf("%s does not answer (make demo starts one at http://127.0.0.1:8428): %w", c.url, err)
	}
	if c.out != "" {
		if err := write(ctx, c, boards, stdout, stderr); err != nil {
			return err
		}
	}
	if c.serve == "" {
		return nil
	}
	listener, err := net.Listen("tcp", c.serve)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "the previews are at http://%s/\n", listener.Addr())
	server := &http.Server{Handler: handler(c, boards, stderr), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// write draws the boards into files. Whatever could not be drawn is an error at the end; the pages are there all the same.
func write(ctx context.Context, c config, boards []board.Board, stdout, stderr io.Writer) error {
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	wanted := boards
	if c.only != "" {
		wanted = nil
		for _, b := range boards {
			if b.UID == c.only {
				wanted = []board.Board{b}
			}
		}
		if wanted == nil {
			return fmt.Errorf("there is no board %s in %s", c.only, c.dir)
		}
	}
	links := func(uid string, _ url.Values) (string, bool) {
		for _, b := range wanted {
			if b.UID == uid {
				return uid + ".html", true
			}
		}
		return "", false
	}
	var all []page.Found
	for _, b := range wanted {
		r, err := page.Prepare(ctx, c.client(), b, c.chosen(b), c.window(b), c.scrape)
		if err != nil {
			return err
		}
		r.Links, r.Others, r.Source = links, wanted, c.url
		text, found, err := page.Draw(ctx, c.client(), r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(c.out, b.UID+".html"), []byte(text), 0o644); err != nil {
			return err
		}
		all = append(all, found...)
	}
	if err := os.WriteFile(filepath.Join(c.out, "index.html"), []byte(page.Index(wanted, all, links, c.url)), 0o644); err != nil {
		return err
	}
	if c.pictures != "" {
		if err := takePictures(ctx, c.out, c.pictures, wanted); err != nil {
			return err
		}
	}
	return report(all, stdout, stderr)
}

// report lists what every panel showed, and on stderr what was not drawn as it should be.
func report(all []page.Found, stdout, stderr io.Writer) error {
	empty, failed := 0, 0
	notes := map[string][]string{}
	var order []string
	for _, f := range all {
		state := fmt.Sprintf("%d series", f.Series)
		switch {
		case f.Err != nil:
			state = "not drawn"
			failed++
			fmt.Fprintln(stderr, f.Err)
		case f.Type == "text":
			state = "words"
		case f.Empty():
			state = "no data"
			empty++
		}
		fmt.Fprintf(stdout, "%-14s %-16s %-10s %s\n", f.Board, f.Type, state, f.Panel)
		for _, n := range f.Notes {
			if notes[n] == nil {
				order = append(order, n)
			}
			notes[n] = append(notes[n], fmt.Sprintf("%s: %q", f.Board, f.Panel))
		}
	}
	for _, n := range order {
		more := ""
		if len(notes[n]) > 1 {
			more = fmt.Sprintf(" and %d more", len(notes[n])-1)
		}
		fmt.Fprintf(stderr, "not drawn as asked: %s (%s%s)\n", n, notes[n][0], more)
	}
	fmt.Fprintf(stdout, "%d panels, %d without data, %d not drawn\n", len(all), empty, failed)
	if failed > 0 {
		return fmt.Errorf("%d of %d panels could not be drawn", failed, len(all))
	}
	return nil
}

func (c config) client() board.Client { return board.Client{URL: strings.TrimSuffix(c.url, "/")} }

// chosen are the values of variables for a board: those for it alone come before those for all.
func (c config) chosen(b board.Board) board.Values {
	out := board.Values{}
	for name, v := range c.values {
		if !strings.Contains(name, "/") {
			out[name] = v
		}
	}
	for name, v := range c.values {
		if of, name, ok := strings.Cut(name, "/"); ok && of == b.UID {
			out[name] = v
		}
	}
	return out
}

func (c config) window(b board.Board) page.Range {
	r := page.Range{From: c.from, To: c.to}
	if r.From == "" {
		r.From = b.From
	}
	if r.From == "" {
		r.From = "now-6h"
	}
	return r
}

// handler draws a page at every visit, with the variables and the window of its address.
func handler(c config, boards []board.Board, stderr io.Writer) http.Handler {
	mux := http.NewServeMux()
	links := func(uid string, query url.Values) (string, bool) {
		for _, b := range boards {
			if b.UID == uid {
				return (&url.URL{Path: "/d/" + uid, RawQuery: query.Encode()}).String(), true
			}
		}
		return "", false
	}
	mux.HandleFunc("GET /d/{uid}", func(w http.ResponseWriter, req *http.Request) {
		for _, b := range boards {
			if b.UID != req.PathValue("uid") {
				continue
			}
			values := c.chosen(b)
			window := c.window(b)
			for name, v := range req.URL.Query() {
				if name, ok := strings.CutPrefix(name, "var-"); ok {
					values[name] = v
				}
			}
			if from, to := req.URL.Query().Get("from"), req.URL.Query().Get("to"); from != "" && to != "" {
				window = page.Range{From: from, To: to}
			}
			r, err := page.Prepare(req.Context(), c.client(), b, values, window, c.scrape)
			if err == nil {
				r.Links, r.Others, r.Source = links, boards, c.url
				var text string
				var found []page.Found
				if text, found, err = page.Draw(req.Context(), c.client(), r); err == nil {
					w.Header().Set("Content-Type", "text/html; charset=utf-8")
					w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
					fmt.Fprint(w, text)
					_ = report(found, io.Discard, stderr)
					return
				}
			}
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		http.NotFound(w, req)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, "/d/"+boards[0].UID, http.StatusFound)
	})
	return mux
}
