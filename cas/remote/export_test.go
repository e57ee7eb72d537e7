package remote

// SplitCatalogue is splitCatalogue.
func SplitCatalogue(packs []Catalogued) [][]Catalogued { return splitCatalogue(packs) }
