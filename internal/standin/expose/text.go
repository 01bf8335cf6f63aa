package expose

import "github.com/gpu-exporter/gpu-exporter/collector"

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
		b = append(collector.AppendEscaped(b, labels[i+1]), '"')
	}
	if len(labels) > 0 {
		b = append(b, '}')
	}
	return b
}
