package analysis

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"strings"
	texttemplate "text/template"
)

//go:embed templates/report.html templates/report.css templates/report.md
var templates embed.FS

var templateFuncs = map[string]any{
	"inline": func(f figure) template.HTML { return template.HTML(inline(f.svg)) }, // our own SVG: gonum escapes its texts
	"css": func() (template.CSS, error) {
		b, err := templates.ReadFile("templates/report.css")
		return template.CSS(b), err
	},
	// cell keeps a text from ending a Markdown table cell or its row.
	"cell":   func(s string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s) },
	"anchor": func(parts ...string) string { return slug(parts...) },
	"add":    func(a, b int) int { return a + b },
	"title":  func(s Source) string { return strings.ToUpper(string(s[:1])) + string(s[1:]) },
}

func (r report) html() ([]byte, error) {
	t, err := template.New("report.html").Funcs(templateFuncs).ParseFS(templates, "templates/report.html")
	if err != nil {
		return nil, fmt.Errorf("report.html: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, r); err != nil {
		return nil, fmt.Errorf("report.html: %w", err)
	}
	return b.Bytes(), nil
}

func (r report) markdown() ([]byte, error) {
	t, err := texttemplate.New("report.md").Funcs(templateFuncs).ParseFS(templates, "templates/report.md")
	if err != nil {
		return nil, fmt.Errorf("report.md: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, r); err != nil {
		return nil, fmt.Errorf("report.md: %w", err)
	}
	return b.Bytes(), nil
}
