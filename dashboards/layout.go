package dashboards

import (
	"fmt"
	"slices"
)

// gridWidth is how many columns Grafana's grid has.
const gridWidth = 24

// place is where a panel or a heading stands, and its id.
type place struct{ id, x, y, w, h int }

// placed is a dashboard with every heading and panel in its place. Ids count from 1 in the order of reading.
type placed struct {
	rows []placedRow
}

type placedRow struct {
	row     Row
	heading *place // nil for the first row
	panels  []placedPanel
}

type placedPanel struct {
	Panel
	at place
}

// titleWidth is how wide a panel must be, in columns, so that its title is whole on a page of 1000 px: letters of 7.2 px, and
// 82 px for margins, padding and the icon of its help.
func (p Panel) titleWidth() int {
	return (len([]rune(p.title))*72/10+82)*gridWidth/(1000-gridWidth) + 1
}

// folded is a line of tiles as several lines, if titles would be cut otherwise.
func (l Line) folded() (lines []Line) {
	need, cut := 0, false
	for _, p := range l.Panels {
		if p.kind != kindStat {
			return []Line{l}
		}
		need, cut = need+p.titleWidth(), cut || p.width < p.titleWidth()
	}
	if !cut {
		return []Line{l}
	}
	n := len(l.Panels)
	count := min(n, (need+gridWidth-1)/gridWidth)
	for tiles := range slices.Chunk(slices.Clone(l.Panels), (n+count-1)/count) {
		for i := range tiles {
			tiles[i].width = (i+1)*gridWidth/len(tiles) - i*gridWidth/len(tiles)
		}
		lines = append(lines, Line{l.Height - 1, tiles})
	}
	return lines
}

// layout puts the panels of a dashboard on the grid. It fails for a line that is wider than the grid, naming it,
// because Grafana would silently move the rest.
func (b Dashboard) layout() (placed, error) {
	var out placed
	id, y := 0, 0
	next := func() int { id++; return id }
	for i, r := range b.Rows {
		pr := placedRow{row: r}
		switch {
		case i > 0 && r.Title == "":
			return placed{}, fmt.Errorf("dashboard %s: row %d has no title", b.UID, i+1)
		case r.Title != "":
			pr.heading = &place{id: next(), x: 0, y: y, w: gridWidth, h: 1}
			y++
		}
		var lines []Line
		for _, l := range r.Lines {
			lines = append(lines, l.folded()...)
		}
		for _, l := range lines {
			x := 0
			for _, p := range l.Panels {
				if p.width < 1 || l.Height < 2 {
					return placed{}, fmt.Errorf("dashboard %s: panel %q is %d wide and %d high", b.UID, p.title, p.width, l.Height)
				}
				pr.panels = append(pr.panels, placedPanel{p, place{id: next(), x: x, y: y, w: p.width, h: l.Height}})
				x += p.width
			}
			if x > gridWidth {
				return placed{}, fmt.Errorf("dashboard %s: the line of panel %q is %d wide, the grid %d", b.UID,
					l.Panels[0].title, x, gridWidth)
			}
			y += l.Height
		}
		out.rows = append(out.rows, pr)
	}
	return out, nil
}
