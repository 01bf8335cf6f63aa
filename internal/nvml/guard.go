package nvml

// probe looks up every symbol. lookup returns an error for a symbol that does not exist; it must not call it.
func probe(lookup func(symbol string) error) offers {
	var o offers
	for id := range guards {
		g := &guards[id]
		symbols := g.symbols()
		for _, s := range symbols {
			if lookup(s) == nil {
				o.have[id] = true
				o.symbols = append(o.symbols, s)
			}
		}
		if o.have[id] {
			continue
		}
		o.missing = append(o.missing, symbols[0])
		if g.required {
			o.fatal = append(o.fatal, symbols[0])
		}
	}
	return o
}
