package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/gpu-exporter/gpu-exporter/report/document"
	"github.com/gpu-exporter/gpu-exporter/report/render"
)

// readWebhook reads from a file the URL to which the short form is posted. It is a credential: no error and no log has it.
func readWebhook(file string) (string, error) {
	text, err := os.ReadFile(file)
	at := strings.TrimSpace(string(text))
	if err == nil && !strings.HasPrefix(at, "https://") && !strings.HasPrefix(at, "http://") {
		err = fmt.Errorf("%s must have one URL, as https://HOST/PATH", file)
	}
	return at, err
}

// post posts the short form as the text of a JSON object, which Slack and Mattermost show. It is tried again after an error of the network
// or the server.
func post(ctx context.Context, doc *document.Document, at string, tries int, delay time.Duration) error {
	var text bytes.Buffer
	if err := render.Write(&text, doc, "short", render.Options{}); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"text": text.String()})
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := http.Client{Timeout: time.Minute, CheckRedirect: stay}
	for try := 1; err == nil && try <= tries; try++ {
		res, failed := client.Post(at, "application/json", bytes.NewReader(body))
		if of := new(url.Error); errors.As(failed, &of) {
			failed = of.Err // without the URL
		} else if failed == nil {
			_ = res.Body.Close() // what is wrong is in the status
			if res.StatusCode/100 == 2 {
				return nil
			}
			failed = fmt.Errorf("the server responded %s", res.Status)
		}
		again := res == nil || res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests
		if try == tries || !again || !sleep(ctx, delay<<try) {
			err = failed
		}
	}
	return fmt.Errorf("webhook: %w", err)
}

// sleep returns false if the context ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
