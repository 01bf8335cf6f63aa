package expose

import "strings"

// appendSeries appends a name and its labels, which alternate with their values.
func appendSeries(b []byte, name string, labels []string) []byte {
	b = append(b, name...)
	for i := 0; i < len(labels); i += 2 {
		if i == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = append(append(b, labels[i]...), '=', '"')
		b = append(appendEscaped(b, labels[i+1]), '"')
	}
	if len(labels) > 0 {
		b = append(b, '}')
	}
	return b
}

func appendEscaped(b []byte, s string) []byte {
	if !strings.ContainsAny(s, "\\\"\n") {
		return append(b, s...)
	}
	return append(b, strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s)...)
}
