package catalog

import "slices"

// Groups returns the catalog by chapter.
func Groups() []Group {
	groups := []Group{
		identity(), activity(), memory(), power(), thermal(), clocks(), modes(), faults(), links(),
		ownership(), containers(), mig(), exporter(), driverCalls(),
	}
	for _, g := range groups {
		for i := range g.Rows {
			g.Rows[i].complete()
		}
	}
	return groups
}

// All returns every family in the order of the catalog. It is the only list.
func All() []Family {
	var rows []Family
	for _, g := range Groups() {
		rows = append(rows, g.Rows...)
	}
	return rows
}

// Lookup returns the family of that name.
func Lookup(name string) (Family, bool) {
	rows := All()
	i := slices.IndexFunc(rows, func(f Family) bool { return f.Name == name })
	if i < 0 {
		return Family{}, false
	}
	return rows[i], true
}
