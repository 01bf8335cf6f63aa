package dashboards

import (
	"fmt"
	"testing"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
)

// tableRoom is how wide the columns of a table can be together on a page: the page's and the panel's padding, the gap
// between panels and a scroll bar for the rows are no part of it.
func tableRoom(page, panel int) int { return (page-24)*panel/24 - 8 - 18 - 10 }

// columnsWidth is how wide Grafana draws the columns: those without a width share what the others leave, equally,
// and none is narrower than its minimum.
func columnsWidth(columns []Column, room int) int {
	sum, growing := 0, []int{}
	for _, c := range columns {
		if width, fixed := c.pixels(); c.hidden {
			continue
		} else if fixed {
			sum += width
		} else {
			growing = append(growing, width)
		}
	}
	for i, left := 0, room-sum; i < len(growing); i++ {
		sum += max(growing[i], left/len(growing))
	}
	return sum
}

// identityFirst is the rule for a table that is scrolled sideways: what a row is about is left of its values. Only a UUID,
// to be copied, may be at the end.
func identityFirst(columns []Column) error {
	value := ""
	for _, c := range columns {
		switch {
		case c.label == "" && !c.hidden:
			value = c.title
		case c.label != "" && c.label != "uuid" && !c.hidden && value != "":
			return fmt.Errorf("%s is right of %s", c.title, value)
		}
	}
	return nil
}

// TestTitlesFit: no title is cut on a page of 1000 px.
func TestTitlesFit(t *testing.T) {
	for _, b := range All() {
		laid, err := b.layout()
		must.OK(t, err)
		for _, r := range laid.rows {
			for _, p := range r.panels {
				if p.at.w < p.titleWidth() {
					t.Errorf("%s/%s is %d wide, its title needs %d", b.UID, p.title, p.at.w, p.titleWidth())
				}
			}
		}
	}
}

// TestTablesFit: no table is wider than its panel on a page of 1600 px. On a page of 1280 px those that are have their
// identity columns first.
func TestTablesFit(t *testing.T) {
	tables := 0
	for _, b := range All() {
		for _, r := range b.Rows {
			for _, l := range r.Lines {
				for _, p := range l.Panels {
					if p.kind != kindTable {
						continue
					}
					tables++
					room := tableRoom(1600, p.width)
					if width := columnsWidth(p.columns, room); width > room {
						t.Errorf("%s/%s: its columns are %d px wide, and there are %d px", b.UID, p.title, width, room)
					}
					room = tableRoom(1280, p.width)
					if width := columnsWidth(p.columns, room); width > room {
						if err := identityFirst(p.columns); err != nil {
							t.Errorf("%s/%s is %d px too wide at 1280 px, and %v", b.UID, p.title, width-room, err)
						} else {
							t.Logf("%s/%s is scrolled sideways at 1280 px, by %d px", b.UID, p.title, width-room)
						}
					}
				}
			}
		}
	}
	if tables < 40 {
		t.Errorf("only %d tables", tables)
	}
}
