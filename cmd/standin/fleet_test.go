package main

import (
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/testkit"
)

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
	must.OK(t, err)
	go io.Copy(io.Discard, r)
	url := regexp.MustCompile(`http://[^/]+/sd`).FindString(string(said[:n]))
	body, err := testkit.Client{}.Fetch(ctx, url)
	if err != nil || strings.Count(body, `"targets"`) != 4 {
		t.Errorf("%s: %s, %v", url, body, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
