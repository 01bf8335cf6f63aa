package main

import (
	"testing"
	"time"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/test/servers"
)

// The exporter passes every question of the suite, in a short run.
func TestOurs(t *testing.T) {
	found, err := score(t.Context(), profiles["gpu-exporter"], 4*time.Second, 4*time.Second, 2*time.Second, []string{
		servers.Build(t, servers.Exporter), "--node-name=n", "--nvml.library={library}", "--kubelet.socket={socket}",
		"--path.host={host}",
		"--path.kmsg=", "--web.listen-address={address}", "--poll.fast=500ms", "--poll.medium=1s", "--poll.kubelet=1s",
		"--log.level=error"})
	must.OK(t, err)
	for _, v := range found {
		if v.Verdict != "ok" {
			t.Errorf("%s: %s", v.Question, v.Found)
		}
	}
}
