package memtrack

// Baseline is what a tracker may take for granted about memory at Start.
type Baseline int

const (
	// Unknown: the first Cut reports every page that isn't absent.
	Unknown Baseline = iota
	// Zeroed: the machine is new and descends from nothing; the first Cut reports every page that isn't zero.
	Zeroed
	// Same: at Start memory holds exactly what its parent snapshot holds, as after an eager restore.
	Same
)
