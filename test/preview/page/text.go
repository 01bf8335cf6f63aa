package page

import (
	"regexp"
	"strings"
)

// text is a panel of words, in Markdown.
func (s *sheet) text() (*node, error) {
	var o struct {
		Mode    string `json:"mode"`
		Content string `json:"content"`
	}
	if err := s.options(&o); err != nil {
		return nil, err
	}
	content, err := s.board.Fill(o.Content, s.values, s.window)
	if err != nil {
		return nil, err
	}
	if o.Mode == "html" || o.Mode == "code" {
		return el("pre", "class", "markdown").say(content), nil
	}
	return s.markdown(content), nil
}

var (
	heading  = regexp.MustCompile(`^(#{1,4})\s+(.*)$`)
	bullet   = regexp.MustCompile(`^\s*[-*]\s+(.*)$`)
	numbered = regexp.MustCompile(`^\s*\d+[.)]\s+(.*)$`)
	inline   = regexp.MustCompile("`([^`]+)`" + `|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\(([^)\s]+)\)`)
)

// markdown reads the part of Markdown that notes need: headings, lists, tables, bold, italic, code and links.
// All else is words; markup of HTML stays words too.
func (s *sheet) markdown(text string) *node {
	out := el("div", "class", "markdown")
	var paragraph, list, rows *node
	for _, l := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(l)
		if !strings.HasPrefix(trimmed, "|") {
			rows = nil
		}
		switch {
		case trimmed == "":
			paragraph, list = nil, nil
		case strings.HasPrefix(trimmed, "|"):
			cells := strings.Split(strings.Trim(trimmed, "|"), "|")
			if strings.Trim(trimmed, "|-: ") == "" {
				continue
			}
			kind := "td"
			if rows == nil {
				kind, rows = "th", el("table")
				out.add(rows)
			}
			tr := el("tr")
			for _, c := range cells {
				tr.add(el(kind).add(s.inline(strings.TrimSpace(c))...))
			}
			rows.add(tr)
			paragraph, list = nil, nil
		case heading.MatchString(l):
			m := heading.FindStringSubmatch(l)
			// The page has its own first heading, and panels their titles.
			out.add(el("h" + string(rune('3'+min(len(m[1]), 3)))).add(s.inline(m[2])...))
			paragraph, list = nil, nil
		case bullet.MatchString(l), numbered.MatchString(l):
			kind, m := "ul", bullet.FindStringSubmatch(l)
			if m == nil {
				kind, m = "ol", numbered.FindStringSubmatch(l)
			}
			if list == nil || list.tag != kind {
				list = el(kind)
				out.add(list)
			}
			list.add(el("li").add(s.inline(m[1])...))
			paragraph = nil
		case list != nil:
			item := list.kids[len(list.kids)-1]
			item.say(" ").add(s.inline(trimmed)...)
		default:
			if paragraph == nil {
				paragraph = el("p")
				out.add(paragraph)
			} else {
				paragraph.say(" ")
			}
			paragraph.add(s.inline(trimmed)...)
		}
	}
	return out
}

func (s *sheet) inline(text string) []*node {
	var out []*node
	at := 0
	for _, m := range inline.FindAllStringSubmatchIndex(text, -1) {
		if m[0] > at {
			out = append(out, words(text[at:m[0]]))
		}
		part := func(i int) string { return text[m[2*i]:m[2*i+1]] }
		switch {
		case m[2] >= 0:
			out = append(out, el("code").say(part(1)))
		case m[4] >= 0:
			out = append(out, el("b").say(part(2)))
		case m[6] >= 0:
			out = append(out, el("em").say(part(3)))
		default:
			if href := s.address(part(5), nil, nil); href != "" {
				out = append(out, el("a", "href", href).say(part(4)))
			} else {
				out = append(out, words(part(4)))
			}
		}
		at = m[1]
	}
	if at < len(text) {
		out = append(out, words(text[at:]))
	}
	return out
}
