package fake

import (
	"fmt"
	"strings"
)

// program is a parsed script: commands in a row, each with what joins it to the one before.
type program []statement

// statement is a simple command.
type statement struct {
	join       string // "" ";" "&&" "||": when it runs, seen from the one before
	assign     []word // NAME=value
	words      []word
	redirects  []redirect
	background bool
}

// redirect is [fd]> [fd]>> [fd]< [fd]>&fd.
type redirect struct {
	fd     int
	op     string // ">" ">>" "<" ">&"
	target word
}

// word is text in pieces, some of which are names of variables.
type word []piece

type piece struct {
	text     string
	variable bool
}

func (w word) literal() string {
	var b strings.Builder
	for _, p := range w {
		b.WriteString(p.text)
	}
	return b.String()
}

func (w word) expand(lookup func(name string) string) string {
	var b strings.Builder
	for _, p := range w {
		if p.variable {
			b.WriteString(lookup(p.text))
		} else {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// beyond are words and characters of real shells that this one refuses rather than misunderstands.
var beyond = map[string]bool{"if": true, "for": true, "while": true, "until": true, "case": true, "function": true, "{": true, "!": true}

// parse reads a script.
func parse(source string) (program, error) {
	p := parser{rest: source}
	var prog program
	join := ""
	for {
		s, err := p.statement()
		if err != nil {
			return nil, err
		}
		s.join = join
		op := p.operator()
		if op == "&" {
			s.background = true
			op = ";"
		}
		if len(s.words)+len(s.assign)+len(s.redirects) > 0 {
			prog = append(prog, s)
		} else if op == "&&" || op == "||" || s.background || join == "&&" || join == "||" {
			return nil, fmt.Errorf("sh: syntax error: a command is missing")
		}
		if op == "" {
			return prog, nil
		}
		join = op
	}
}

type parser struct{ rest string }

// operator reads what ends a statement; "" is the end of the script.
func (p *parser) operator() string {
	for _, op := range []string{"&&", "||", "&", ";", "\n"} {
		if strings.HasPrefix(p.rest, op) {
			p.rest = p.rest[len(op):]
			if op == "\n" {
				return ";"
			}
			return op
		}
	}
	return ""
}

func (p *parser) blanks() {
	p.rest = strings.TrimLeft(p.rest, " \t")
	if strings.HasPrefix(p.rest, "#") {
		if i := strings.IndexByte(p.rest, '\n'); i >= 0 {
			p.rest = p.rest[i:]
		} else {
			p.rest = ""
		}
	}
}

func (p *parser) statement() (s statement, err error) {
	for {
		p.blanks()
		if p.rest == "" || strings.ContainsRune(";&\n", rune(p.rest[0])) || strings.HasPrefix(p.rest, "||") {
			return s, nil
		}
		if c := p.rest[0]; c == '|' || c == '(' || c == ')' || c == '`' {
			return s, fmt.Errorf("sh: %q is more than the fake guest's shell knows", string(c))
		}
		if r, ok, err := p.redirect(); err != nil {
			return s, err
		} else if ok {
			s.redirects = append(s.redirects, r)
			continue
		}
		w, quoted, err := p.word()
		if err != nil {
			return s, err
		}
		text := w.literal()
		if len(s.words) == 0 && !quoted {
			if beyond[text] {
				return s, fmt.Errorf("sh: %q is more than the fake guest's shell knows", text)
			}
			if name, _, ok := strings.Cut(w[0].text, "="); ok && !w[0].variable && isName(name) {
				s.assign = append(s.assign, w)
				continue
			}
		}
		s.words = append(s.words, w)
	}
}

func (p *parser) redirect() (r redirect, ok bool, err error) {
	rest := p.rest
	r.fd = -1
	if rest[0] == '1' || rest[0] == '2' || rest[0] == '0' {
		r.fd, rest = int(rest[0]-'0'), rest[1:]
	}
	for _, op := range []string{">>", ">&", ">", "<"} {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		r.op, p.rest = op, rest[len(op):]
		if r.fd < 0 && op == "<" {
			r.fd = 0
		} else if r.fd < 0 {
			r.fd = 1
		}
		p.blanks()
		r.target, _, err = p.word()
		if err == nil && len(r.target) == 0 {
			err = fmt.Errorf("sh: syntax error: %s without a file", op)
		}
		return r, true, err
	}
	return r, false, nil
}

// word reads up to a blank or an operator. quoted tells whether its beginning was quoted.
func (p *parser) word() (w word, quoted bool, err error) {
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			w = append(w, piece{text: text.String()})
			text.Reset()
		}
	}
	begun := false
	for p.rest != "" && !strings.ContainsRune(" \t\n;&|<>()", rune(p.rest[0])) {
		c := p.rest[0]
		p.rest = p.rest[1:]
		if !begun {
			quoted = c == '\'' || c == '"'
		}
		begun = true
		switch c {
		case '\'':
			i := strings.IndexByte(p.rest, '\'')
			if i < 0 {
				return nil, false, fmt.Errorf("sh: syntax error: a quote isn't closed")
			}
			text.WriteString(p.rest[:i])
			p.rest = p.rest[i+1:]
		case '"':
			for {
				if p.rest == "" {
					return nil, false, fmt.Errorf("sh: syntax error: a quote isn't closed")
				}
				c := p.rest[0]
				p.rest = p.rest[1:]
				if c == '"' {
					break
				}
				if c == '\\' && p.rest != "" && strings.ContainsRune(`"\$`, rune(p.rest[0])) {
					text.WriteByte(p.rest[0])
					p.rest = p.rest[1:]
				} else if c == '$' {
					if err := p.variable(&w, &text, flush); err != nil {
						return nil, false, err
					}
				} else {
					text.WriteByte(c)
				}
			}
		case '\\':
			if p.rest != "" {
				text.WriteByte(p.rest[0])
				p.rest = p.rest[1:]
			}
		case '$':
			if err := p.variable(&w, &text, flush); err != nil {
				return nil, false, err
			}
		case '`':
			return nil, false, fmt.Errorf("sh: %q is more than the fake guest's shell knows", "`")
		default:
			text.WriteByte(c)
		}
	}
	flush()
	if begun && len(w) == 0 {
		w = word{{}}
	}
	return w, quoted, nil
}

// variable reads what follows a dollar sign.
func (p *parser) variable(w *word, text *strings.Builder, flush func()) error {
	if strings.HasPrefix(p.rest, "(") {
		return fmt.Errorf("sh: %q is more than the fake guest's shell knows", "$(")
	}
	name, after := "", p.rest
	if strings.HasPrefix(p.rest, "{") {
		var ok bool
		if name, after, ok = strings.Cut(p.rest[1:], "}"); !ok || !isName(name) && name != "?" {
			return fmt.Errorf("sh: %q is more than the fake guest's shell knows", "${"+name)
		}
	} else if strings.HasPrefix(p.rest, "?") {
		name, after = "?", p.rest[1:]
	} else {
		i := 0
		for i < len(p.rest) && isName(p.rest[:i+1]) {
			i++
		}
		name, after = p.rest[:i], p.rest[i:]
	}
	if name == "" {
		text.WriteByte('$')
		return nil
	}
	flush()
	*w = append(*w, piece{name, true})
	p.rest = after
	return nil
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}
