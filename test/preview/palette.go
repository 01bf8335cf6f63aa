package main

import (
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"slices"
)

// fewColours maps a picture to its own most frequent colours. Pages have few flat colours and many shades
// between them at the edges of letters: near shades are counted together, the most frequent stands for them,
// and what is left over takes the nearest colour.
func fewColours(img image.Image, most int) *image.Paletted {
	bounds := img.Bounds()
	flat := image.NewRGBA(bounds)
	draw.Draw(flat, bounds, img, bounds.Min, draw.Src)
	count := map[[3]uint8]int{}
	for at := 0; at < len(flat.Pix); at += 4 {
		count[[3]uint8{flat.Pix[at], flat.Pix[at+1], flat.Pix[at+2]}]++
	}
	type family struct {
		best  [3]uint8
		n, of int // pixels of the best, and of all
	}
	families := map[[3]uint8]*family{}
	for c, n := range count {
		key := [3]uint8{c[0] >> 3, c[1] >> 3, c[2] >> 3}
		f := families[key]
		if f == nil {
			f = &family{}
			families[key] = f
		}
		f.of += n
		// Of two that are as frequent the smaller wins, so that the same page gives the same picture.
		if n > f.n || n == f.n && slices.Compare(c[:], f.best[:]) < 0 {
			f.best, f.n = c, n
		}
	}
	chosen := make([]*family, 0, len(families))
	for _, f := range families {
		chosen = append(chosen, f)
	}
	slices.SortFunc(chosen, func(a, b *family) int { return cmp.Or(cmp.Compare(b.of, a.of), slices.Compare(a.best[:], b.best[:])) })
	var palette color.Palette
	for _, f := range chosen[:min(most, len(chosen))] {
		palette = append(palette, color.RGBA{f.best[0], f.best[1], f.best[2], 255})
	}
	out := image.NewPaletted(bounds, palette)
	nearest := map[[3]uint8]uint8{}
	for at := 0; at < len(flat.Pix); at += 4 {
		c := [3]uint8{flat.Pix[at], flat.Pix[at+1], flat.Pix[at+2]}
		i, ok := nearest[c]
		if !ok {
			i = uint8(palette.Index(color.RGBA{c[0], c[1], c[2], 255}))
			nearest[c] = i
		}
		out.Pix[at/4] = i
	}
	return out
}
