package memtrack

// Span is where a machine's memory lies in the address space of the process that runs it.
type Span struct {
	PID   int
	Start uint64 // address of page 0
	End   uint64
}

// Pages is how many whole pages the span has.
func (s Span) Pages() uint64 { return (s.End - s.Start) / PageBytes }

// Address is where a page begins.
func (s Span) Address(page uint64) uint64 { return s.Start + page*PageBytes }

// Process is a machine's memory in another process, read by process_vm_readv. A page that is absent there is brought in by
// whoever serves the faults of that process, which may take as long as it takes: a Memory over a lazily filled span should
// fill the pages first. Safe for concurrent use.
type Process struct{ span Span }

// NewProcess takes a span that stays mapped as long as the Process is used.
func NewProcess(s Span) *Process { return &Process{span: s} }

// Span says where the memory is.
func (p *Process) Span() Span { return p.span }

func (p *Process) Pages() uint64 { return p.span.Pages() }
