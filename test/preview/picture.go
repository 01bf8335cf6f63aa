package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/gpu-exporter/gpu-exporter/test/board"
)

const (
	pictureWidth = 1440
	// pictureBytes is how large a picture may be: it is kept with the code.
	pictureBytes = 400_000
)

// takePictures writes board-<uid>.png of every page, dark as Grafana is by default, whole and 1440 pixels wide.
func takePictures(ctx context.Context, pages, out string, boards []board.Board) error {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("hide-scrollbars", true))
	ctx, cancelAll := chromedp.NewExecAllocator(ctx, options...)
	defer cancelAll()
	ctx, cancel := chromedp.NewContext(ctx)
	defer cancel()
	ctx, cancelTime := context.WithTimeout(ctx, 5*time.Minute)
	defer cancelTime()
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, b := range boards {
		page, err := filepath.Abs(filepath.Join(pages, b.UID+".html"))
		if err != nil {
			return err
		}
		var shot []byte
		err = chromedp.Run(ctx, chromedp.EmulateViewport(pictureWidth, 900),
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}),
			chromedp.Navigate((&url.URL{Scheme: "file", Path: page}).String()), chromedp.WaitVisible("main", chromedp.ByQuery), chromedp.FullScreenshot(&shot, 100))
		if err != nil {
			return fmt.Errorf("picture of %s: %w (Chromium is needed: make chromium)", b.UID, err)
		}
		small, err := smaller(shot)
		if err != nil {
			return fmt.Errorf("picture of %s: %w", b.UID, err)
		}
		if err := os.WriteFile(filepath.Join(out, "board-"+b.UID+".png"), small, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// smaller writes a picture with as many colours as keep it within pictureBytes, at most 256.
func smaller(shot []byte) ([]byte, error) {
	img, _, err := image.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	for _, colours := range []int{256, 128, 64, 32} {
		var b bytes.Buffer
		encoder := png.Encoder{CompressionLevel: png.BestCompression}
		if err := encoder.Encode(&b, fewColours(img, colours)); err != nil {
			return nil, err
		}
		if b.Len() <= pictureBytes {
			return b.Bytes(), nil
		}
	}
	bounds := img.Bounds()
	return nil, fmt.Errorf("%d by %d pixels do not fit into %d bytes with 32 colours", bounds.Dx(), bounds.Dy(), pictureBytes)
}
