// Package page draws a board of test/board as a page of HTML and SVG: its panels in their places, with the
// answers of their queries. It is a preview for those who have no Grafana at hand, and says so at its top.
//
// Nothing here runs in the reader's browser and nothing is loaded from elsewhere: a page is one file. What a
// panel asks for and this package does not know is reported by name, never left out in silence.
package page
