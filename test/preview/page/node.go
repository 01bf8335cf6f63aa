package page

import (
	"html"
	"strings"
)

// node is an element of a page, or a text where tag is empty. Texts and the values of attributes are escaped
// when the page is written and nowhere else, so that no label can become markup.
type node struct {
	tag, text string
	attrs     []string // name, value, name, value
	kids      []*node
}

// el makes an element; pairs are names and values of attributes.
func el(tag string, pairs ...string) *node {
	if len(pairs)%2 != 0 {
		panic("page: an attribute of " + tag + " has no value")
	}
	return &node{tag: tag, attrs: pairs}
}

func words(s string) *node { return &node{text: s} }

// add appends and returns the receiver. A nil is left out, so that a part may be absent.
func (n *node) add(kids ...*node) *node {
	for _, k := range kids {
		if k != nil {
			n.kids = append(n.kids, k)
		}
	}
	return n
}

// say appends a text.
func (n *node) say(s string) *node { return n.add(words(s)) }

// set appends an attribute.
func (n *node) set(name, value string) *node { n.attrs = append(n.attrs, name, value); return n }

func (n *node) write(b *strings.Builder) {
	if n.tag == "" {
		b.WriteString(html.EscapeString(n.text))
		return
	}
	b.WriteString("<" + n.tag)
	for i := 0; i < len(n.attrs); i += 2 {
		b.WriteString(" " + n.attrs[i] + `="` + html.EscapeString(n.attrs[i+1]) + `"`)
	}
	b.WriteByte('>')
	switch n.tag {
	case "meta", "link", "br", "hr", "col":
		return
	}
	if n.tag == "style" {
		b.WriteString(n.text) // the package's own, which no label reaches
	}
	for _, k := range n.kids {
		k.write(b)
	}
	b.WriteString("</" + n.tag + ">")
}

func (n *node) String() string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}
