// Package architecture reads the documentation; its tests check the structure of the project.
package architecture

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Page is a Markdown file, with its fenced blocks separated from its prose.
type Page struct {
	Path   string // from the root
	Prose  string // without fenced blocks
	Blocks []Block
}

// Block is a fenced block; Mark is the comment in the line above it.
type Block struct {
	Language, Mark, Text string
	Line                 int
}

// Pages reads every Markdown file of the repository.
func Pages(root string) (out []Page, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		p := read(string(text))
		p.Path, err = filepath.Rel(root, path)
		out = append(out, p)
		return err
	})
	return out, err
}

func read(text string) (p Page) {
	var open *Block
	before := ""
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```") && open == nil:
			open = &Block{Language: strings.TrimPrefix(trimmed, "```"), Line: i + 1}
			if strings.HasPrefix(before, "<!-- ") {
				open.Mark = strings.TrimSuffix(strings.TrimPrefix(before, "<!-- "), " -->")
			}
		case trimmed == "```":
			p.Blocks = append(p.Blocks, *open)
			open = nil
		case open != nil:
			open.Text += line + "\n"
		default:
			p.Prose += line + "\n"
		}
		before = trimmed
	}
	return p
}
