package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestFleetWritesHistory(t *testing.T) {
	out := filepath.Join(t.TempDir(), "history")
	args := []string{"history", "--preset=demo", "--from=2026-11-18T10:00:10Z", "--to=2026-11-18T10:02:00Z", "--step=30s",
		"--family=gpu_device_up", "--out=" + out}
	if err := runFleet(t.Context(), args, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	// The first step is the last whole one before --from.
	if n := strings.Count("\n"+string(text), "\nup{cluster=\"main\",instance=\"main-h100-0000\""); n != 4 ||
		!strings.Contains(string(text), " 1794996000000\n") {
		t.Errorf("%d scrapes of the first node in two minutes:\n%.500s", n, text)
	}
	var printed strings.Builder
	if err := runFleet(t.Context(), append(args[:len(args)-1], "--out=-"), &printed, io.Discard); err != nil {
		t.Fatal(err)
	}
	if printed.String() != string(text) {
		t.Error("standard output is not what the file is")
	}
}

func TestFleetServes(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- runFleet(ctx, []string{"--nodes=3", "--gpus=2", "--listen=127.0.0.1:0"}, w, io.Discard)
		w.Close()
	}()
	said := make([]byte, 4096)
	n, err := r.Read(said)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	url := regexp.MustCompile(`http://[^/]+/sd`).FindString(string(said[:n]))
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || strings.Count(string(body), `"targets"`) != 4 {
		t.Errorf("%s: %s, %v", url, body, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFleetRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--preset=none"}, {"history", "--step=0s"}, {"history", "--from=yesterday"}, {"history", "--from=1h", "--to=-1h"}, {"--epoch=now"},
		{"--gpus=99"}, {"dance"},
	} {
		if err := runFleet(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: taken", args)
		}
	}
}
