package source

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestNotify(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "kubelet.sock"), filepath.Join(dir, "sub", "checkpoint")}
	if err := Notify(t.Context(), paths, nil); err == nil {
		t.Error("a directory that is missing is watched")
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	rung, done := make(chan struct{}, 1000), make(chan error)
	go func() { done <- Notify(ctx, paths, func() { rung <- struct{}{} }) }()
	writes, rings := 0, 0
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path+".tmp", []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range paths {
		for heard := false; !heard; { // until the watch is there, and has answered
			write(path)
			writes++
			select {
			case <-rung:
				heard, rings = true, rings+1
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	for range 100 {
		write(filepath.Join(dir, "other"))
	}
	write(paths[0])
	writes++
	<-rung
	rings++
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if rings += len(rung); rings > writes {
		t.Errorf("%d calls for %d changes", rings, writes)
	}
}
