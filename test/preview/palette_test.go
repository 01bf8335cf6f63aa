package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"testing"
)

func TestFewColours(t *testing.T) {
	img := image.NewRGBA(image.Rect(0, 0, 64, 64))
	for y := range 64 {
		for x := range 64 {
			c := color.RGBA{24, 27, 31, 255}
			switch {
			case y == 0:
				c = color.RGBA{uint8(x * 4), 128, uint8(255 - x*4), 255} // a run of shades
			case y < 8:
				c = color.RGBA{242, 73, 92, 255}
			}
			img.Set(x, y, c)
		}
	}
	for _, most := range []int{2, 16, 256} {
		got := fewColours(img, most)
		if len(got.Palette) > most {
			t.Errorf("%d colours, at most %d were wanted", len(got.Palette), most)
		}
		// The large areas keep their very colours.
		if got.At(3, 40) != (color.RGBA{24, 27, 31, 255}) || got.At(3, 4) != (color.RGBA{242, 73, 92, 255}) {
			t.Errorf("%d colours: an area became %v, another %v", most, got.At(3, 40), got.At(3, 4))
		}
	}
}

func TestSmaller(t *testing.T) {
	var shot bytes.Buffer
	if err := png.Encode(&shot, image.NewRGBA(image.Rect(0, 0, 1440, 200))); err != nil {
		t.Fatal(err)
	}
	small, err := smaller(shot.Bytes())
	if err != nil || len(small) > 2000 {
		t.Errorf("an empty picture has %d bytes, %v", len(small), err)
	}
	if _, err := smaller([]byte("no picture")); err == nil {
		t.Error("what is no picture is no error")
	}
}
