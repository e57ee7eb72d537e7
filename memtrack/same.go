package memtrack

// SameMemory tells whether two values stand for one machine's memory: a tracker that is started again with it has nothing to do.
func SameMemory(a, b Memory) bool {
	if a == b {
		return true
	}
	type spanned interface{ Span() Span }
	x, isX := a.(spanned)
	y, isY := b.(spanned)
	return isX && isY && x.Span() == y.Span()
}
