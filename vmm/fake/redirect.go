package fake

import "fmt"

// open does redirections in their order.
func (p *process) open(f *frame, redirects []redirect, lookup func(string) string) (*opened, error) {
	o := &opened{In: "0", Out: f.Out, Err: f.Err}
	for _, r := range redirects {
		target := r.target.expand(lookup)
		switch r.op {
		case "<":
			o.In = f.resolve(target)
			continue
		case ">&":
			switch target {
			case "1":
				target = o.Out
			case "2":
				target = o.Err
			default:
				return nil, fmt.Errorf("%s: bad file descriptor", target)
			}
		default:
			target = f.resolve(target)
			if target == "/dev/null" || target == "/dev/stdout" || target == "/dev/stderr" {
				break
			}
			old, err := p.m.files.readFile(target)
			if r.op == ">" || err != nil {
				old = nil
			}
			if err := p.m.files.writeFile(target, old, node{Time: p.m.cpu.wall()}); err != nil {
				return nil, err
			}
		}
		if r.fd == 2 {
			o.Err = target
		} else {
			o.Out = target
		}
	}
	return o, nil
}

// put writes a command's output to where it goes.
func (p *process) put(to string, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	switch to {
	case "1", "/dev/stdout":
		p.rec.Out = append(p.rec.Out, b...)
	case "2", "/dev/stderr":
		p.rec.Err = append(p.rec.Err, b...)
	case "/dev/null":
	default:
		old, err := p.m.files.readFile(to)
		if err != nil {
			return err
		}
		return p.m.files.writeFile(to, append(old, b...), node{Time: p.m.cpu.wall()})
	}
	return nil
}
