package page

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Links turns a link to another board into an address among the previews; a board that is not previewed has none.
type Links func(uid string, query url.Values) (string, bool)

var (
	boardPath = regexp.MustCompile(`^/d/([A-Za-z0-9_-]+)(?:/[^?]*)?(?:\?(.*))?$`)
	inURL     = regexp.MustCompile(`\$\{([^{}]+)\}`)
)

// link returns the address and the title of the first link that leads somewhere. In a table, fields are the
// cells of the row; in other panels, labels are those of the series.
func (s *sheet) link(links []link, labels, fields map[string]string) (href, title string) {
	for _, l := range links {
		if href := s.address(l.URL, labels, fields); href != "" {
			return href, l.Title
		}
	}
	return "", ""
}

// address fills a link and turns it into one of the preview. What is neither a board nor a page of the web is "".
func (s *sheet) address(form string, labels, fields map[string]string) string {
	filled := inURL.ReplaceAllStringFunc(form, func(m string) string {
		name := m[2 : len(m)-1]
		if rest, ok := strings.CutPrefix(name, "__data.fields."); ok {
			return url.QueryEscape(fields[rest])
		}
		if rest, ok := strings.CutPrefix(name, "__data.fields["); ok {
			return url.QueryEscape(fields[strings.Trim(rest, `]"`)])
		}
		if rest, ok := strings.CutPrefix(name, "__field.labels."); ok {
			return url.QueryEscape(labels[rest])
		}
		if name == "__url_time_range" {
			return url.Values{"from": {s.rangeFrom}, "to": {s.rangeTo}}.Encode()
		}
		name, _, _ = strings.Cut(name, ":")
		if name == "__all_variables" {
			out := url.Values{}
			for _, n := range sortedKeys(s.values) {
				out["var-"+n] = s.values[n]
			}
			return out.Encode()
		}
		for _, v := range s.board.Variables {
			if v.Name == name && v.Type != "datasource" && len(s.values[name]) > 0 {
				return url.Values{"var-" + name: s.values[name]}.Encode()
			}
		}
		return ""
	})
	if m := boardPath.FindStringSubmatch(filled); m != nil {
		query, err := url.ParseQuery(strings.Trim(m[2], "&"))
		if err != nil {
			return ""
		}
		for name, values := range query {
			if !slices.ContainsFunc(values, func(v string) bool { return v != "" }) {
				delete(query, name)
			}
		}
		href, ok := s.links(m[1], query)
		if !ok {
			return ""
		}
		return href
	}
	u, err := url.Parse(filled)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return ""
	}
	return u.String()
}
